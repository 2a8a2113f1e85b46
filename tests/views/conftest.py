"""The real runs of tests/analysis, shared with them."""

from __future__ import annotations

import pytest

from ddpviz.recording import Recording
from tests.analysis import inside


@pytest.fixture(scope="session")
def recorded() -> dict[str, Recording]:
    """The recording of each of :data:`inside.CASES`."""
    return inside.recorded()
