"""One session of two ranks for the tests of this folder that need engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ddpviz.engines import Session


@pytest.fixture(scope="package")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session(engines=2, seed=3, directory=tmp_path_factory.mktemp("session") / "a") as found:
        yield found
