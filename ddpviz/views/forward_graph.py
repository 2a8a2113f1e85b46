"""Which parameters a step's forwards used, as DDP found it out: a strip per rank."""

from __future__ import annotations

import dataclasses

import numpy as np

from ddpviz.analysis import forward_graph
from ddpviz.analysis.source import Source
from ddpviz.analysis.traced import untold
from ddpviz.events import Configuration, Module, Process
from ddpviz.views import lane_canvas, live_canvas
from ddpviz.views.columns import Row, as_rows
from ddpviz.views.lane_canvas import QUIET, Lane, Stack
from ddpviz.views.live import LiveFigure, LiveView, Moment, Picture
from ddpviz.views.live_canvas import Kind
from ddpviz.views.palette import SPANS
from ddpviz.views.text import count, names

_KINDS = {
    "used": Kind("used", SPANS["forward"][0], rare=True),
    "unused": Kind("unused on this rank", "#000000", rare=True),
    "unknown": Kind("not searched, or not known", QUIET, hatched=True, rare=True),
}
_PITCH_PX = 26.0
#: Strips that are drawn, and cells of all of them together.
_MOST_STRIPS = 16
_MOST_CELLS = 4_000
_USED = {True: "used", False: "unused", None: "unknown"}


def draw() -> LiveFigure:
    """The figure without a step."""
    drawn = lane_canvas.lane_figure(
        _KINDS, x_label="parameter, in the order of registration", ink=("unused",)
    )
    drawn.canvas.plot.xaxis.ticker.min_interval = 1
    return drawn.live()


