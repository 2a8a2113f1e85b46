"""One task on all ranks at once: sent, its batches taken in, its outcomes told apart.

A rank's task ends in one of four ways: with a value, with a problem, because its process ended,
or because it hung and was killed. Nothing here waits for ever once one rank has gone wrong.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ddpviz.engines import cluster, wire, worker
from ddpviz.engines.feed import Feed
from ddpviz.engines.ranks import EngineInfo, Problem, Report

#: After the first rank went wrong, the others get this long: a peer of a dead rank sees its
#: connection close within milliseconds, a peer of a living one waits in its collective for ever.
_GRACE_SECONDS = 2.0
#: From a SIGKILL to the end of the process: milliseconds here, a message and back elsewhere.
_DYING_SECONDS = 5.0
_POLL_SECONDS = 0.05
_LATE_BATCH_SECONDS = 0.5
#: What an engine printed before it answered comes on another way, through two more processes.
_LATE_OUTPUT_SECONDS = 5.0
_AGAIN_SECONDS = 10.0


#: Takes (rank, "stdout" or "stderr", text).
Output = Callable[[int, str, str], None]


@dataclasses.dataclass(frozen=True)
class Member:
    """A rank and the engine it is on."""

    rank: int
    engine: int
    info: EngineInfo


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a rank's task ended. ``time_ns``: when that was seen, by this process's clock.

    ``ended``: without a report, how it ended, in words. ``hung``: it did not come back. ``idle``:
    its process had ended before it was asked. ``gone``: its process is known to have ended.
    ``stack``: Python's stack before we killed it, or of a fatal signal.
    """

    report: Report | None
    time_ns: int
    ended: str = ""
    hung: bool = False
    idle: bool = False
    gone: bool = False
    stack: str = ""

    @property
    def fine(self) -> bool:
        return self.report is not None and self.report.problem is None


#: Takes (rank, outcome).
Heard = Callable[[int, Outcome], None]


def call(
    engines: cluster.Engines,
    members: Sequence[Member],
    name: str,
    arguments: Callable[[int], tuple[Any, ...]] = lambda rank: (),
    *,
    feed: Feed,
    give_up: Callable[[], str] = str,
    directory: Path | None = None,
    limit_s: float = math.inf,
    kill: bool = True,
    output: Output | None = None,
    heard: Heard | None = None,
    idle: bool = True,
) -> dict[int, Outcome]:
    """Run ``worker.call(name, *arguments(rank))`` on every member; outcomes by rank.

    ``feed`` takes the batches. The rest: see :func:`ask`.
    """

    def given(rank: int) -> tuple[Any, ...]:
        return name, *arguments(rank)

    outcomes = ask(
        engines,
        members,
        worker.call,
        given,
        feed=feed,
        give_up=give_up,
        directory=directory,
        limit_s=limit_s,
        kill=kill,
        output=output,
        heard=heard,
        idle=idle,
    )
    _complete(engines, members, outcomes, feed, give_up)
    return outcomes


def ask(
    engines: cluster.Engines,
    members: Sequence[Member],
    function: Callable[..., Any],
    arguments: Callable[[int], tuple[Any, ...]],
    *,
    feed: Feed | None = None,
    give_up: Callable[[], str] = str,
    directory: Path | None = None,
    limit_s: float = math.inf,
    kill: bool = True,
    output: Output | None = None,
    heard: Heard | None = None,
    idle: bool = True,
) -> dict[int, Outcome]:
    """Run a function on every member; outcomes by rank.

    ``give_up`` is asked now and then: a reason ends the task, as ``limit_s`` does. ``kill``:
    whether what has not come back is killed then, or left to what it does. ``directory``: where
    ranks leave their stacks. ``output``: takes what ranks print, else it is printed here.
    ``heard``: told of each outcome at once. ``idle``: whether a rank that
    has ended by now had nothing to do until then. What was printed is out when this returns.
    """
    outcomes: dict[int, Outcome] = {}
    waiting: dict[int, tuple[Member, Any]] = {}
    heard_from: list[Any] = []
    for member in members:
        given = arguments(member.rank)
        try:
            reply = wire.send(engines.client, member.engine, function, given)
        except wire.EngineGone:
            outcomes[member.rank] = _lost(engines, member, directory, idle)
            continue
        _listen(engines.client, member.rank, reply, feed, output)
        waiting[member.rank] = member, reply
    deadline, in_a_hurry = time.monotonic() + limit_s, False
    while waiting:
        replies = [reply for _, reply in waiting.values()]
        concurrent.futures.wait(replies, _POLL_SECONDS, "FIRST_COMPLETED")
        for rank, (member, reply) in list(waiting.items()):
            if reply.done():
                outcomes[rank] = _outcome(engines, member, reply, directory)
                if outcomes[rank].report is not None:
                    heard_from.append(reply)
            elif cluster.dead(engines, member.engine, member.info):
                outcomes[rank] = _death(engines, member, directory)
            else:
                continue
            del waiting[rank]
            if heard is not None:
                heard(rank, outcomes[rank])
        if give_up():
            deadline = -math.inf
        elif not in_a_hurry and not all(one.fine for one in outcomes.values()):
            deadline, in_a_hurry = min(deadline, time.monotonic() + _GRACE_SECONDS), True
        if waiting and time.monotonic() > deadline:
            left = [member for member, _ in waiting.values()]
            outcomes |= _kill(engines, left, directory) if kill else _leave_alone(left)
            break
    wire.drain(heard_from, _LATE_OUTPUT_SECONDS)
    return outcomes


