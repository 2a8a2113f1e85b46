"""Numbers and names as a reader wants them: the digits they deserve, a unit, never markup."""

from __future__ import annotations

import re

import pandas as pd

from ddpviz.analysis.units import format_bytes, format_duration

#: Why the first plan has one bucket, whatever the cap.
ONE_BUCKET = (
    "without find_unused_parameters DDP begins with one bucket per dtype and device, whatever "
    "bucket_cap_mb says; the rebuild after the first step applies it"
)

#: What the columns of :func:`ddpviz.analysis.steps` mean, said wherever they are shown.
HIDDEN = "a collective of the backward was in flight while it still computed"
EXPOSED = (
    "a rank waits for collectives: after its last gradient for buckets, which it copies back too; "
    "in a forward for buffers or the rebuilt buckets' order; in a comm hook for the hook's own"
)
NOT_COUNTED = (
    "collectives of your own and of Join are not counted: whether a rank waits for them is not "
    "recorded"
)
STEP = (
    "from the first forward with gradients to the end of the optimizer's step: what a rank does "
    "before that forward, like loading a batch, is in no step; fingerprints are taken within it"
)
PERIOD = "from the end of the step before to the end of this one: with what is in no step"
SUM = "copying back is exposed too, so the two need not sum to the time in flight"
ON_CUDA = (
    "some times on CUDA are the host's, when it enqueued work; hidden and exposed communication "
    "are not known there, because host clocks do not see when collectives run"
)


def begins_as_one(plan: pd.DataFrame) -> bool:
    """Whether a plan is DDP's first with no limit but dtype and device: rows of one plan of
    :func:`ddpviz.analysis.plans`."""
    return bool((plan["reason"] == "construction").all() and plan["limit_bytes"].isna().all())


#: Longer names lose their middle in a sentence; hovers, tables and readings have them whole.
LONGEST_NAME = 80
_TOO_LONG = re.compile(rf"\S{{{LONGEST_NAME + 1},}}")


def in_bursts(steps: pd.DataFrame) -> str:
    """Of rows of :func:`ddpviz.analysis.steps`: in how many steps gradients came at once, and why;
    "" for none."""
    found = steps[steps["burst"].fillna("") != ""]
    if found.empty:
        return ""
    many = count(found["step"].nunique(), "step")
    return f"in {many} all gradients came at once: {found['burst'].iloc[-1]}"


def brief(text: str) -> str:
    """A sentence, of whose overlong names only the begin and the end are left: "encoder…weight"."""
    return _TOO_LONG.sub(lambda found: f"{found[0][:40]}…{found[0][-39:]}", text)


def duration(ms: float) -> str:
    """A duration in ms as text: "12.3 s", "199 ms", "4.2 ms", "40 µs"; NaN is "unknown"."""
    return format_duration(ms * 1e6)


def size(size_bytes: float) -> str:
    """A size as text in binary units: "2.35 MiB", "272 B"."""
    return format_bytes(size_bytes)


def sent_size(size_bytes: float) -> str:
    """Of what was sent, which is never nothing: a trace may not have it."""
    return size(size_bytes) if size_bytes > 0 else "unknown size"


def count(number: int, noun: str) -> str:
    """ "1 parameter", "2 parameters"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def names(items: list[str], at_most: int = 6) -> str:
    """Names one after the other; beyond ``at_most``, how many more there are."""
    shown = ", ".join(items[:at_most])
    return shown if len(items) <= at_most else f"{shown} and {len(items) - at_most} more"


def shortened(name: str, at_most: int = 18) -> str:
    """A name that fits a margin: its end is kept, because names differ at their ends."""
    return name if len(name) <= at_most else "…" + name[1 - at_most :]
