"""One task on all ranks at once: sent, its batches taken in, its outcomes told apart.

A rank's task ends in one of four ways: with a value, with a problem, because its process ended,
or because it hung and was killed. Nothing here waits for ever once one rank has gone wrong.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ipyparallel import serialize
from ipyparallel.error import EngineError, RemoteError

from ddpviz.engines import cluster, worker
from ddpviz.engines.feed import Feed
from ddpviz.engines.ranks import EngineInfo, Problem, Report

#: After the first rank went wrong, the others get this long: a peer of a dead rank sees its
#: connection close within milliseconds, a peer of a living one waits in its collective for ever.
_GRACE_SECONDS = 2.0
_POLL_SECONDS = 0.05
_LATE_BATCH_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class Member:
    """A rank and the engine it is on."""

    rank: int
    engine: int
    info: EngineInfo


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a rank's task ended. ``time_ns``: when that was seen.

    ``ended``: how its process ended, in words; empty while it runs. ``hung``: it did not come
    back and was killed by us; ``stack``: Python's stack before that, or of a fatal signal.
    """

    report: Report | None
    time_ns: int
    ended: str = ""
    hung: bool = False
    stack: str = ""

    @property
    def fine(self) -> bool:
        return self.report is not None and self.report.problem is None


def call(
    engines: cluster.Engines,
    members: Sequence[Member],
    name: str,
    arguments: Callable[[int], tuple[Any, ...]] = lambda rank: (),
    *,
    feed: Feed | None = None,
    give_up: Callable[[], bool] = lambda: False,
    directory: Path | None = None,
) -> dict[int, Outcome]:
    """Run ``worker.call(name, *arguments(rank))`` on every member; outcomes by rank.

    ``give_up`` is asked now and then: True ends the task, and what has not come back is killed.
    ``directory``: where ranks leave their stacks.
    """
    asked = {
        member.rank: engines.client[member.engine].apply_async(
            worker.call, name, *arguments(member.rank)
        )
        for member in members
    }
    for rank, result in asked.items():
        _listen(rank, result, feed)
    waiting = {member.rank: member for member in members}
    outcomes: dict[int, Outcome] = {}
    deadline = float("inf")
    while waiting:
        futures = {_message(asked[rank]): rank for rank in waiting}
        done, _ = concurrent.futures.wait(futures, _POLL_SECONDS, "FIRST_COMPLETED")
        for future in done:
            rank = futures[future]
            outcomes[rank] = _outcome(engines, waiting.pop(rank), asked[rank], directory)
        for rank, member in list(waiting.items()):
            if cluster.dead(engines, member.engine, member.info):
                outcomes[rank] = _death(engines, waiting.pop(rank), directory)
        if give_up():
            deadline = 0.0
        elif deadline == float("inf") and not all(one.fine for one in outcomes.values()):
            deadline = time.monotonic() + _GRACE_SECONDS
        if waiting and time.monotonic() > deadline:
            outcomes |= _kill(engines, list(waiting.values()), directory)
            waiting.clear()
    if feed is not None:
        _complete(engines, members, outcomes, feed)
    return outcomes


def _message(result: Any) -> Any:
    """The future of the reply itself; an AsyncResult is done a moment later."""
    return result._children[0]


def _listen(rank: int, result: Any, feed: Feed | None) -> None:
    """Take what a task publishes while it runs: batches, and what the user's code prints.

    Read message by message: ``AsyncResult.data`` keeps only the last of each key.
    """

    def heard(message: dict[str, Any]) -> None:
        kind = message["header"]["msg_type"]
        if kind == "data_message" and feed is not None:
            data, _ = serialize.deserialize_object(message["buffers"])
            if "ddpviz" in data:
                feed.receive(data["ddpviz"])
        elif kind == "stream":
            out = sys.stderr if message["content"]["name"] == "stderr" else sys.stdout
            for line in message["content"]["text"].splitlines():
                print(f"[rank {rank}] {line}", file=out, flush=True)

    _message(result).iopub_callbacks.append(heard)


def _outcome(
    engines: cluster.Engines, member: Member, result: Any, directory: Path | None
) -> Outcome:
    try:
        return Outcome(result.get(1), time.time_ns())
    except RemoteError as error:
        if error.ename == EngineError.__name__:  # the hub noticed first that the engine is gone
            return _death(engines, member, directory)
        # It failed outside the task: an import, a pickle.
        problem = Problem(time.time_ns(), -1, "", f"{error.ename}: {error.evalue}")
        return Outcome(Report(problem=problem), time.time_ns())


def _death(engines: cluster.Engines, member: Member, directory: Path | None) -> Outcome:
    ended = cluster.ending(engines, member.info)
    return Outcome(None, time.time_ns(), ended, stack=_stack(directory, member.rank))


def _kill(
    engines: cluster.Engines, members: list[Member], directory: Path | None
) -> dict[int, Outcome]:
    """End ranks that hang, after asking where they are. SIGINT would not reach C code."""
    for member in members:
        cluster.signal_engine(engines, member.engine, member.info, signal.SIGUSR1)
    if directory is not None:
        time.sleep(0.3)  # faulthandler writes from the signal handler; the ring is flushed too
    for member in members:
        cluster.signal_engine(engines, member.engine, member.info, signal.SIGKILL)
    now_ns = time.time_ns()
    return {
        member.rank: Outcome(None, now_ns, hung=True, stack=_stack(directory, member.rank))
        for member in members
    }


def _stack(directory: Path | None, rank: int) -> str:
    """What faulthandler left of this rank: the last dump's thread that runs the task."""
    if directory is None:
        return ""
    try:
        text = worker.stack_path(directory, rank).read_text()
    except OSError:
        return ""
    # Most recent call first: what comes after our first frame is ours and ipyparallel's.
    ours = os.path.join(os.path.dirname(worker.__file__), "")
    threads = [part for part in text.split("\n\n") if worker.__file__ in part]
    lines = threads[-1].strip().splitlines() if threads else []
    last = next((i for i, line in enumerate(lines) if ours in line), len(lines))
    return "\n".join(lines[: last + 1])


def _complete(
    engines: cluster.Engines, members: Sequence[Member], outcomes: dict[int, Outcome], feed: Feed
) -> None:
    """Wait a moment for batches that were sent and have not come; then ask for them again."""
    sent = {rank: one.report.sent for rank, one in outcomes.items() if one.report is not None}
    deadline = time.monotonic() + _LATE_BATCH_SECONDS
    while any(feed.missing(*item) for item in sent.items()) and time.monotonic() < deadline:
        time.sleep(0.01)
    lost = {rank: found for rank, count in sent.items() if (found := feed.missing(rank, count))}
    if not lost:
        return
    behind = [member for member in members if member.rank in lost]
    for outcome in call(engines, behind, "again", lambda rank: (lost[rank],)).values():
        if outcome.report is not None:
            for data in outcome.report.value or ():
                feed.receive(data)
    for rank in lost:
        feed.release(rank)
