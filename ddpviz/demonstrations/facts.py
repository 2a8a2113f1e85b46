"""Numbers that several demonstrations read from an excerpt; all of them of rank 0."""

from __future__ import annotations

import pandas as pd

from ddpviz import analysis
from ddpviz.demonstrations.excerpt import Excerpt
from ddpviz.events import Cause, Configuration, Flag, Kind


def sent(excerpt: Excerpt, cause: Cause) -> list[int]:
    """Collectives of a cause, by step."""
    return excerpt.per_step(Kind.COLLECTIVE_LAUNCHED, cause=cause)


def sent_bytes(excerpt: Excerpt, cause: Cause) -> list[int]:
    """Bytes of the collectives of a cause, by step."""
    found = excerpt.records(kinds=Kind.COLLECTIVE_LAUNCHED, ranks=0)
    found = found[found["cause"] == cause]
    return [int(found["bytes"][found["step"] == step].sum()) for step in excerpt.steps]


def buckets(excerpt: Excerpt, step: int) -> pd.DataFrame:
    """Rows of :func:`ddpviz.analysis.buckets` in launch order. ``step``: of the excerpt's."""
    table = analysis.buckets(excerpt, excerpt.steps[step])
    return table[table["rank"] == 0].sort_values("bucket")


def plan(excerpt: Excerpt, version: int) -> pd.DataFrame:
    """Buckets of a plan of the last module, in launch order."""
    table = analysis.plans(excerpt)
    table = table[table["module"] == table["module"].max()]
    versions = sorted(table["version"].unique())
    return table[table["version"] == versions[version]]


def forwards(excerpt: Excerpt) -> pd.DataFrame:
    """Rows of :func:`ddpviz.analysis.buffers`, in the order of the forwards."""
    table = analysis.buffers(excerpt)
    return table[table["rank"] == 0].sort_values(["module", "iteration"])


def sinks(excerpt: Excerpt) -> list[int]:
    """Of each forward, whether its output went through DDP's own node: 1 or 0."""
    found = excerpt.records(kinds=Kind.FORWARD, ranks=0)
    found = found[found["iteration"].argsort()]
    return [int(flags & Flag.SINK != 0) for flags in found["flags"].tolist()]


def configured(excerpt: Excerpt, name: str) -> object:
    """A value of the last configuration."""
    return excerpt.notes(Configuration, rank=0)[-1].values.get(name)


def in_order(launched: list[int]) -> bool:
    """Whether buckets were launched in their order."""
    return launched == sorted(launched)
