"""The same in words: one sentence, or lines for a terminal."""

from __future__ import annotations

from ddpviz.analysis.units import format_bytes
from ddpviz.analysis.waiting.rows import RankWaiting, Waiting

#: Ranks that are told one by one, and names of parameters.
_MOST_RANKS, _MOST_NAMES = 3, 4

_TOLD = {
    "is in another": "is in another one there",
    "has not entered it": "has not entered it",
    "failed": "failed and will not enter it",
    "had ended": "had ended its recording and will not enter it",
    "is through it": "is through it",
}


def sentence(rows: tuple[RankWaiting, ...], until_last: bool) -> str:
    """ "ranks 0, 2 are in allreduce 17 (bucket 2), 1.2 MiB; rank 1 has not entered it, it is at
    train.py:88 in validate". ``until_last``: times are until what was heard last, and no longer
    known."""
    inside = [one for one in rows if one.state == "in it"]
    parts = []
    if inside:
        first = inside[0]
        be = "is" if len(inside) == 1 else "are"
        everyone = "all " if 1 < len(inside) == len(rows) else ""
        size = f", {format_bytes(first.bytes)}" if first.bytes > 0 else ""
        least = "at least " if until_last else ""
        lasted = f" for {least}{first.for_s:.0f} s" if first.for_s >= 1 else ""
        at = _at(first) if len(inside) == len(rows) else ""
        parts.append(f"{_ranks(inside)} {be} {everyone}in {first.collective}{size}{lasted}{at}")
    for state, words in _TOLD.items():
        several = [one for one in rows if one.state == state]
        for one in several[:_MOST_RANKS]:
            parts.append(f"rank {one.rank} {words}{_other(one)}{_at(one)}")
        if len(several) > _MOST_RANKS:
            parts.append(f"so it is with {_ranks(several[_MOST_RANKS:])}")
    return "; ".join(parts)


def _other(one: RankWaiting) -> str:
    """The other collective that a rank is in."""
    if one.state not in ("is in another", "has not entered it") or not one.collective:
        return ""
    size = f", {format_bytes(one.bytes)}" if one.bytes > 0 else ""
    inside = ":" if one.state == "is in another" else ", it is in"
    return f"{inside} {one.collective}{size}"


def _at(one: RankWaiting) -> str:
    if one.at is None:
        return ""
    name = one.at.file.replace("\\", "/").rpartition("/")[2]
    function = one.at.function.rpartition(".")[2]
    inside = f" in {function}" if function and function != "<module>" else ""
    return f", it is at {name}:{one.at.line}{inside}"


def _ranks(rows: list[RankWaiting]) -> str:
    numbers = [str(one.rank) for one in rows]
    shown = ", ".join(numbers[:8]) + (" …" if len(numbers) > 8 else "")
    return f"rank {shown}" if len(numbers) == 1 else f"ranks {shown}"


def told(found: Waiting) -> str:
    """The sentence, and lines per rank; "" where nobody waits."""
    if not found.ranks:
        return ""
    return "\n".join([found.reason, *(line for one in found.ranks for line in _lines(one))])


def _lines(one: RankWaiting) -> list[str]:
    collective = f": {one.collective}" if one.collective else ""
    size = f", {format_bytes(one.bytes)}" if one.bytes > 0 else ""
    device = f"; {one.device}" if one.device else ""
    lines = [f"  rank {one.rank:<4} {one.state}{collective}{size}, {one.for_s:.1f} s{device}"]
    if one.parameters:
        names, more = one.parameters[:_MOST_NAMES], len(one.parameters) - _MOST_NAMES
        lines.append(f"            {', '.join(names)}{f' and {more} more' if more > 0 else ''}")
    if one.at is not None:
        function = f" in {one.at.function}" if one.at.function else ""
        lines.append(f"            {one.at.file}:{one.at.line}{function}")
        if one.at.text:
            lines.append(f"              {one.at.text}")
    return lines
