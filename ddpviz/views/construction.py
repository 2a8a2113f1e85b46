"""The construction of the module that a step trains: its six steps as they ran on every rank."""

from __future__ import annotations

import math

from ddpviz.analysis import construction
from ddpviz.analysis.configurations import configured
from ddpviz.analysis.constructions import constructions
from ddpviz.analysis.plan_reasons import lowest_rank
from ddpviz.analysis.source import Source
from ddpviz.analysis.traced import untold
from ddpviz.events import Module, Process
from ddpviz.views import lane_canvas, live_canvas
from ddpviz.views.columns import Row, as_rows
from ddpviz.views.lane_canvas import QUIET, Lane, Stack
from ddpviz.views.live import LiveFigure, LiveView, Moment, Picture
from ddpviz.views.live_canvas import Kind
from ddpviz.views.text import count, duration, size

_KINDS = {
    "computes": Kind("sends nothing", QUIET),
    "derived": Kind("derived: what is left before and after", QUIET, hatched=True, rare=True),
    "sends": Kind("with collectives: waits or transfers", "#6F5BB5", rare=True),
}
_PITCH_PX = 26.0
#: Part → its lane, and what it is.
_PARTS = {
    "group": ("1 group", "1, the process group and the module's device"),
    "collect": ("2 collect", "2, what the Reducer gets"),
    "caps": ("3 caps", "3, the limits of buckets"),
    "verify": ("4 verify", "4, are shapes equal on all ranks"),
    "sync": ("4 sync", "4, rank {lowest}'s parameters and buffers to all"),
    "reducer": ("5 reducer", "5, the Reducer and its first plan"),
    "options": ("6 options", "6, what is switched on"),
}


def draw() -> LiveFigure:
    """The figure without a construction."""
    return lane_canvas.lane_figure(_KINDS, x_label="ms").live()


def picture(moment: Moment) -> Picture:
    """A lane per part, and in it a bar per rank."""
    if moment.step is None:
        return _nothing(moment, moment.hint)
    if moment.outside is None:
        return _nothing(moment, "what was recorded outside of steps is not here")
    outside = moment.outside()
    rows = _placed(_shown(as_rows(construction(outside)), moment), outside)
    if not rows:
        return _nothing(
            moment,
            untold(moment.source, "how a DDP module was constructed")
            or "no construction of a DDP module was recorded: begin recording before "
            "DistributedDataParallel(…) is called",
        )
    ends: dict[int, float] = {}
    for row in rows:
        ends[row["rank"]] = max(ends.get(row["rank"], 0.0), row["right"])
    ranks = lane_canvas.chosen_ranks(ends)
    stack = Stack(_PITCH_PX)
    bars: list[Row] = []
    labels: list[Row] = []
    for part, (name, _) in _PARTS.items():
        lane = stack.add(name)
        ran = [r for r in rows if r["part"] == part and r["ran"]]
        here = [row for row in ran if row["rank"] in ranks]
        bars += [_bar(_thin(lane, place, len(here)), row) for place, row in enumerate(here)]
        end = max((row["right"] for row in here), default=0.0)
        labels.append(lane_canvas.label(end, lane, _label(ran)))
    texts = [row["text"] for row in labels]
    return Picture(
        step=moment.step,
        title=_title(rows, outside),
        sources={
            "bars": lane_canvas.bars(bars),
            "marks": live_canvas.marks([]),
            "labels": lane_canvas.labels(labels),
        },
        x=(0.0, lane_canvas.with_room(max(ends.values()), texts, moment.width_px)),
        x_until=max(ends.values()),
        y=(stack.height_px, 0.0),
        height_px=round(stack.height_px),
        x_label=_x_label(outside, ranks, len(ends)),
        y_labels=stack.labels,
        facts=_facts(rows, outside),
    )


def _shown(rows: list[Row], moment: Moment) -> list[Row]:
    """Of a step the module that it trains, its newest; else that construction, or the newest."""
    assert moment.step is not None
    if moment.step < -1:
        return [row for row in rows if row["construction"] == moment.step]
    trained = {note.id for note in moment.source.notes(Module)} if moment.step >= 0 else set()
    seen = [row for row in rows if row["begin_ns"]]
    found = [row for row in seen if row["module"] in trained] or seen
    newest = min((row["construction"] for row in found), default=0)
    return [row for row in rows if row["construction"] == newest]


def _placed(rows: list[Row], source: Source) -> list[Row]:
    """With ``left`` and ``right`` since the first rank began; since its own where clocks differ.

    None where no part is known to have run.
    """
    began = {(row["rank"], row["part"]): row["begin_ns"] for row in rows if row["begin_ns"]}
    if not began:
        return []
    first_ns = dict.fromkeys((row["rank"] for row in rows), min(began.values()))
    if _several_hosts(source):
        for rank in first_ns:
            first_ns[rank] = min((ns for (of, _), ns in began.items() if of == rank), default=0)
    placed = []
    for row in rows:
        begin_ns = began.get((row["rank"], row["part"]))
        ran = begin_ns is not None and not math.isnan(row["time_ms"])
        left = (begin_ns - first_ns[row["rank"]]) / 1e6 if begin_ns is not None and ran else 0.0
        right = left + row["time_ms"] if ran else 0.0
        placed.append({**row, "ran": ran, "left": left, "right": right})
    return placed


