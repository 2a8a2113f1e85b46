"""Jobs that hang: who is in which collective, who has not entered it, and at which line it is."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ddpviz
from ddpviz.analysis.waiting import Waiting, told
from ddpviz.cli.main import main
from ddpviz.events import Cause, Kind, Stall
from ddpviz.recording import Recording
from tests.audit.expected import Expected
from tests.waiting import until

#: Seconds after which a rank of these jobs notes what it is in.
LIMIT_S = 0.4
FOR_EVER_S = 3600


def train(rank: int, world_size: int, out: str, then: Callable[[int, Any], None]) -> None:
    """A rank of a job that trains three steps, and then does something."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(
        "gloo", init_method=f"file://{out}.rendezvous", rank=rank, world_size=world_size
    )
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        ddp(torch.ones(2, 8)).sum().backward()
        optimizer.step()

    # What is raised does not end the process: it has an interpreter, or other threads.
    with contextlib.suppress(ValueError), ddpviz.attach(ddp, out, stall_s=LIMIT_S) as attachment:
        attachment.recorder.flush_interval_s = 0.1
        for _ in range(3):
            step()
        then(rank, step)
    time.sleep(FOR_EVER_S)


def validate() -> None:
    time.sleep(FOR_EVER_S)


def sleeps(rank: int, step: Callable[[], None]) -> None:
    if rank == 1:
        validate()
    step()


def other_collective(rank: int, step: Callable[[], None]) -> None:
    import torch
    import torch.distributed as dist

    if rank == 1:
        dist.broadcast(torch.ones(4), 0)
    else:
        dist.barrier()


def ends(rank: int, step: Callable[[], None]) -> None:
    if rank == 0:
        step()


def raises(rank: int, step: Callable[[], None]) -> None:
    if rank == 1:
        raise ValueError("no more data")
    step()


def evaluates(rank: int, step: Callable[[], None]) -> None:
    """Rank 0 alone, and for longer than the others like to wait."""
    import torch

    def evaluate(model: torch.nn.Module, batches: int) -> None:
        with torch.no_grad():
            for _ in range(batches):
                model(torch.ones(2, 8))
                time.sleep(0.001)

    if rank == 0:
        evaluate(torch.nn.Linear(8, 4).eval(), 10**9)
    step()


def goes_on(rank: int, step: Callable[[], None]) -> None:
    """Not a hang: one rank is late by more than the limit, and comes."""
    if rank == 1:
        time.sleep(4 * LIMIT_S)
    step()


