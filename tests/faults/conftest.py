"""One session for all faults: each test leaves it restarted, which is part of what is tested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ddpviz.engines import Session, work
from tests.sessions import Shared


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    found = Shared(tmp_path_factory.mktemp("faults"), engines=2)
    yield found
    found.close()


@pytest.fixture
def session(shared: Shared) -> Session:
    return shared.working()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that hangs is not given the 5 s that a user's has to end its step."""
    monkeypatch.setattr(work, "_STOP_SECONDS", 1.0)
