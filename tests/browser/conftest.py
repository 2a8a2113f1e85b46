"""One Chromium for the tests here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.chromium import chromium


@pytest.fixture(scope="package")
def started() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(started: Any) -> Iterator[Any]:
    """It, without what the test before had open."""
    yield started
    for context in started.contexts:
        context.close()
