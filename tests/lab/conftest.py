"""One JupyterLab and one Chromium for the tests here that need them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import chromium
from tests.lab.servers import end_kernels, jupyterlab


@dataclasses.dataclass(frozen=True)
class Lab:
    """``root``: where its notebooks are."""

    address: str
    root: Path


@pytest.fixture(scope="package")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    with jupyterlab(folder) as address:
        yield Lab(address, folder / "root")


@pytest.fixture
def lab(jupyter: Lab) -> Iterator[Lab]:
    """No kernel runs in it, and none afterwards."""
    yield jupyter
    end_kernels(jupyter.address)


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser
