"""Code of the user's on two real ranks: ``Session.execute``."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

import ddpviz
from ddpviz.engines import Session, SessionError
from ddpviz.engines import cluster as clusters
from ddpviz.events import Cause, Configuration, Kind, Module
from tests.waiting import until

#: Where ddpviz itself lies; a checkout may be called the same.
PACKAGE = str(Path(ddpviz.__file__).parent)
#: The promise; a bound, not a measurement.
CANCEL_SECONDS = 10


class Printed:
    """What ranks print, by rank and stream, piece by piece."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, str, str]] = []

    def __call__(self, rank: int, stream: str, text: str) -> None:
        self.pieces.append((rank, stream, text))

    def text(self, rank: int, stream: str = "stdout") -> str:
        return "".join(piece[2] for piece in self.pieces if piece[:2] == (rank, stream))

    def wait_for(self, text: str, rank: int = 0) -> None:
        until(lambda: text in self.text(rank), seconds=30)


def done(session: Session, code: str, ranks: list[int] | None = None) -> Printed:
    """Run it to its end, which is a good one."""
    printed = Printed()
    execution = session.execute(code, ranks, printed)
    assert execution.wait(60) and execution.done()
    assert execution.errors == {}
    return printed


def test_names_are_in_place_and_the_last_value_is_printed(session: Session) -> None:
    printed = done(session, "print(rank, world_size, device)\nx = 40 + rank\nx")
    assert [printed.text(rank) for rank in (0, 1)] == ["0 2 cpu\n40\n", "1 2 cpu\n41\n"]
    assert done(session, "x + 1").text(1) == "42\n"  # what was left is there
    assert done(session, "x;").text(1) == ""
    assert "<rank 1 of 2, gloo on cpu>" in done(session, "session").text(1)
    assert done(session, "dist.get_rank() == session.rank").text(1) == "True\n"


def test_it_runs_on_the_ranks_asked_for_and_nowhere_else(session: Session) -> None:
    printed = done(session, "print('here')", [1])
    assert printed.text(1) == "here\n" and printed.text(0) == ""
    for wrong in ([2], [], [-1]):
        with pytest.raises(ValueError, match="expected some of 0 to 1"):
            session.execute("1", wrong)


