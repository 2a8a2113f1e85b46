"""Backwards in which all gradients came at once, and why: one compiled graph is one autograd node.

Told from the graphs, not from times: how far the gradients of a burst are apart is what copying
them into buckets and launching these takes.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ddpviz.analysis.compiled import OfModule, modules
from ddpviz.analysis.source import Source, whole_of
from ddpviz.analysis.tables import listed, run_keys, segments
from ddpviz.analysis.units import format_duration
from ddpviz.events import Compiled, Kind


@dataclasses.dataclass(frozen=True)
class Burst:
    """Of one backward. ``spread_ns``: from its first gradient to its last."""

    step: int
    rank: int
    module: int
    gradients: int
    spread_ns: int
    why: str

    def short(self) -> str:
        """What ends a step's title."""
        return f"all {self.gradients} gradients came in one burst, as {self.why.partition(':')[0]}"

    def sentence(self) -> str:
        """ "all 10 gradients came in one burst of 1.2 ms: …"."""
        spread = format_duration(self.spread_ns)
        return f"all {self.gradients} gradients came in one burst of {spread}: {self.why}"


def bursts(source: Source, step: int | None = None) -> list[Burst]:
    """Of a step, or of all; in the order of rank, module and iteration."""
    whole = whole_of(source)
    ranks = {rank for rank in whole.ranks if whole.notes(Compiled, rank=rank)}
    if not ranks:
        return []
    ready = source.records(kinds=Kind.GRAD_READY, ranks=sorted(ranks), steps=listed(step))
    ready = ready[np.lexsort((ready["begin_ns"], run_keys(ready)))]
    known: dict[int, dict[int, OfModule]] = {
        rank: {one.module.id: one for one in modules(whole, rank)} for rank in ranks
    }
    _, first, last = segments(run_keys(ready))
    found = []
    for at, until in zip(first.tolist(), last.tolist(), strict=True):
        begin, end = ready[at], ready[until]
        step_, rank, module = (int(begin[name]) for name in ("step", "rank", "module"))
        of = known[rank].get(module)
        iteration = int(begin["iteration"])
        why = "" if of is None else of.burst(int(begin["begin_ns"]), iteration)
        if of is not None and why and until > at:
            # The Reducer takes those that get none for ready, too.
            none = sorted(of.without_gradient(iteration))
            gradients = until - at + 1 - int(np.isin(ready["index"][at : until + 1], none).sum())
            spread_ns = int(end["begin_ns"] - begin["begin_ns"])
            found.append(Burst(step_, rank, module, gradients, spread_ns, why))
    return found