def deaths(
    engines: cluster.Engines, members: Sequence[Member], directory: Path, idle: bool = True
) -> dict[int, Outcome]:
    """Outcomes of those whose processes have ended. ``idle``: while nothing was asked of them."""
    return {
        member.rank: _death(engines, member, directory, idle)
        for member in members
        if cluster.dead(engines, member.engine, member.info)
    }


def _listen(client: Any, rank: int, reply: Any, feed: Feed | None, output: Output | None) -> None:
    """Take batches in, and show what the user's code prints."""

    def data(found: dict[str, Any]) -> None:
        if feed is not None and "ddpviz" in found:
            feed.receive(found["ddpviz"])

    def text(stream: str, printed: str) -> None:
        if output is not None:
            output(rank, stream, printed)
            return
        out = sys.stderr if stream == "stderr" else sys.stdout
        for line in printed.splitlines():
            print(f"[rank {rank}] {line}", file=out, flush=True)

    wire.listen(client, reply, data, text)


def _outcome(
    engines: cluster.Engines, member: Member, reply: Any, directory: Path | None
) -> Outcome:
    try:
        value = wire.answer(reply)
    except wire.EngineGone:  # the hub noticed first
        return _lost(engines, member, directory)
    except RuntimeError as error:  # it failed outside the task: an import, a pickle
        value = Report(problem=Problem(time.time_ns(), -1, "", str(error)))
    return Outcome(value if isinstance(value, Report) else Report(value), time.time_ns())


def _lost(
    engines: cluster.Engines, member: Member, directory: Path | None, idle: bool = False
) -> Outcome:
    """Of an engine that the hub has no more."""
    _wait_dead(engines, [member], 1.0)
    if cluster.dead(engines, member.engine, member.info):
        return _death(engines, member, directory, idle)
    # Stopped for long (a debugger, a suspended machine), it missed the hub's heartbeats.
    outcome = _kill(engines, [member], directory)[member.rank]
    ended = "its engine lost the connection to its controller, so it was stopped"
    return dataclasses.replace(outcome, ended=ended, hung=False, idle=idle)


def _death(
    engines: cluster.Engines, member: Member, directory: Path | None, idle: bool = False
) -> Outcome:
    return Outcome(
        None,
        time.time_ns(),
        cluster.ending(engines, member.info),
        idle=idle,
        gone=True,
        stack=_stack(directory, member.rank),
    )


def _leave_alone(members: list[Member]) -> dict[int, Outcome]:
    now_ns = time.time_ns()
    return {
        one.rank: Outcome(None, now_ns, "was left to what it does", hung=True) for one in members
    }


def _kill(
    engines: cluster.Engines, members: list[Member], directory: Path | None
) -> dict[int, Outcome]:
    """End ranks that hang, after asking where they are. SIGINT would not reach C code."""
    now_ns = time.time_ns()
    for member in members:
        cluster.signal_engine(engines, member.engine, member.info, signal.SIGUSR1)
    if directory is not None:
        time.sleep(0.3)  # faulthandler writes from the signal handler
    for member in members:
        cluster.signal_engine(engines, member.engine, member.info, signal.SIGKILL)
    _wait_dead(engines, members, _DYING_SECONDS)
    outcomes = {}
    for member in members:
        gone = cluster.dead(engines, member.engine, member.info)
        ended = "was stopped" if gone else "was told to stop, but is not known to have"
        stack = _stack(directory, member.rank)
        outcomes[member.rank] = Outcome(None, now_ns, ended, hung=True, gone=gone, stack=stack)
    return outcomes


def _wait_dead(engines: cluster.Engines, members: Sequence[Member], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if all(cluster.dead(engines, one.engine, one.info) for one in members):
            return
        time.sleep(0.01)


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
    engines: cluster.Engines,
    members: Sequence[Member],
    outcomes: dict[int, Outcome],
    feed: Feed,
    give_up: Callable[[], str],
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
    answers = ask(
        engines,
        behind,
        worker.call,
        lambda rank: ("again", lost[rank]),
        give_up=give_up,
        limit_s=_AGAIN_SECONDS,
        kill=False,
    )
    for outcome in answers.values():
        if outcome.report is not None:
            for data in outcome.report.value or ():
                feed.receive(data)
    for rank in lost:
        feed.release(rank)
