"""From the outcomes of a task to one error: which rank failed first, where, and why."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ddpviz.engines.errors import RankFailed
from ddpviz.engines.tasks import Outcome
from ddpviz.events import NO_GROUP, NO_MODULE, RECORD, Batch, Cause, Failure, Kind

if TYPE_CHECKING:
    from ddpviz.recording import Recording

#: What a rank says whose peer is gone; it is not the first to fail.
_PEER_GONE = re.compile(
    r"Connection (closed|reset|refused)|Broken pipe|remote process exited|[Tt]imed out"
    r"|gloo/transport|ncclRemoteError|TCPStore|Socket (closed|Timeout)"
)


@dataclasses.dataclass(frozen=True)
class Scene:
    """Where the failure was: the recording, since when (ns) its ranks' processes are at it, and
    the recording's number of the workload's step 0."""

    recording: Recording
    since_ns: int
    base: int

    def records(self, kinds: int | None, rank: int) -> np.ndarray:
        """Of this life of the rank only: an earlier one's collectives stay open for ever."""
        found = self.recording.records(kinds=kinds, ranks=rank)
        return found[found["begin_ns"] >= self.since_ns]


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
        if problem is not None:
            return int(_PEER_GONE.search(problem.message) is not None), problem.time_ns, rank
        return 0, outcome.time_ns, rank

    return min(bad, key=order)


def last_words(scene: Scene, rank: int) -> tuple[int, str]:
    """(step, collective) that a rank was in by its records; (-1, "") where there are none.

    For a rank that cannot say so any more: its earliest collective launched and not done.
    """
    every = scene.records(None, rank)
    if not len(every):
        return -1, ""
    step = int(every["step"].max())
    # A STEP record is written at the step's end: the rank was past it, in the next.
    step += int(step in every["step"][every["kind"] == Kind.STEP])
    done = every[every["kind"] == Kind.COLLECTIVE_DONE]
    ended = {(row["group"], row["sequence"]) for row in done}
    # Of an ended step only the note of its completion can be late, not the collective.
    launched = every[(every["kind"] == Kind.COLLECTIVE_LAUNCHED) & (every["step"] == step)]
    for row in launched:
        if (row["group"], row["sequence"]) not in ended:
            name = scene.recording.label(rank, row["label"]).split(" ")[0]
            inside = f"bucket {row['index']}"
            if row["cause"] != Cause.BUCKET:
                inside = Cause(row["cause"]).name.lower().replace("_", " ")
            return step, f"{name} {row['sequence']} ({inside})"
    return step, ""


def salvage(directory: Path, rank: int, failure: Failure | None) -> None:
    """Make a dead rank's files whole: what its ring holds goes to its records, and the failure.

    ``failure``: its step as the rank itself counts.
    """
    from ddpviz.recording import RankWriter
    from ddpviz.recording.attachments import UNNUMBERED
    from ddpviz.recording.reading import whole_part

    writer = RankWriter(directory, rank)  # takes the ring in
    if failure is not None:
        failed = np.zeros(1, RECORD)
        failed["begin_ns"] = failed["end_ns"] = failure.time_ns
        failed["step"], failed["rank"], failed["kind"] = failure.step, rank, Kind.FAILED
        failed["iteration"] = failed["index"] = failed["sequence"] = -1
        failed["module"], failed["group"] = NO_MODULE, NO_GROUP
        last = max(0, whole_part(directory, rank).attachments - 1)
        writer.write(Batch(rank, UNNUMBERED, failed, (failure,)), last)
    writer.close()


def error(outcomes: dict[int, Outcome], scene: Scene, advice: str, why_hung: str) -> RankFailed:
    """The one error for outcomes of which at least one went wrong.

    ``why_hung``: said of a rank that was killed because it did not come back.
    """
    rank = first(outcomes, scene)
    outcome = outcomes[rank]
    step, doing = last_words(scene, rank)
    problem = outcome.report.problem if outcome.report is not None else None
    if problem is not None:
        step = scene.base + problem.step if problem.step >= 0 else -1
        doing = problem.doing.split(", step")[0]
        reason, trace = problem.message, problem.text()
    else:
        reason, trace = why_hung if outcome.hung else outcome.ended, outcome.stack
    others = {other: _state(one, scene, other) for other, one in outcomes.items() if other != rank}
    return RankFailed(rank, step, doing, reason, trace, others, advice)


def _state(outcome: Outcome, scene: Scene, rank: int) -> str:
    if outcome.fine:
        return "had finished"
    problem = outcome.report.problem if outcome.report is not None else None
    if problem is not None:
        return problem.message.splitlines()[0]
    _, doing = last_words(scene, rank)
    inside = f" in {doing}" if doing else ""
    return f"did not come back{inside} and was stopped" if outcome.hung else outcome.ended + inside
