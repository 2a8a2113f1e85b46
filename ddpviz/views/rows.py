"""One step as rows to draw: spans, ticks, marks, exposed communication. Pure: no Bokeh."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from ddpviz.analysis.audit import Finding
from ddpviz.analysis.tables import SHARED_ID
from ddpviz.events import Kind
from ddpviz.views.columns import Columns, Row, columns
from ddpviz.views.compute import compute_rows, exposed_rows, host_rows, intervals
from ddpviz.views.flags import flag_rows
from ddpviz.views.lanes import DRAWN_CAUSES, Lane, Lanes, choose_open, place
from ddpviz.views.source import StepSource
from ddpviz.views.stretches import bucket_rows, interval, merged, relative_ms
from ddpviz.views.text import count, duration, sent_size

#: A browser draws and hovers this many glyphs without a pause; more are merged.
MOST_GLYPHS = 5_000
#: Width that ticks are merged for.
_WIDTH_PX = 1_100
#: An exposed box wider than the first share of the axis has room for its label, also where the
#: figure stands in half a laptop's width; one narrower than the third has none. The second is what
#: a label takes.
_INSIDE_SHARE = 0.4
_LABEL_SHARE = 0.2
_LEAST_SHARE = 0.01

_HOVER = ("head", "time", "detail")
#: Columns of the tables of :class:`Rows`.
COLUMNS: dict[str, tuple[str, ...]] = {
    "spans": ("kind", "rank", "left", "right", "top", "bottom", "derived", *_HOVER),
    "ticks": ("rank", "x", "top", "bottom", *_HOVER),
    "marks": ("rank", "x", "top", *_HOVER),
    "flags": ("rank", "x", "top", *_HOVER),
    "exposed": ("rank", "left", "right", "top", "bottom", *_HOVER),
    "labels": ("x", "y", "text", "align", "baseline"),
}
#: Those that are text; the others are float64.
_TEXTS = frozenset({"kind", *_HOVER, "text", "align", "baseline"})


@dataclasses.dataclass(frozen=True)
class Rows:
    """A step ready to be drawn: tables as columns, see :data:`COLUMNS`.

    Times in float64 ms since the step's begin on the first rank; ``derived``: 1 where it holds.
    ``head``, ``time``, ``detail``: for the hover; ``labels``: of exposed communication.
    ``note``: what was left out or merged, and what the times are not, "" if nothing.
    """

    step: int
    title: str
    spans: Columns
    ticks: Columns
    marks: Columns
    flags: Columns
    exposed: Columns
    labels: Columns
    lanes: tuple[Lane, ...]
    height_px: float
    begin_ms: float
    end_ms: float
    note: str

    @property
    def glyphs(self) -> int:
        """How many shapes the browser gets."""
        return sum(len(next(iter(table.values()))) for table in self.tables.values())

    @property
    def tables(self) -> dict[str, Columns]:
        """The tables by name."""
        return {name: getattr(self, name) for name in COLUMNS}


def tables(**rows: list[Row]) -> dict[str, Columns]:
    """The tables of :class:`Rows` from rows; those not given are empty."""
    return {name: columns(of, rows.get(name, ()), _TEXTS) for name, of in COLUMNS.items()}


def build_rows(
    source: StepSource,
    open_ranks: list[int] | None = None,
    findings: Iterable[Finding] = (),
) -> Rows:
    """The rows of one step, at most :data:`MOST_GLYPHS`, with flags at those of the ``findings``
    that it shows. Raises ValueError for an empty step."""
    if not len(source.records):
        raise ValueError(f"step {source.step} has no records, expected at least one")
    chosen = choose_open(source, open_ranks)
    lanes = place(source, chosen)
    end_ms = _end_ms(source)
    spans, ticks = bucket_rows(source, lanes, end_ms)
    spans = host_rows(source, lanes, end_ms) + compute_rows(source, lanes, end_ms) + spans
    marks = _marks(source, lanes)
    exposed = exposed_rows(source, lanes, end_ms)
    notes = []
    if source.enqueuing_ranks:
        notes.append(
            "CUDA: times are the host's, when it enqueued work; when that ran, and which "
            "communication was exposed, host clocks do not see"
        )
    if len(source.hosts) > 1:
        notes.append("ranks on several hosts share this axis as far as their clocks agree")
    folded = len(source.ranks) - len(chosen)
    if folded:
        opened = ", ".join(
            f"rank {rank} ({why})" if why else f"rank {rank}"
            for rank, why in sorted(chosen.items())
        )
        notes.append(f"open: {opened}; {count(folded, 'rank')} folded to one line each")
    labels = _labels(exposed, end_ms, chosen)
    flags = flag_rows(source, lanes, findings)

    room = MOST_GLYPHS - len(exposed) - len(labels) - len(flags)
    if len(spans) + len(ticks) + len(marks) > room:
        pixel_ms = max(end_ms, 1e-6) / _WIDTH_PX
        ticks, marks = merged(ticks, pixel_ms), merged(marks, pixel_ms)
        notes.append("parameters closer than a pixel share a tick")
    if len(spans) + len(ticks) + len(marks) > room:
        left_out = len(ticks) + len(marks) + max(0, len(spans) - room)
        ticks, marks = [], []
        spans = sorted(spans, key=lambda row: row["left"] - row["right"])[: max(room, 0)]
        notes.append(f"{left_out} small marks left out: too many for one figure")
    return Rows(
        step=source.step,
        title=source.finding,
        **tables(
            spans=spans, ticks=ticks, marks=marks, flags=flags, exposed=exposed, labels=labels
        ),
        lanes=tuple(lanes.all),
        height_px=lanes.height_px,
        begin_ms=float(min(source.records["begin_ns"].min() - source.zero_ns, 0)) / 1e6,
        end_ms=end_ms,
        note="; ".join(notes),
    )


def _end_ms(source: StepSource) -> float:
    """The latest end of anything in the step; what has no end counts with its begin."""
    records = source.records
    last = int(max(records["end_ns"].max(), records["begin_ns"].max()))
    done_ns = int(source.buckets["done_ns"].max(initial=0))
    return max((max(last, done_ns) - source.zero_ns) / 1e6, 1e-3)


def _labels(exposed: list[Row], end_ms: float, open_ranks: dict[int, str]) -> list[Row]:
    """Length of exposed communication: in its box, or above it where the box is narrow.

    Longest first; a label that would lie on an earlier one is left to the hover. Where a rank has
    several boxes, the longest also has their sum: that is what the table of steps has.
    """
    rows: list[Row] = []
    totals: dict[int, list[float]] = {}
    for row in exposed:
        totals.setdefault(row["rank"], []).append(row["right"] - row["left"])
    taken: list[tuple[int, float, float]] = []
    for row in sorted(exposed, key=lambda row: row["left"] - row["right"]):
        rank, length = row["rank"], row["right"] - row["left"]
        if rank not in open_ranks or length < _LEAST_SHARE * end_ms:
            continue
        of_all = ""
        if length == max(totals[rank]) and len(totals[rank]) > 1:
            of_all = f", {duration(sum(totals[rank]))} in all"
        wide = length >= _INSIDE_SHARE * end_ms
        reach = _LABEL_SHARE * end_ms
        if wide:
            x, align = (row["left"] + row["right"]) / 2, "center"
            left, right = x - reach / 2, x + reach / 2
        elif row["right"] < reach:  # to the left of it there is no room
            x, align = row["left"], "left"
            left, right = x, x + reach
        else:
            x, align = row["right"], "right"
            left, right = x - reach, x
        if any(r == rank and left < b and right > a for r, a, b in taken):
            continue
        taken.append((rank, left, right))
        rows.append(
            {
                "x": x,
                "y": (row["top"] + row["bottom"]) / 2 if wide else row["top"] - 1,
                "text": f"exposed {duration(length)}{of_all}",
                "align": align,
                "baseline": "middle" if wide else "bottom",
            }
        )
    return rows


def _inferred(derived: list[str], column: str) -> str:
    return ", inferred" if column in derived else ""


def _marks(source: StepSource, lanes: Lanes) -> list[Row]:
    """Collectives without a picture of their own, and bucket rebuilds, at the time they began."""
    rows: list[Row] = []
    table = source.collectives
    table = table[[cause not in DRAWN_CAUSES for cause in table["cause"]]]
    launched = relative_ms(table["launched_ns"], source.zero_ns).tolist()
    for row, at in zip(table, launched, strict=True):
        rank = int(row["rank"])
        lane = lanes.other.get(rank)
        if lane is None:
            continue
        took = duration(row["duration_ms"]) if row["done_ns"] > 0 else "never completed"
        derived = row["derived"].split(",")
        if "duration_ms" in derived:
            took = f"at most {took}"
        elif "done_ns" in derived:
            took = "enqueued on CUDA: when it ended is not known"
        group = "one of several groups that share an id"
        if row["group"] < SHARED_ID:
            group = "its group"
        rows.append(
            _mark(
                rank,
                lane,
                at,
                f"{row['op']} ({row['cause'].replace('_', ' ')}{_inferred(derived, 'cause')})",
                f"{took}, launched at {at:.2f} ms",
                f"{row['dtype']}, {sent_size(row['bytes'])}, number {row['sequence']} of {group}",
            )
        )
    for record in source.records[source.records["kind"] == Kind.REBUILD]:
        lane = lanes.other.get(int(record["rank"]))
        if lane is not None:
            left, right = intervals(np.array([record]), source.zero_ns, 0.0)[0]
            head = f"buckets rebuilt: plan {record['index']}"
            rows.append(_mark(int(record["rank"]), lane, left, head, interval(left, right), ""))
    return rows


def _mark(rank: int, lane: Lane, x: float, head: str, time: str, detail: str) -> Row:
    return {"rank": rank, "x": x, "top": lane.middle, "head": head, "time": time, "detail": detail}
