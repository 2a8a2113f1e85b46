"""One session of two ranks for the tests of this folder that need engines, and one cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ddpviz.engines import Session
from ddpviz.engines import cluster as clusters
from tests.sessions import Shared


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    found = Shared(tmp_path_factory.mktemp("session"), engines=2, seed=3)
    yield found
    found.close()


@pytest.fixture
def session(shared: Shared) -> Session:
    """Works, whatever the test before left; a test begins with a load."""
    return shared.working()


@pytest.fixture(scope="package")
def others() -> Iterator[clusters.Engines]:
    """Stands for a cluster that somebody else started: two engines, idle between tests."""
    engines = clusters.connect(2, None)
    yield engines
    clusters.close(engines)