def _several_hosts(source: Source) -> bool:
    return len({note.hostname for note in source.notes(Process)}) > 1


def _thin(lane: Lane, place: int, of: int) -> Lane:
    """A part of the lane for one of so many ranks."""
    height = 2 * lane.half / of
    return Lane(lane.label, lane.top + (place + 0.5) * height, 0.42 * height)


def _bar(lane: Lane, row: Row) -> Row:
    kind = "computes" if not row["collectives"] else "sends"
    return lane_canvas.bar(
        lane,
        "derived" if row["derived"] else kind,
        row["left"],
        row["right"],
        rank=row["rank"],
        head=f"{row['part']} on rank {row['rank']}: {duration(row['time_ms'])}",
        time=_sent(row["collectives"], row["bytes"]) or "no collective",
        detail=row["detail"],
    )


def _sent(collectives: int, sent_bytes: int) -> str:
    return f"{count(collectives, 'collective')}, {size(sent_bytes)}" if collectives else ""


def _label(rows: list[Row]) -> str:
    """How long it took on the rank that it took longest on, and what one rank sent."""
    if not rows:
        return "did not run"
    slowest = max(rows, key=lambda row: row["time_ms"])
    took = duration(slowest["time_ms"])
    if len(rows) > 1:
        took += f" (rank {slowest['rank']})"
    sent = _sent(max(r["collectives"] for r in rows), max(r["bytes"] for r in rows))
    return ", ".join(part for part in (took, sent) if part)


def _title(rows: list[Row], source: Source) -> str:
    which = {one.step: one for one in constructions(source)}[rows[0]["construction"]]
    ran: dict[int, list[Row]] = {}
    for row in rows:
        if row["ran"]:
            ran.setdefault(row["rank"], []).append(row)
    if not ran:
        return f"{which.name}: no part of it ended"
    begins = {rank: min(row["left"] for row in mine) for rank, mine in ran.items()}
    took = {rank: max(row["right"] for row in ran[rank]) - begins[rank] for rank in ran}
    rank = max(took, key=lambda rank: took[rank])
    unfinished = [rank for rank in ran if rank not in which.finished]
    if unfinished:
        return f"{which.name}: not completed on rank {unfinished[0]}"
    mine = ran[rank]
    longest = max(mine, key=lambda row: row["time_ms"])
    share = longest["time_ms"] / max(took[rank], 1e-9)
    sent = _sent(sum(r["collectives"] for r in mine), sum(r["bytes"] for r in mine))
    told = (
        f"{which.name} took {duration(took[rank])} on rank {rank}, {share:.0%} of it in "
        f"{longest['part']}; {sent or 'no collective'}"
    )
    late = max(begins, key=lambda rank: begins[rank])
    if begins[late] > took[rank] / 2:
        told += f"; rank {late} began {duration(begins[late])} after the first"
    return told


def _x_label(source: Source, ranks: list[int], of: int) -> str:
    since = "its own rank" if _several_hosts(source) else "the first rank"
    one = "a bar per rank, from the lowest on"
    several = one if len(ranks) == of else f"bars of ranks {', '.join(map(str, ranks))} of {of}"
    return f"ms since {since} began      {several}"


def _facts(rows: list[Row], source: Source) -> tuple[str, ...]:
    """What was found and decided in each part, on the lowest rank, and where another differs."""
    first = min(row["rank"] for row in rows)
    values = configured(source, first).at(rows[0]["module"], rows[0]["begin_ns"] or 0)
    told = []
    for part, (_, what) in _PARTS.items():
        details = {row["rank"]: row["detail"] for row in rows if row["part"] == part}
        detail = details[first]
        if part == "collect" and detail and "ignored" not in detail:
            detail += "; nothing is ignored"
        others = [rank for rank in sorted(details) if details[rank] != details[first]]
        if others:
            detail += f" (on rank {others[0]}: {details[others[0]] or 'not known'})"
        which = what.format(lowest=lowest_rank(values))
        told.append(f"{which}: {detail or 'not known'}")
    return tuple(told)


def _nothing(moment: Moment, title: str) -> Picture:
    return lane_canvas.empty(
        title,
        moment.step,
        {
            "bars": lane_canvas.bars([]),
            "marks": live_canvas.marks([]),
            "labels": lane_canvas.labels([]),
        },
    )


def _basis(source: Source) -> tuple[object, ...]:
    """A construction stays as it is once there are steps; until then it goes on."""
    records = source.records()
    going_on = len(records) if not (records["step"] >= 0).any() else 0
    return tuple(note.id for note in source.notes(Module)), going_on


VIEW = LiveView("construction", draw, picture, of_step=True, basis=_basis)
