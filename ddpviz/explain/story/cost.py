"""One thing that costs, and how it is said."""

from __future__ import annotations

import dataclasses
import math

from ddpviz.analysis.units import format_duration
from ddpviz.explain.story.facts import Facts

#: Below this share of a step a thing is not worth a change.
LITTLE = 0.01


@dataclasses.dataclass(frozen=True)
class Cost:
    """``ms``: of a step, the median, NaN where the trace doesn't tell. ``share``: of the step.
    ``change``: "" where there is none."""

    name: str
    ms: float
    share: float
    sentence: str
    change: str
    risk: str


def cost_of(
    here: Facts, name: str, ms: float, sentence: str, change: str = "", risk: str = ""
) -> Cost:
    share = ms / here.step_ms if here.step_ms else float("nan")
    percent = f" ({share:.0%} of the step)" if share >= LITTLE else ""
    time = "a time that is not known" if math.isnan(ms) else f"{told_ms(ms)}{percent}"
    told = sentence.replace("{time}", time)
    return Cost(name, ms, share, told, change, risk)


def told_ms(ms: float) -> str:
    return format_duration(ms * 1e6)


def counted(times: float, thing: str) -> str:
    """ "1 broadcast", "2 broadcasts", "0.6 broadcasts"."""
    return f"{times:.3g} {thing}" + ("" if times == 1 else "s")
