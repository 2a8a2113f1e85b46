"""A story, and a comparison of two, as plain text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddpviz.analysis.units import format_duration
from ddpviz.explain.text import texts, wrapped
from ddpviz.traces.told import told_us

if TYPE_CHECKING:
    from ddpviz.explain.story.comparison import Comparison
    from ddpviz.explain.story.frames import Frame
    from ddpviz.explain.story.telling import Story

#: What costs most, as many as are told first.
TOLD = 3


def story(found: Story) -> str:
    """All of it; what costs most comes first."""
    lines = [*wrapped(found.title, 0)]
    for doubt in found.doubts:
        lines += ["", *wrapped(f"DOUBT: {doubt}", 0, 7)]
    lines += ["", "What costs most, per step:"]
    if not found.costs:
        lines.append("  nothing of DDP's own")
    for number, cost in enumerate(found.costs, 1):
        if number == TOLD + 1:
            lines += ["", "And:"]
        lines += wrapped(f"{number}. {cost.sentence}.", 2, 3)
        if number <= TOLD and cost.change:
            lines += wrapped(f"Change: {cost.change}.", 5)
            lines += wrapped(f"Risk: {cost.risk}.", 5)
    if found.fine:
        lines += ["", "What is not wrong:"]
        for sentence in found.fine:
            lines += wrapped(f"- {sentence}", 2, 2)
    for heading, (names, rows) in tables(found):
        lines += ["", *wrapped(heading, 0), "", *_table(names, rows)]
    lines += ["", frames_heading(found)]
    for remark in found.tree.remarks:
        lines += wrapped(f"note: {remark}", 0, 6)
    told: set[int] = set()
    for depth, frame in found.tree.all():
        lines += ["", *_frame(frame, depth, found.tree.steps, told)]
    lines.append("")
    for remark in found.remarks:
        lines += wrapped(f"note: {remark}", 0, 6)
    return "\n".join(lines).rstrip()


def tables(found: Story) -> list[tuple[str, tuple[list[str], list[list[str]]]]]:
    """Heading, names of columns, and rows of each table about ranks."""
    shown = [
        (
            "Where each rank's time went, of the whole trace (compute, communication alone and "
            "other make up all of it; a GPU with nothing else to run counts as alone; what "
            "`ddpviz show` calls hidden and exposed is another measure: for how long a rank had to "
            "wait)",
            (
                [
                    "rank",
                    "compute",
                    "communication beside it",
                    "communication alone",
                    "other",
                    "of communication beside compute",
                ],
                [
                    [
                        str(one.rank),
                        *(
                            f"{format_duration(ns)} {_percent(ns, one.window_ns)}".rstrip()
                            for ns in (
                                one.compute_ns,
                                one.hidden_ns,
                                one.exposed_ns,
                                one.other_ns,
                            )
                        ),
                        "-" if math.isnan(one.overlap) else f"{one.overlap:.1%}",
                    ]
                    for one in found.shares
                ],
            ),
        )
    ]
    if len(found.clocks) > 1:
        shown.append(
            (
                f"Clocks against rank {found.clocks[0].rank}'s, by the ends of shared collectives",
                (
                    ["rank", "offset", "residual", "worst", "collectives", "moved by"],
                    [
                        [
                            str(one.rank),
                            *(
                                (
                                    told_us(one.offset_ns),
                                    f"± {told_us(one.residual_ns)}",
                                    told_us(one.worst_ns),
                                )
                                if one.matched
                                else ("not known", "-", "-")
                            ),
                            str(one.matched),
                            told_us(-one.moved_ns) if one.moved_ns else "nothing",
                        ]
                        for one in found.clocks[1:]
                    ],
                ),
            )
        )
    if found.skews:
        shown.append(
            (
                "Who arrives last, of the ranks whose traces are here",
                (
                    ["collective", "steps", "apart", "at worst", "last was", "always late"],
                    [
                        [
                            one.name,
                            str(one.times),
                            format_duration(one.spread_ns),
                            format_duration(one.worst_ns),
                            ", ".join(f"rank {rank}: {times}" for rank, times in one.last[:4]),
                            "no one" if one.late is None else f"rank {one.late}",
                        ]
                        for one in found.skews
                    ],
                ),
            )
        )
    return shown


def frames_heading(found: Story) -> str:
    """Above the tree."""
    steps = found.tree.steps
    means = f" (means over {steps} steps)" if steps > 1 else ""
    return f"Frames of a step, of rank {found.rank}{means}"


def comparison(found: Comparison) -> str:
    """Two runs, line by line."""
    rows = [[row.name, row.first, row.second, row.difference] for row in found.rows]
    return "\n".join(
        [*wrapped(f"first   {found.first}", 0, 8), *wrapped(f"second  {found.second}", 0, 8), ""]
        + _table(["of a step (median)", "first", "second", "difference"], rows)
    )


def per_step(frame: Frame, steps: int) -> str:
    """How often and how long in a step."""
    times = frame.times / max(steps, 1)
    often = f"{times:.0f} ×" if abs(times - round(times)) < 0.005 else f"{times:.2f} ×"
    return f"{often}, {format_duration(frame.total_ns / max(steps, 1))} a step"


def _frame(frame: Frame, depth: int, steps: int, told: set[int]) -> list[str]:
    indent = 2 * depth
    detail = f": {frame.detail}" if frame.detail else ""
    lines = wrapped(f"{frame.name}  {per_step(frame, steps)}{detail}", indent, 4)
    inner = indent + 4
    station, one = frame.station, frame.entry
    if station is not None and station.place:
        lines.append(f"{' ' * inner}{station.place}")
    if one is None:
        return lines
    if id(one) in told:
        return [*lines, f"{' ' * inner}{one.title} (above)"]
    told.add(id(one))
    if station is not None and station.link:
        lines.append(f"{' ' * inner}{station.link}")
    lines += wrapped(one.title if one.title.endswith("?") else f"{one.title}.", inner)
    for heading, said in texts(one):
        lines += wrapped(f"{heading}: {said}" if heading else said, inner)
    return lines


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (names, ["-" * width for width in widths], *rows)
    ]


def _percent(part: float, whole: float) -> str:
    return f"({part / whole:.0%})" if whole and not math.isnan(part) else ""