def picture(moment: Moment) -> Picture:
    """The moment's step: a strip per rank and forward."""
    if moment.step is None:
        return _nothing(moment, moment.hint)
    if moment.step < 0:
        return _nothing(moment, "a construction has no forward: run a step")
    table = forward_graph(moment.source, moment.step)
    if table.empty:
        return _nothing(
            moment,
            untold(moment.source, "which parameters a forward uses")
            or f"step {moment.step} has no forward of a known DDP module",
        )
    by_strip: dict[tuple[int, int, int], list[Row]] = {}
    for row in as_rows(table):
        by_strip.setdefault((row["rank"], row["module"], row["iteration"]), []).append(row)
    strips = [_Strip(key, rows) for key, rows in sorted(by_strip.items())]
    several = len({(strip.module, strip.iteration) for strip in strips}) > 1
    modules = _modules(moment.source, strips)
    shown = _chosen(strips)
    stack = Stack(_PITCH_PX)
    bars: list[Row] = []
    labels: list[Row] = []
    most = max(1, _MOST_CELLS // len(shown))
    for strip in shown:
        forward = f"  forward {strip.iteration}" if several else ""
        lane = stack.add(f"rank {strip.rank}{modules[strip.module].named}{forward}")
        bars += strip.bars(lane, most)
        labels.append(lane_canvas.label(strip.size - 0.5, lane, strip.told))
    if len(shown) < len(strips):
        stack.add(f"and {len(strips) - len(shown)} more")
    end = float(max(strip.size for strip in shown))
    return Picture(
        step=moment.step,
        title=f"step {moment.step}: {_title(strips, modules)}",
        sources={
            "bars": lane_canvas.bars(bars),
            "marks": live_canvas.marks([]),
            "labels": lane_canvas.labels(labels),
        },
        x=(-0.5, lane_canvas.with_room(end, [row["text"] for row in labels], moment.width_px)),
        x_until=end - 0.5,
        y=(stack.height_px, 0.0),
        height_px=round(stack.height_px),
        y_labels=stack.labels,
        facts=_facts(strips, modules),
    )


class _Strip:
    """The parameters of one forward on one rank."""

    def __init__(self, key: tuple[int, int, int], rows: list[Row]) -> None:
        self.rank, self.module, self.iteration = key
        self._names = [row["name"] for row in rows]
        self._kinds = [_USED[row["used"]] for row in rows]
        self.searched: str = rows[0]["searched"]
        self.sink: bool = rows[0]["sink"]
        self.size = len(rows)

    @property
    def unused(self) -> list[str]:
        return [n for n, kind in zip(self._names, self._kinds, strict=True) if kind == "unused"]

    @property
    def known(self) -> bool:
        return "unknown" not in self._kinds

    @property
    def through(self) -> str:
        """Whether the output went through DDP's own node, and why."""
        if self.sink:
            return "went through _DDPSink, which has the backward begin with DDP"
        if self.searched == "yes":
            return "may have gone through _DDPSink: this was recorded before that was noted"
        if "without gradients" in self.searched:
            return "did not go through _DDPSink, as it had no gradients"
        return (
            "did not go through _DDPSink: that is for find_unused_parameters and the first "
            "iteration of a static_graph"
        )

    @property
    def told(self) -> str:
        sink = "_DDPSink" if self.sink else "no _DDPSink"
        if not self.known:
            return f"not searched, {sink}" if self.searched.startswith("no:") else "not known"
        return f"{len(self.unused)} of {self.size} unused, {sink}"

    def bars(self, lane: Lane, most: int) -> list[Row]:
        """A cell per parameter; of many, neighbours together, unused where one of them is."""
        edges = np.unique(np.linspace(0, self.size, min(self.size, most) + 1).round().astype(int))
        gap = 0.06 if self.size <= 200 else 0.0
        found = []
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            kinds = self._kinds[begin:end]
            kind = "unused" if "unused" in kinds else kinds[0]
            found.append(
                lane_canvas.bar(
                    lane,
                    kind,
                    begin - 0.5 + gap,
                    end - 0.5 - gap,
                    rank=self.rank,
                    head=names(self._names[begin:end]),
                    time=self._said(kinds),
                    detail=f"rank {self.rank}, forward {self.iteration}",
                )
            )
        return found

    def _said(self, kinds: list[str]) -> str:
        if kinds[0] == "unknown":
            return f"searched: {self.searched}"
        if len(kinds) == 1:
            return "used" if kinds[0] == "used" else "not used: no gradient came from this rank"
        return f"{kinds.count('unused')} of {len(kinds)} not used"


def _chosen(strips: list[_Strip]) -> list[_Strip]:
    """Of many strips those with most unused parameters, in order."""
    kept = sorted(strips, key=lambda strip: -len(strip.unused))[:_MOST_STRIPS]
    return [strip for strip in strips if strip in kept]


@dataclasses.dataclass(frozen=True)
class _Of:
    """A module: " of Net" where there are several, "" else; and of how many ranks."""

    named: str
    world_size: int


def _modules(source: Source, strips: list[_Strip]) -> dict[int, _Of]:
    ids = {strip.module for strip in strips}
    called = {note.id: note.name for note in source.notes(Module)}
    sizes = {
        note.module: int(note.values.get("world_size") or 0) for note in source.notes(Configuration)
    }
    everyone = max((note.world_size for note in source.notes(Process)), default=0)
    return {
        one: _Of(
            f" of {called.get(one, f'module {one}')}" if len(ids) > 1 else "",
            sizes.get(one) or everyone,
        )
        for one in ids
    }


def _last(strips: list[_Strip]) -> dict[int, dict[int, _Strip]]:
    """By module and rank the last forward that is known."""
    found: dict[int, dict[int, _Strip]] = {}
    for strip in strips:
        if strip.known:
            found.setdefault(strip.module, {})[strip.rank] = strip
    return found


def _title(strips: list[_Strip], modules: dict[int, _Of]) -> str:
    last = _last(strips)
    if not last:
        return f"unused parameters were not searched for: {_why(strips)}"
    unused = {one: [s for s in of_rank.values() if s.unused] for one, of_rank in last.items()}
    module = max(unused, key=lambda one: len(unused[one]))
    known, some, of = list(last[module].values()), unused[module], modules[module]
    if not some:
        who = (
            "every rank" if len(known) >= of.world_size else f"each of the {len(known)} known ranks"
        )
        return f"{who} used all {count(known[0].size, 'parameter')}{of.named}"
    if len(known) > 1 and all(strip.unused == known[0].unused for strip in known):
        return f"{_none_of(known, of)} used {_share(known[0])}{of.named}"
    told = ", ".join(f"rank {strip.rank} did not use {_share(strip)}" for strip in some[:2])
    more = len(some) - 2
    return f"{told}{of.named}" + (f", and {count(more, 'more rank')} others" if more > 0 else "")


def _none_of(known: list[_Strip], of: _Of) -> str:
    return "no rank" if len(known) >= of.world_size else f"none of the {len(known)} known ranks"


def _share(strip: _Strip) -> str:
    return f"{names(strip.unused, 2)} ({len(strip.unused)} of {count(strip.size, 'parameter')})"


def _why(strips: list[_Strip]) -> str:
    return strips[0].searched.removeprefix("no: ").removeprefix("not known: ")


def _facts(strips: list[_Strip], modules: dict[int, _Of]) -> tuple[str, ...]:
    told: list[str] = []
    reasons: dict[str, list[_Strip]] = {}
    sinks: dict[str, list[_Strip]] = {}
    for strip in strips:
        reasons.setdefault(strip.searched, []).append(strip)
        sinks.setdefault(strip.through, []).append(strip)
    for reason, mine in reasons.items():
        which = _which(mine, strips)
        told.append(f"searched for unused parameters{which}: {reason.replace('no: ', 'no, ')}")
    told += [
        f"the output of the forward{_which(mine, strips)} {said}" for said, mine in sinks.items()
    ]
    for module, of_rank in _last(strips).items():
        told += _only_somewhere(list(of_rank.values()), modules[module])
    return tuple(told)


def _which(mine: list[_Strip], strips: list[_Strip]) -> str:
    """ " in forward 3 on rank 0", as far as others differ."""
    forwards, ranks = ({one.iteration for one in mine}, {one.rank for one in mine})
    told = ""
    if forwards != {one.iteration for one in strips}:
        told += f" {names([str(one) for one in sorted(forwards)])}"
        told = f" in forward{told}"
    if ranks != {one.rank for one in strips}:
        told += f" on rank {names([str(one) for one in sorted(ranks)])}"
    return told


def _only_somewhere(last: list[_Strip], of: _Of) -> list[str]:
    """What no rank used, and what only some did. ``last``: of each rank that is known."""
    unused = [strip.unused for strip in last]
    found = list(dict.fromkeys(name for of_rank in unused for name in of_rank))
    nowhere = [name for name in found if all(name in of_rank for of_rank in unused)]
    some = [name for name in found if name not in nowhere]
    told: list[str] = []
    if nowhere and len(last) >= of.world_size:
        told.append(f"used on no rank, so its gradient stays as it was: {names(nowhere)}{of.named}")
    elif nowhere:
        told.append(f"used on {_none_of(last, of)}: {names(nowhere)}{of.named}")
    if some:
        told.append(
            f"used on some ranks, so it gets a gradient on all of them: {names(some)}{of.named}"
        )
    return told


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


VIEW = LiveView("forward_graph", draw, picture, of_step=True)
