"""From the outcomes of a task to one error: which rank failed first, where, and why."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ddpviz.engines.errors import RankFailed
from ddpviz.engines.tasks import Outcome
from ddpviz.events import Cause, Kind, Process

if TYPE_CHECKING:
    from ddpviz.recording import Recording

#: What a rank says whose peer is gone; it is not the first to fail.
_PEER_GONE = re.compile(
    r"Connection (closed|reset|refused)|Broken pipe|remote process exited|[Tt]imed out"
    r"|gloo/transport|ncclRemoteError|TCPStore|Socket (closed|Timeout)"
)


@dataclasses.dataclass(frozen=True)
class Scene:
    """Where the failure was.

    ``lives``: how often each rank had begun in the recording before its present process.
    ``base``: the recording's number of the workload's step 0. ``one_clock``: whether all ranks
    are on this machine, so that their times and ours can be compared. ``behind``: ranks whose
    last records could not be had. ``stepping``: whether steps were asked for, or something between
    them.
    """

    recording: Recording
    lives: Mapping[int, int]
    base: int
    one_clock: bool
    behind: Collection[int] = ()
    stepping: bool = True

    def records(self, kinds: int | None, rank: int) -> np.ndarray:
        """Of this life of the rank only: an earlier one's collectives stay open for ever."""
        begun = [note.started_ns for note in self.recording.notes(Process, rank)]
        found = self.recording.records(kinds=kinds, ranks=rank)
        if len(begun) <= self.lives.get(rank, 0):
            return found[:0]
        # Both by the rank's own clock, which need not be ours.
        return found[found["begin_ns"] >= max(begun)]

    def now_ns(self, rank: int) -> int:
        """A time for what ends the rank's records, by its own clock."""
        if self.one_clock:
            return time.time_ns()
        found = self.records(None, rank)
        if not len(found):
            return time.time_ns()  # nothing that it could be out of order with
        return int(max(found["begin_ns"].max(), found["end_ns"].max()))


def first(outcomes: dict[int, Outcome], scene: Scene) -> int:
    """The rank to name: the earliest problem or death that no peer's death explains.

    Where all that went wrong hung, the one that has launched the fewest collectives: the others
    wait for it.
    """
    bad = {rank: outcome for rank, outcome in outcomes.items() if not outcome.fine}

    def order(rank: int) -> tuple[int, int, int]:
        outcome = bad[rank]
        problem = outcome.report.problem if outcome.report is not None else None
        if outcome.hung:
            return 2, len(scene.records(Kind.COLLECTIVE_LAUNCHED, rank)), rank
        if problem is None:
            return 0, outcome.time_ns, rank
        # Clocks of several machines differ by more than ranks do: there, when it was heard.
        time_ns = problem.time_ns if scene.one_clock else outcome.time_ns
        return int(_PEER_GONE.search(problem.message) is not None), time_ns, rank

    return min(bad, key=order)


def last_words(scene: Scene, rank: int) -> tuple[int, str]:
    """(step, collective) that a rank was in by its records; (-1, "") where there are none.

    For a rank that cannot say so any more: its earliest collective launched and not done. Of one
    that is ``behind`` it is the earliest step possible, and no collective is known.
    """
    every = scene.records(None, rank)
    if not len(every):
        return -1, ""
    steps = every[every["kind"] == Kind.STEP]
    step = -1
    if scene.stepping:
        step = int(every["step"].max())
        # A STEP record is written at the step's end: the rank was past it, in the next.
        step += int(step in steps["step"])
    if rank in scene.behind:
        return step, ""  # what is open here may have been done
    done = every[every["kind"] == Kind.COLLECTIVE_DONE]
    ended = {(row["group"], row["sequence"]) for row in done}
    # Before a step's first forward a collective belongs to no step yet.
    launched = every["kind"] == Kind.COLLECTIVE_LAUNCHED
    launched = every[launched & np.isin(every["step"], (step, -1))]
    # Of an ended step only the note of its completion can be late, not the collective.
    past = np.isin(every["kind"], (Kind.STEP, Kind.CONSTRUCTION))
    since = int(every["end_ns"][past].max(initial=0))
    for row in launched[launched["begin_ns"] >= since]:
        if (row["group"], row["sequence"]) not in ended:
            name = scene.recording.label(rank, row["label"]).split(" ")[0]
            inside = f"bucket {row['index']}"
            if row["cause"] != Cause.BUCKET:
                inside = Cause(row["cause"]).name.lower().replace("_", " ")
            return step, f"{name} {row['sequence']} ({inside})"
    return step, ""


def error(outcomes: dict[int, Outcome], scene: Scene, advice: str, why_hung: str) -> RankFailed:
    """The one error for outcomes of which at least one went wrong.

    ``why_hung``: why a rank that did not come back was not waited for any longer.
    """
    rank = first(outcomes, scene)
    outcome = outcomes[rank]
    problem = outcome.report.problem if outcome.report is not None else None
    if problem is not None:
        step = scene.base + problem.step if problem.step >= 0 else -1
        doing = problem.doing.split(", step")[0]
        reason, trace = problem.message, problem.text() if problem.frames else ""
    elif outcome.idle:
        step, doing = -1, ""
        reason, trace = f"{outcome.ended} while nothing was asked of it", outcome.stack
    else:
        step, doing = last_words(scene, rank)
        reason, trace = outcome.ended, outcome.stack
        if outcome.hung:
            reason = f"{why_hung or 'it did not come back'}, so it {outcome.ended}"
    others = {other: _state(one, scene, other) for other, one in outcomes.items() if other != rank}
    late = problem is None and rank in scene.behind
    own = step - scene.base if step >= 0 else -1
    return RankFailed(rank, step, doing, reason, trace, others, advice, late, own)


def _state(outcome: Outcome, scene: Scene, rank: int) -> str:
    if outcome.fine:
        return "had finished"
    problem = outcome.report.problem if outcome.report is not None else None
    if problem is not None:
        return problem.message.splitlines()[0]
    if outcome.idle:
        return outcome.ended
    _, doing = last_words(scene, rank)
    inside = f" in {doing}" if doing else ""
    return (
        f"did not come back{inside} and {outcome.ended}" if outcome.hung else outcome.ended + inside
    )
