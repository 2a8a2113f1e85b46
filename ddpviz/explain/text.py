"""A walk, and the register of claims, as plain text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from ddpviz.analysis.units import format_duration
from ddpviz.explain.knowledge import Entry
from ddpviz.explain.register import Claim
from ddpviz.explain.station import Seen, Station, Walk

_WIDTH = 100


def walk(found: Walk) -> str:
    """Every station with its time, the line that called it and, where it comes first, what it is
    about."""
    lines = [title(found)]
    for remark in found.remarks:
        lines += wrapped(f"note: {remark}", 0, hanging=6)
    told: set[int] = set()
    for depth, station in found.all():
        lines += ["", *_station(station, depth, found.begin_ns, told)]
    return "\n".join(lines)


def title(found: Walk) -> str:
    """The walk in one line."""
    took = format_duration(found.end_ns - found.begin_ns)
    what = f"step {found.step}" if found.step >= 0 else f"construction {-found.step}"
    how = "the functions that ran" if found.profiled else "what was recorded"
    return f"{what} of rank {found.rank}, {took}: {how}, torch {found.torch}"


def when(station: Station, zero_ns: int) -> str:
    """Since when, and how long."""
    at = format_duration(station.begin_ns - zero_ns)
    if station.seen is Seen.SHOWN:
        if not station.detail:
            return "C++"
        to = format_duration(station.end_ns - zero_ns)
        once = f"at {at}" if at == to else f"from {at} to {to}"
        return f"C++, shown by {station.detail}, {once}"
    took = format_duration(station.end_ns - station.begin_ns)
    if station.seen is Seen.COLLECTIVE:
        done = f", done after {took}" if station.end_ns else ""
        return f"launched at {at}{done}, {station.detail}"
    detail = f", {station.detail}" if station.detail else ""
    return f"at {at}, took {took}{detail}"


def texts(one: Entry) -> list[tuple[str, str]]:
    """What an entry says, with a heading for each."""
    found = [("", one.what), ("Cost", one.cost), ("Change", one.how_to_change), ("Risk", one.risk)]
    return [(heading, said) for heading, said in found if said]


def _station(station: Station, depth: int, zero_ns: int, told: set[int]) -> list[str]:
    indent = 2 * depth
    lines = wrapped(f"{station.name}  {when(station, zero_ns)}", indent, hanging=4)
    inner = indent + 4
    if station.call and station.called_at is not None:
        file, number = station.called_at
        lines.append(f"{' ' * inner}{file}:{number}  {station.call}")
    if station.place:
        lines.append(f"{' ' * inner}{station.place}")
    one = station.entry
    if one is None:
        return lines
    if id(one) in told:
        return [*lines, f"{' ' * inner}{one.title} (above)"]
    told.add(id(one))
    if station.link:
        lines.append(f"{' ' * inner}{station.link}")
    lines += wrapped(one.title if one.title.endswith("?") else f"{one.title}.", inner)
    for heading, text in texts(one):
        lines += wrapped(f"{heading}: {text}" if heading else text, inner)
    return lines


def claims(
    found: Iterable[Claim], version: str, shown: Mapping[str, Sequence[str]] | None = None
) -> str:
    """The register as text. ``version``: of the torch installed here; ``shown``: by claim the
    demonstrations that show it."""
    lines: list[str] = []
    part = ""
    for one in found:
        if one.part != part:
            part = one.part
            lines += [part, "=" * len(part), ""]
        lines.append(f"{one.id}  [{one.verdict}]")
        lines += wrapped(f"The article: {one.claim}", 4)
        lines += wrapped(f"On torch: {one.truth}", 4)
        lines.append(f"    Proof: {one.proof}")
        if names := (shown or {}).get(one.id):
            called = ", ".join(f'session.demonstrate("{name}")' for name in names)
            lines += wrapped(f"See it: {called}", 4, 4)
        lines += [f"    Checked: {one.checked_text(version)}", ""]
    return "\n".join(lines).rstrip()


def wrapped(text: str, indent: int, hanging: int = 0) -> list[str]:
    """Lines that fit a terminal, the later ones ``hanging`` further in."""
    blanks = " " * indent
    return textwrap.wrap(
        text,
        max(_WIDTH, indent + 40),
        initial_indent=blanks,
        subsequent_indent=blanks + " " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