@contextmanager
def job(then: Callable[[int, Any], None], world_size: int) -> Iterator[tuple[Path, list[int]]]:
    """Ranks that run, and are killed at the end: (directory, process ids)."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        context = multiprocessing.get_context("forkserver")
        ranks = [
            context.Process(target=train, args=(rank, world_size, str(out), then), daemon=True)
            for rank in range(world_size)
        ]
        for process in ranks:
            process.start()
        try:
            yield out, [process.pid or 0 for process in ranks]
        finally:
            for process in ranks:
                process.kill()
                process.join()


def hung(out: Path, told: Callable[[Waiting], bool]) -> Waiting:
    """What everyone waits for, once it is told."""
    found: list[Waiting] = []

    def there() -> bool:
        try:
            found.append(ddpviz.load(out).waiting())
        except (FileNotFoundError, ValueError):  # its first files are being made
            return False
        return told(found[-1])

    until(there, 60)
    return found[-1]


def there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def every_line(found: Waiting) -> bool:
    return bool(found.ranks) and all(one.at is not None for one in found.ranks)


def test_who_waits_in_what_and_where_the_missing_rank_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with job(sleeps, 3) as (out, pids):
        before = hung(out, every_line)
        (live,) = ddpviz.load(out).audit()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not any(map(there, pids)), 60)
        after = ddpviz.load(out).waiting()
        assert main(["show", str(out), "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)["waiting"]
        assert main(["show", str(out)]) == 0
        text = capsys.readouterr().out
        (finding,) = ddpviz.load(out).audit()
    bucket = (after.ranks[0].collective,)
    Expected("hang", 3, (1,), bucket, "failure", "2 in it, 1 has not entered it").check(finding)
    Expected("hang", 3, (1,), bucket, "note").check(live)
    assert finding.what == after.reason
    states = {one.rank: one.state for one in after.ranks}
    assert states == {0: "in it", 1: "has not entered it", 2: "in it"}
    assert after.doing.keys() == {0, 2} and len(set(after.doing.values())) == 1
    in_it = after.ranks[0]
    assert in_it.collective.endswith("(bucket 0)")
    assert in_it.bytes == (8 * 4 + 4) * 4
    assert sorted(in_it.parameters) == ["bias", "weight"]
    missing = after.ranks[1].at
    assert missing is not None
    assert Path(missing.file).name == Path(__file__).name and missing.function == "validate"
    assert missing.text == "time.sleep(FOR_EVER_S)"
    who = f"rank 1 has not entered it, it is at {Path(__file__).name}:{missing.line} in validate"
    assert after.reason.startswith("ranks 0, 2 are in allreduce")
    assert after.reason.endswith(who) and before.reason.endswith(who)
    assert shown["reason"] == after.reason
    assert [row["state"] for row in shown["ranks"]] == list(states.values())
    assert told(after) in text
    table = after.table()
    assert table["function"].tolist()[1] == "validate" and table["line"][1] == missing.line


def test_different_collectives_are_named_side_by_side() -> None:
    with job(other_collective, 2) as (out, _):
        found = hung(out, every_line)
        (finding,) = ddpviz.load(out).audit()
    mine, other = found.ranks
    names = (mine.collective, f"{other.collective}, 16 B")
    Expected("mismatched-collectives", 3, (0, 1), names, "failure", "at the same place").check(
        finding
    )
    assert (mine.state, other.state) == ("in it", "is in another")
    assert mine.collective.startswith("barrier") and other.collective.startswith("broadcast")
    assert other.bytes == 16
    assert f"rank 1 is in another one there: {other.collective}, 16 B" in found.reason
    assert mine.at is not None and mine.at.text == "dist.barrier()"


def test_a_rank_that_has_ended_will_not_come() -> None:
    with job(ends, 2) as (out, _):
        found = hung(out, lambda found: any(one.state == "had ended" for one in found.ranks))
        assert [one.kind for one in ddpviz.load(out).audit()] in (["step-counts"], ["hang"])
    assert [one.state for one in found.ranks] == ["in it", "had ended"]
    assert found.reason.endswith("rank 1 had ended its recording and will not enter it")


def test_a_rank_that_failed_will_not_come() -> None:
    with job(raises, 2) as (out, _):
        found = hung(out, lambda found: any(one.state == "failed" for one in found.ranks))
        (finding,) = ddpviz.load(out).audit()
    Expected("rank-failed", 3, (1,), (), "failure", "no more data").check(finding)
    assert finding.what == "rank 1 failed: ValueError: no more data"
    assert [one.state for one in found.ranks] == ["in it", "failed"]


def test_a_rank_that_evaluates_alone_is_said_to_be_there() -> None:
    def there(found: Waiting) -> bool:
        ranks = {one.rank: one for one in found.ranks}
        return (
            0 in ranks and ranks[0].at is not None and "in it" in {one.state for one in found.ranks}
        )

    with job(evaluates, 2) as (out, _):
        found = hung(out, there)
        (finding,) = ddpviz.load(out).audit()
    assert (finding.kind, finding.ranks) == ("hang", (0,))
    states = {one.rank: (one.state, one.at) for one in found.ranks}
    assert states[1][0] == "in it" and states[0][0] == "has not entered it"
    at = states[0][1]
    assert at is not None and Path(at.file).name == Path(__file__).name
    assert at.function.endswith("evaluate")
    assert f"rank 0 has not entered it, it is at {Path(__file__).name}:" in found.reason


def test_what_goes_on_is_no_hang() -> None:
    """Both ranks noted a stall; it is over, and nobody waits."""

    def named(recording: Recording) -> list[str]:
        """Causes of the collective that rank 0's stall in step 3 was in."""
        of_rank = [one for one in recording.notes(Stall, rank=0) if one.step == 3]
        sequences = [one.sequence for one in of_rank if one.sequence >= 0][:1]
        found = recording.collectives()
        mine = found[(found["rank"] == 0) & found["sequence"].isin(sequences)]
        return list(mine["cause"])

    with job(goes_on, 2) as (out, _):
        until(lambda: (out / "rank-0001.notes.jsonl").exists(), 60)
        until(lambda: '"ended"' in (out / "rank-0001.notes.jsonl").read_text(), 60)
        until(lambda: '"ended"' in (out / "rank-0000.notes.jsonl").read_text(), 60)
        # A batch's notes are written before its records.
        done = Kind.COLLECTIVE_DONE
        until(lambda: all(len(ddpviz.load(out).records(done, one, 3)) for one in (0, 1)), 30)
        until(lambda: named(ddpviz.load(out)) == [Cause.BUCKET.name.lower()], 30)
        recording = ddpviz.load(out)
    stalls = recording.notes(Stall)
    assert {one.rank for one in stalls} == {0, 1}
    waited = next(one for one in stalls if (one.rank, one.step) == (0, 3) and one.sequence >= 0)
    assert waited.time_ns - waited.since_ns >= LIMIT_S * 1e9
    assert recording.waiting() == Waiting("", ())
    assert recording.audit() == ()


SCRIPT = """
import os, sys, time
import torch, torch.distributed as dist
import ddpviz
rank, out = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{out}.rendezvous", rank=rank, world_size=2)
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
with ddpviz.attach(ddp, out):
    for step in range(2):
        ddp(torch.ones(2, 8)).sum().backward()
        torch.optim.SGD(ddp.parameters(), lr=0.1).step()
    print("trained", flush=True)
    if rank == 0:
        dist.barrier()
    time.sleep(3600)
"""


def test_a_signal_prints_it_while_the_training_thread_hangs(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "run")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        for one in ranks:
            assert one.stdout is not None and one.stdout.readline() == "trained\n"
        until(lambda: _in_barrier(tmp_path / "run"), 60)
        waiting, idle = ranks
        assert waiting.stderr is not None
        waiting.send_signal(signal.SIGUSR1)
        told = [waiting.stderr.readline() for _ in range(2)]
        assert told[0].startswith("ddpviz: rank 0 is in barrier ")
        assert "rank 1 has not entered it" in told[0]
        assert waiting.poll() is None and idle.poll() is None
        idle.send_signal(signal.SIGUSR1)  # its own line is known at once
        assert idle.stderr is not None
        assert f"it is at train.py:{SCRIPT[: SCRIPT.index('time.sleep')].count(chr(10)) + 1}" in (
            idle.stderr.readline()
        )
    finally:
        for one in ranks:
            one.kill()
            one.communicate()


def _in_barrier(out: Path) -> bool:
    return any(one.collective.startswith("barrier") for one in ddpviz.load(out).waiting().ranks)
