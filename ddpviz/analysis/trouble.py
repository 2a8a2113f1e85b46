"""What went wrong in a step: a failure, a rank waited for in vain, a bucket never launched."""

from __future__ import annotations

import re

import numpy as np

from ddpviz.analysis.calls import arrivals, calls
from ddpviz.analysis.constructions import Place
from ddpviz.analysis.evidence import Evidence
from ddpviz.analysis.failed import on_its_own
from ddpviz.analysis.naming import bucket_name, collective_name
from ddpviz.events import Failure, Flag, Kind

#: A title holds this much of an error's text.
_MOST_CHARACTERS = 120


def trouble(here: Evidence, step: int) -> str:
    """The sentence; empty where nothing went wrong. ``here``: of this step or construction.

    Of several failures the first in time is told, but for those of ranks that lost another one:
    what a session saw of a process that ended it noted later than these. What a rank is still in
    counts as well: a step that is being recorded is like one that was cut off.
    """
    if here.failures:
        own = [item for item in here.failures if on_its_own(item[0])]
        return _failed(here, *min(own or here.failures, key=lambda item: item[0].time_ns))
    went_on = here.of_kind(Kind.STEP)["rank"]
    built = here.construction(step)
    if built is not None:
        went_on = np.array(sorted(built.finished))
    call, absent = _pending(here, here.calls, went_on)
    if call is not None and absent >= 0:
        return (
            f"rank {call['rank']} waits for rank {absent}, which has not launched "
            f"{collective_name(here.source, call)}"
        )
    if call is not None:
        return f"rank {call['rank']} has not completed {collective_name(here.source, call)}"
    return _never_launched(here)


def _failed(here: Evidence, failure: Failure, place: Place) -> str:
    """Where a rank failed, by what it was in; outside of steps, by what it had begun."""
    message = _shortened(failure.message)
    found, went_on = here.calls, here.of_kind(Kind.STEP)["rank"]
    if failure.step < 0:
        found, went_on = calls(here.source, -1), went_on[:0]
        begun_ns = found["begin_ns"]
        then = (begun_ns >= _since_ns(here, failure)) & (begun_ns <= failure.time_ns)
        found = found[(found["rank"] != failure.rank) | then]
    call, absent = _pending(here, found, went_on, failure)
    when = f" {place.when}" if place.when else ""
    if call is None:
        return f"rank {failure.rank} failed{when}: {message}"
    name = collective_name(here.source, call)
    if absent < 0:
        return f"rank {failure.rank} failed{when} in {name}: {message}"
    return (
        f"rank {failure.rank} failed{when} waiting for rank {absent}, which has not launched "
        f"{name}: {message}"
    )


def _since_ns(here: Evidence, failure: Failure) -> int:
    """The begin of what the rank had begun last: what it left open before is not its failure."""
    rank = failure.rank
    begun = [one.windows[rank][0] for one in here.constructions if rank in one.windows]
    steps = here.of_kind(Kind.STEP)
    begun += steps["begin_ns"][steps["rank"] == rank].tolist()
    return max((ns for ns in begun if ns <= failure.time_ns), default=0)


def _shortened(message: str) -> str:
    """An error's first sentence, without the source positions that gloo and NCCL put in it."""
    text = re.sub(r"\[[^\[\]]*\.\w+:\d+\] *", "", message).split(". ")[0]
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def _pending(
    here: Evidence, found: np.ndarray, went_on: np.ndarray, failure: Failure | None = None
) -> tuple[np.void | None, int]:
    """The first collective that a rank is stuck in, of the rank that failed if one did; and the
    rank that has not launched it, -1 if none is known.

    ``went_on``: ranks that got past it, though its end is not known.
    """
    failed = (found["flags"] & Flag.FAILED) != 0
    stuck = (found["end_ns"] == 0) & (failed | ~np.isin(found["rank"], went_on))
    if failure is not None:
        stuck &= found["rank"] == failure.rank
    pending = found[stuck]
    if not len(pending):
        return None, -1
    pending = pending[np.argsort(pending["begin_ns"], kind="stable")]
    who = arrivals(here.source, pending, found, False)
    absent = np.where(who.last_launched_ns == 0, who.last_rank, -1)
    first = int(np.argmax(absent >= 0))
    return pending[first], int(absent[first])


def _never_launched(here: Evidence) -> str:
    """The Reducer waits for a parameter that took no part in this backward."""
    table = here.buckets
    waiting = table[(table["launched_ns"] == 0) & (table["full_ns"] == 0)]
    if not len(waiting):
        return ""
    row = waiting[0]
    return (
        f"rank {row['rank']} never launched {bucket_name(here.source, row)}: not all of its "
        f"{row['parameters']} parameters got a gradient"
    )
