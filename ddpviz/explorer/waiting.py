"""What ranks are in when nothing comes any more: who waits in which collective, and for whom."""

from __future__ import annotations

import dataclasses

from ddpviz.analysis.calls import calls
from ddpviz.analysis.naming import collective_name
from ddpviz.analysis.source import Source


@dataclasses.dataclass(frozen=True)
class Waiting:
    """``doing``: by rank, the collective that it launched and that has not completed.

    ``reason``: the same in one sentence, "" where no rank is in one.
    """

    doing: dict[int, str]
    reason: str


def waiting(source: Source, ranks: list[int]) -> Waiting:
    """Of a step that has begun and not ended: ``source`` has its records."""
    found = calls(source)
    still = found[found["end_ns"] == 0]
    doing: dict[int, str] = {}
    for record in still:  # in the order of rank and launch: the first one is what is waited for
        doing.setdefault(int(record["rank"]), collective_name(source, record))
    if not doing:
        return Waiting({}, "")
    late = [rank for rank in ranks if rank not in doing]
    who = _listed(sorted(doing))
    what = next(iter(doing.values()))
    if not late:
        return Waiting(doing, f"all ranks are in {what}" if len(set(doing.values())) == 1 else "")
    verb = "waits" if len(doing) == 1 else "wait"
    return Waiting(doing, f"{who} {verb} in {what} for {_listed(late)}")


def _listed(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:4])) + (" …" if len(ranks) > 4 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
