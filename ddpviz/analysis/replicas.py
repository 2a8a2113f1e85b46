"""Are the replicas equal? What DDP promises, checked by fingerprints."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd

from ddpviz.analysis.fingerprints import Moment, moments
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import table

_SCHEMA = {
    "step": "int64",
    "module": "int64",
    "iteration": "int64",
    "what": "str",
    "promised": "bool",
    "ranks": "int64",
    "equal": "boolean",
    "different": "int64",
    "names": "object",
    "different_ranks": "object",
    "since_step": "Int64",
    "nonfinite": "int64",
}
#: In the order of a step, and whether DDP keeps it equal on all ranks.
_WHATS = {
    "buffers before": False,
    "buffers after": True,
    "gradients": True,
    "parameters": True,
    "buffers": False,
}


def replicas(source: Source) -> pd.DataFrame:
    """One row per moment of a sampled step at which fingerprints were taken on a rank or more, and
    per process group, as stages of a pipeline have each their own replicas.

    ``what``: "buffers before" and "buffers after" their sync, "gradients" after the backward that
    reduced them, "parameters" and "buffers" as the step left them: what ``state_dict()`` gives.
    ``promised``: whether DDP keeps it equal; buffers drift between two syncs. ``equal``: byte for
    byte on all ``ranks`` that took it; <NA> for one alone. ``different``: how many tensors are
    not, ``names`` which; ``different_ranks``: those with another value than most ranks have, the
    lowest rank where it is a draw. ``since_step``: the first of the sampled steps from which on it
    was never equal again, <NA> where it is. ``nonfinite``: elements that are NaN or infinite, on
    the rank that has most. Without fingerprints there are no rows:
    ``session.fingerprints(every=1)``, or ``attach(…, fingerprints=1)``.
    """
    rows: list[dict[str, Any]] = []
    since: dict[tuple[int, tuple[int, ...], str], int] = {}
    for moment in moments(source, *_WHATS):
        names, ranks = _different(moment)
        thread = moment.module, moment.group, moment.what
        alone = len(moment.ranks) == 1
        if not alone:
            if names:
                since.setdefault(thread, moment.step)
            else:
                since.pop(thread, None)
        rows.append(
            {
                "step": moment.step,
                "module": moment.module,
                "iteration": moment.iteration,
                "what": moment.what,
                "promised": _WHATS[moment.what],
                "ranks": len(moment.ranks),
                "equal": -1 if alone else int(not names),
                "different": len(names),
                "names": names,
                "different_ranks": ranks,
                "since_step": since[thread] if names else -1,
                "nonfinite": max(sum(note.nonfinite) for note in moment.ranks.values()),
            }
        )
    return table(_SCHEMA, {name: [row[name] for row in rows] for name in _SCHEMA})


def _different(moment: Moment) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Names of tensors that are not equal on all ranks, and the ranks that stand apart."""
    names, ranks = [], set()
    in_order = sorted(moment.ranks.items())
    if len({note.hashes for _, note in in_order}) == 1:
        return (), ()
    for position, name in enumerate(moment.names):
        hashes = {
            rank: note.hashes[position] if position < len(note.hashes) else ""
            for rank, note in in_order
        }
        counts = Counter(hashes.values())
        if len(counts) > 1:
            most, _ = counts.most_common(1)[0]  # of several, the one of the lowest rank
            names.append(name)
            ranks |= {rank for rank, value in hashes.items() if value != most}
    return tuple(names), tuple(sorted(ranks))