def test_without_a_callback_it_prints_here(
    session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    assert session.execute("import sys; print('a'); print('b', file=sys.stderr)").wait(30)
    said = capfd.readouterr()
    assert "[rank 1] a" in said.out and "[rank 1] b" in said.err


def test_output_comes_while_the_code_still_runs(session: Session, tmp_path: Path) -> None:
    printed, end = Printed(), tmp_path / "end"
    code = (
        "import os, time\n"
        "print('first', flush=True)\n"
        f"while not os.path.exists({str(end)!r}): time.sleep(0.01)\n"
        "print('second')"
    )
    execution = session.execute(code, [0], printed)
    printed.wait_for("first")
    assert not execution.done() and printed.text(0) == "first\n"
    end.touch()
    assert execution.wait(30)
    assert printed.text(0) == "first\nsecond\n"


def test_ddp_that_is_built_there_is_recorded(session: Session) -> None:
    before = session.recording.last_step
    modules = len(session.recording.notes(Module, rank=1))
    done(
        session,
        "class Net(torch.nn.Linear): pass\n"
        "ddp = torch.nn.parallel.DistributedDataParallel(Net(4, 4), bucket_cap_mb=3)\n"
        "optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)\n"
        "for i in range(4):\n"
        "    ddp(torch.ones(2, 4)).sum().backward()\n"
        "    optimizer.step()\n",
    )
    assert len(session.recording.notes(Module, rank=1)) == modules + 1
    assert session.recording.notes(Module, rank=1)[-1].name == "Net"
    values = session.recording.notes(Configuration, rank=1)[-1].values
    assert values["bucket_bytes_cap"] == 3 * 2**20
    assert session.recording.last_step == before + 4
    launched = session.recording.records(kinds=Kind.COLLECTIVE_LAUNCHED, ranks=1)
    assert (launched[launched["step"] == before + 4]["cause"] == Cause.BUCKET).sum() == 1
    assert session.recording.missing == {}
    # And training goes on after it, with steps of numbers of their own.
    session.load("mlp").run(2)
    assert session.recording.last_step == before + 6


def test_the_loaded_workload_is_at_hand(session: Session) -> None:
    session.load("mlp", layers=2).run(1)
    printed = done(session, "type(session.ddp).__name__, len(session.model), session.recorder.rank")
    assert printed.text(1) == "('DistributedDataParallel', 3, 1)\n"


def test_an_error_is_the_ranks_own_with_the_users_lines_only(session: Session) -> None:
    code = "def broken():\n    raise KeyError('k')\nif rank == 1:\n    broken()\n'fine'"
    printed = Printed()
    execution = session.execute(code, None, printed)
    assert execution.wait(30)
    assert printed.text(0) == "'fine'\n"
    assert set(execution.errors) == {1}
    text = execution.errors[1].text()
    assert text.splitlines()[-1] == "KeyError: 'k'"
    assert re.findall(r'File "(<ddp cell \d+>)", line (\d+)', text)[-1][1] == "2"
    assert PACKAGE not in text and "raise KeyError('k')" in text
    assert session.failure is None and done(session, "1 + rank").text(1) == "2\n"


def test_errors_of_torch_do_not_show_the_recorders_wraps(session: Session) -> None:
    code = "torch.nn.parallel.DistributedDataParallel(torch.nn.ReLU())"
    execution = session.execute(code, None, Printed())
    assert execution.wait(30)
    files = {frame[0] for frame in execution.errors[0].frames}
    assert not any(file.startswith(PACKAGE) for file in files)
    assert any(file.startswith("<ddp cell") for file in files)


def test_a_syntax_error_shows_the_place(session: Session) -> None:
    execution = session.execute("x = (", [0], Printed())
    assert execution.wait(30)
    problem = execution.errors[0]
    assert problem.frames == () and "SyntaxError: '(' was never closed" in problem.text()
    assert "x = (" in problem.text()


def test_source_and_pickle_of_what_a_cell_defines_work(session: Session) -> None:
    printed = done(
        session,
        "import inspect, pickle\n"
        "class Thing:\n"
        "    there = 'yes'\n"
        "print(pickle.loads(pickle.dumps(Thing())).there)\n"
        "def f():\n"
        "    return 'source'\n"
        "print(inspect.getsource(f).splitlines()[1].strip())\n"
        "__name__",
    )
    assert printed.text(0) == "yes\nreturn 'source'\n'__main__'\n"


def test_two_ranks_may_run_different_code_and_meet(session: Session) -> None:
    printed = Printed()
    one = session.execute("t = torch.ones(1)\ndist.all_reduce(t)\nt.item()", [0], printed)
    assert session.status().status == "waiting"
    with pytest.raises(SessionError, match="a cell runs on rank 0 already"):
        session.execute("1", [0])
    other = session.execute("dist.all_reduce(torch.full((1,), 4.0))", [1], printed)
    assert one.wait(30) and other.wait(30)
    assert printed.text(0) == "5.0\n" and not one.errors and not other.errors


@pytest.mark.parametrize("after_ms", [0, 1, 3, 10])
def test_a_cell_that_is_cancelled_as_it_begins_ends_nothing_else(
    session: Session, after_ms: int
) -> None:
    session.load("mlp")
    running = session.execute("import time; time.sleep(60)", [1], Printed())
    time.sleep(after_ms / 1e3)
    running.cancel()
    assert running.wait(30) and session.failure is None
    assert "KeyboardInterrupt" in running.errors[1].message
    session.run(1)


def test_training_and_cells_exclude_each_other(session: Session) -> None:
    session.load("mlp")
    session.start()
    with pytest.raises(SessionError, match="training runs: call stop"):
        session.execute("1")
    session.stop()
    running = session.execute("import time; time.sleep(60)", [1], Printed())
    for call in (session.run, session.configure):
        with pytest.raises(SessionError, match="a cell runs on rank 1: wait for it, or cancel it"):
            call(1) if call == session.run else call(bucket_cap_mb=3)  # type: ignore[arg-type]
    assert [one.state for one in session.status().ranks] == ["idle", "in a cell"]
    begin = time.monotonic()
    session.stop()  # also ends cells
    assert time.monotonic() - begin < CANCEL_SECONDS
    assert running.done() and running.errors[1].message == "KeyboardInterrupt"
    session.run(1)


def test_python_code_is_cancelled_and_the_rank_lives_on(session: Session) -> None:
    pids = session.pids
    printed = Printed()
    execution = session.execute("print('in', flush=True)\nwhile True: pass", None, printed)
    for rank in (0, 1):
        printed.wait_for("in", rank)
    begin = time.monotonic()
    execution.cancel()
    execution.cancel()
    assert execution.wait(CANCEL_SECONDS)
    assert time.monotonic() - begin < CANCEL_SECONDS
    assert {one.message for one in execution.errors.values()} == {"KeyboardInterrupt"}
    execution.cancel()  # done: fine
    assert session.pids == pids and session.failure is None
    assert done(session, "rank").text(1) == "1\n"


def test_a_collective_that_only_one_rank_entered_is_cancelled(session: Session) -> None:
    def launched() -> int:
        return len(session.recording.records(kinds=Kind.COLLECTIVE_LAUNCHED, ranks=0))

    before = launched()
    execution = session.execute("dist.all_reduce(torch.ones(3))", [0], Printed())
    until(lambda: launched() > before, seconds=30)
    begin = time.monotonic()
    execution.cancel()
    assert execution.wait(CANCEL_SECONDS)
    assert time.monotonic() - begin < CANCEL_SECONDS
    message = execution.errors[0].message
    assert re.search(r"in allreduce \d+ \(user\): it was cancelled and did not end", message)
    assert "session.restart()" in message
    status = session.status()
    assert status.status == "failed" and status.ranks[0].state == "dead"
    with pytest.raises(SessionError, match="it was cancelled"):
        session.execute("1")
    session.restart()
    assert done(session, "rank").text(1) == "1\n"


@pytest.mark.parametrize("ranks", [[0], None])
def test_a_rank_that_dies_in_a_cell_ends_the_others(
    session: Session, ranks: list[int] | None
) -> None:
    printed = Printed()
    waiting = session.execute("import time\ntime.sleep(600)", [1], printed) if ranks else None
    code = "import os\nprint('in', flush=True)\nif rank == 0: os._exit(7)\ndist.barrier()"
    execution = session.execute(code, ranks, printed)
    assert execution.wait(30)
    assert "its process exited with status 7" in execution.errors[0].message
    if waiting is not None:
        assert waiting.wait(30)
        assert "the session failed" in waiting.errors[1].message
    assert session.failure is not None and session.failure.rank == 0
    session.restart()
    session.load("mlp").run(1)


def test_a_killed_idle_rank_is_seen_by_the_status_and_by_the_next_cell(session: Session) -> None:
    os.kill(session.pids[1], signal.SIGKILL)
    until(lambda: session.status().ranks[1].state == "dead")
    execution = session.execute("1", None, Printed())
    assert execution.wait(30)
    assert "killed by SIGKILL" in execution.errors[1].message
    assert session.status().status == "failed"
    session.restart()


def test_a_restart_does_not_wait_for_a_cell_that_hangs(session: Session) -> None:
    execution = session.execute("dist.barrier()", [1], Printed())
    session.restart()
    assert execution.done() and execution.errors
    assert done(session, "world_size").text(0) == "2\n"


def test_a_session_that_lost_its_ranks_runs_no_cell_silently(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_come(*arguments: object) -> None:
        raise SessionError("found 0 engines, expected 2")

    with monkeypatch.context() as patch:
        patch.setattr(clusters, "restart", none_come)
        with pytest.raises(SessionError, match="found 0 engines"):
            session.restart()
    execution = session.execute("1", None, Printed())
    assert execution.wait(30)
    assert {"session without ranks" in one.message for one in execution.errors.values()} == {True}
    assert set(execution.errors) == {0, 1}
    session.restart()
    assert done(session, "1 + rank").text(1) == "2\n"
