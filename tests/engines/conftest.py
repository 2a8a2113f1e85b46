"""One session of two ranks for the tests of this folder that need engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ddpviz.engines import Session


@pytest.fixture(scope="package")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session(engines=2, seed=3, directory=tmp_path_factory.mktemp("session") / "a") as found:
        yield found


@pytest.fixture
def session(living: Session) -> Iterator[Session]:
    """The session, working again where the test before failed in the middle."""
    yield living
    if living.failure is not None:
        living.restart()
