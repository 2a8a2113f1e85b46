"""One session for all faults: each test leaves it restarted, which is part of what is tested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ddpviz.engines import Session


@pytest.fixture(scope="package")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session(engines=2, directory=tmp_path_factory.mktemp("faults") / "a") as found:
        yield found


@pytest.fixture
def session(living: Session) -> Iterator[Session]:
    yield living
    if living.failure is not None:
        living.restart()
