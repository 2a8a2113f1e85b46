"""Whatever happens to a rank: one clear error in time, nothing lost, one call to go on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import ddpviz
from ddpviz.engines import RankFailed, Session, SessionError
from ddpviz.events import Cause, Failure, Kind
from tests.faults import workload
from tests.faults.expect import (
    LIMIT_SECONDS,
    base,
    failing_run,
    strike,
    when,
    whole,
    works_again,
)
from tests.faults.workload import FAULT_STEP, cannot_build, faulty
from tests.waiting import until


@pytest.fixture
def fault(tmp_path: Path) -> Path:
    """A file for the time of the fault."""
    return tmp_path / "fault"


def test_an_exception_on_one_rank_names_it_its_step_and_its_line(
    session: Session, fault: Path
) -> None:
    session.load(faulty, mode="exception", fault=str(fault))
    first = base(session)
    error = failing_run(session, fault)
    assert (error.rank, error.step) == (1, first + FAULT_STEP)
    assert error.reason == "ValueError: no such sample"
    assert 'raise ValueError("no such sample")' in error.rank_traceback
    assert workload.__file__ in error.rank_traceback
    assert str(Path(ddpviz.__file__).parent) not in error.rank_traceback
    assert "did not come back in allreduce" in error.others[0]
    whole(session, 0, first, first + FAULT_STEP)
    whole(session, 1, first, first + FAULT_STEP)
    assert session.recording.notes(Failure)[-1].message == error.reason
    with pytest.raises(RankFailed):
        session.run(1)
    works_again(session)


def test_sigkill_in_the_middle_of_an_all_reduce_names_the_all_reduce(
    session: Session, fault: Path
) -> None:
    # Rank 0 stays away in step 5, so rank 1 waits for it inside its all-reduce.
    session.load(faulty, mode="hang", where=0)
    first = base(session)

    def in_all_reduce() -> bool:
        rows = session.recording.records(
            kinds=Kind.COLLECTIVE_LAUNCHED, ranks=1, steps=first + FAULT_STEP
        )
        return Cause.BUCKET in rows["cause"]

    pid = session.pids[1]
    thread = when(in_all_reduce, lambda: strike(pid, signal.SIGKILL, fault))
    error = failing_run(session, fault)
    thread.join()
    assert (error.rank, error.step) == (1, first + FAULT_STEP)
    assert "killed by SIGKILL" in error.reason
    assert error.doing.startswith("allreduce") and "(bucket 0)" in error.doing
    assert session.recording.notes(Failure)[-1].rank == 1
    assert ddpviz.load(session.directory).notes(Failure)[-1].step == error.step
    whole(session, 1, first, first + FAULT_STEP)
    works_again(session)


def test_an_abort_is_named_by_its_signal_with_the_stack_of_that_rank(
    session: Session, fault: Path
) -> None:
    session.load(faulty, mode="abort", fault=str(fault))
    first = base(session)
    error = failing_run(session, fault)
    assert (error.rank, error.step) == (1, first + FAULT_STEP)
    assert "killed by SIGABRT" in error.reason
    assert f'"{workload.__file__}"' in error.rank_traceback and "in batch" in error.rank_traceback
    whole(session, 1, first, first + FAULT_STEP)
    works_again(session)


def test_a_rank_that_gloo_aborts_is_named_with_the_collective(
    session: Session, fault: Path
) -> None:
    session.load(faulty, mode="gloo abort", fault=str(fault))
    first = base(session)
    error = failing_run(session, fault)
    assert error.step == first + FAULT_STEP
    ranks = {error.rank: error.reason, **error.others}
    assert any("SIGABRT" in said or "gloo" in said for said in ranks.values())
    assert error.doing.startswith("allreduce ") and error.doing.endswith("(user)")
    for rank in (0, 1):
        whole(session, rank, first, first + FAULT_STEP)
    works_again(session)


def test_a_process_that_exits_is_named_with_its_status(session: Session, fault: Path) -> None:
    session.load(faulty, mode="exit", fault=str(fault))
    error = failing_run(session, fault)
    assert error.rank == 1 and "exited with status 3" in error.reason
    works_again(session)


def test_the_same_exception_everywhere_stops_no_engine(session: Session, fault: Path) -> None:
    session.load(faulty, mode="everywhere", fault=str(fault))
    pids = session.pids
    error = failing_run(session, fault)
    assert error.reason == "ValueError: no such sample"
    assert all(os.path.exists(f"/proc/{pid}") for pid in pids.values())
    assert set(error.others.values()) == {"ValueError: no such sample"}
    works_again(session)


def test_ctrl_c_ends_a_run_after_its_step_and_the_session_goes_on(
    session: Session, fault: Path
) -> None:
    session.load(faulty)
    first = base(session)
    thread = when(
        lambda: session.recording.last_step > first + 3,
        lambda: strike(os.getpid(), signal.SIGINT, fault),
    )
    with pytest.raises(KeyboardInterrupt):
        session.run(1_000_000)
    assert time.time_ns() - int(fault.read_text()) < LIMIT_SECONDS * 1e9
    thread.join()
    for rank in (0, 1):
        whole(session, rank, first, session.recording.last_step + 1)
    assert session.failure is None
    last = session.recording.last_step
    session.run(2)
    assert session.recording.last_step == last + 2
    assert len(set(session.checksums().values())) == 1


def test_ctrl_c_on_a_hung_rank_says_which_and_where(session: Session, fault: Path) -> None:
    session.load(faulty, mode="hang")
    first = base(session)
    thread = when(
        lambda: session.recording.last_step == first + FAULT_STEP,
        lambda: strike(os.getpid(), signal.SIGINT, fault),
    )
    error = failing_run(session, fault)
    thread.join()
    assert (error.rank, error.step) == (1, first + FAULT_STEP)
    assert "interrupted" in error.reason
    assert "in batch" in error.rank_traceback
    assert "in allreduce" in error.others[0]
    works_again(session)


def test_stop_of_hung_ranks_says_which_and_where(session: Session) -> None:
    session.load(faulty, mode="hang", where=0)
    first = base(session)
    session.start()
    until(lambda: session.recording.last_step >= first + FAULT_STEP, seconds=30)
    begin = time.monotonic()
    with pytest.raises(RankFailed) as caught:
        session.stop()
    assert time.monotonic() - begin < LIMIT_SECONDS
    assert caught.value.rank == 0 and "in batch" in caught.value.rank_traceback
    works_again(session)


def test_a_failure_in_the_background_is_said_at_once_and_raised_later(
    session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    session.load(faulty, mode="exception")
    session.start()
    until(lambda: session.failure is not None, seconds=30)
    with pytest.raises(RankFailed, match="no such sample"):
        session.stop()
    assert "ddpviz: rank 1 failed" in capfd.readouterr().err
    works_again(session)


def test_a_workload_that_one_rank_cannot_build_fails_on_that_rank(session: Session) -> None:
    with pytest.raises(RankFailed) as caught:
        session.load(cannot_build, rank_that_fails=1)
    assert caught.value.rank == 1 and "OSError: no such file" in caught.value.reason
    session.restart()
    session.load(faulty).run(2)


def test_a_workload_that_no_rank_can_build_leaves_the_session_usable(session: Session) -> None:
    pids = session.pids
    with pytest.raises(RankFailed, match="put it right and load it again"):
        session.load(cannot_build)
    with pytest.raises(SessionError, match="no workload is loaded"):
        session.run(1)
    session.load(faulty).run(2)
    assert session.pids == pids


def test_a_hung_session_can_be_restarted_while_it_trains(
    session: Session, impatient: None, capfd: pytest.CaptureFixture[str]
) -> None:
    session.load(faulty, mode="hang")
    first = base(session)
    session.start()
    until(lambda: session.recording.last_step >= first + FAULT_STEP, seconds=30)
    works_again(session)
    said = capfd.readouterr().err
    assert f"rank 1 failed in step {FAULT_STEP}" in said and "it did not end its step" in said
