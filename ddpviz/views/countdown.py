"""A step's backward replayed: gradients become ready, buckets count down, are launched in order.

The figure is replayed by moving one number, ``x`` of the source "cursor": what is later is veiled,
and every lane says what its bucket has come to.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from bokeh.models import ColumnDataSource, CustomJS, Line, Quad, Segment

from ddpviz.views import lane_canvas, live_canvas
from ddpviz.views.columns import Columns, columns, numbers
from ddpviz.views.countdown_rows import CountdownRows, countdown_rows, holds_up
from ddpviz.views.live import LiveFigure, LiveView, Moment, Pairs, Picture
from ddpviz.views.live_canvas import Kind
from ddpviz.views.palette import SPANS, Theme
from ddpviz.views.text import count, duration, names

_KINDS = {
    "pending": Kind("gradients pending: the height", SPANS["filling"][0], rare=True),
    "head_of_line": Kind(SPANS["head_of_line"][1], SPANS["head_of_line"][0], rare=True),
    "launch_delay": Kind(SPANS["launch_delay"][1], SPANS["launch_delay"][0], rare=True),
    "in_flight": Kind(SPANS["in_flight"][1], SPANS["in_flight"][0], rare=True),
}
_X_LABEL = "ms since the backward was prepared"
#: ``begin`` and ``right``: between what the cursor moves.
_CURSOR = ("x", "begin", "right", "top", "bottom")
_STATES = ("lane", "t", "text")
#: Waits that are told in sentences.
_MOST_WAITS = 4
#: A wait that is shorter than this share of the backward is none that matters.
_LEAST_SHARE = 0.01
#: The longest text beside a lane.
_WIDEST = "done, waited 99.9 ms"

_MOVE = """
const now = cursor.data.x[0]
const texts = Array.from(labels.data.text)
for (let row = 0; row < states.data.lane.length; row++) {
  if (states.data.t[row] <= now) {
    texts[states.data.lane[row]] = states.data.text[row]
  }
}
labels.data = {...labels.data, text: texts}
"""


def draw() -> LiveFigure:
    """The figure without a step."""
    drawn = lane_canvas.lane_figure(_KINDS, x_label=_X_LABEL)
    plot, sources = drawn.canvas.plot, drawn.canvas.sources
    sources["states"] = ColumnDataSource(_states([]))
    sources["order"] = ColumnDataSource({"x": numbers([]), "y": numbers([])})
    sources["cursor"] = ColumnDataSource(_cursor(None))
    line = Line(x="x", y="y", line_width=1, line_dash="dotted")
    plot.add_glyph(sources["order"], line, name="order")
    swatch, entry = live_canvas.legend_line(plot, line, "from launch to launch")
    veil = Quad(left="x", right="right", top="top", bottom="bottom")
    veil.update(line_color=None, fill_alpha=0.8)
    plot.add_glyph(sources["cursor"], veil, name="veil")
    now = Segment(x0="x", x1="x", y0="top", y1="bottom", line_width=1.5)
    plot.add_glyph(sources["cursor"], now, name="now")
    told = {name: sources[name] for name in ("cursor", "labels", "states")}
    sources["cursor"].js_on_change("data", CustomJS(args=told, code=_MOVE))

    def themed(theme: Theme) -> Pairs:
        return [
            *drawn.themed(theme),
            *((glyph, {"line_color": theme.quiet_text}) for glyph in (line, swatch.glyph)),
            (veil, {"fill_color": theme.background}),
            (now, {"line_color": theme.text}),
        ]

    return LiveFigure(plot, sources, themed, {**drawn.canvas.rare, "order": entry})


def picture(moment: Moment) -> Picture:
    """The moment's step up to its end."""
    if moment.step is None:
        return _nothing(moment, moment.hint)
    rows = countdown_rows(moment.source, moment.step) if moment.step >= 0 else None
    if rows is None:
        if moment.step < 0:
            wants = "no backward was recorded yet: run a step"
            trained = len(moment.history.steps) > 0
            return _nothing(moment, "a construction has no backward" if trained else wants)
        return _nothing(moment, f"step {moment.step} has no backward that reduced gradients")
    last = {row["lane"]: row["text"] for row in rows.states}
    return Picture(
        step=moment.step,
        title=_title(rows, moment.step),
        sources={
            "bars": lane_canvas.bars(rows.bars),
            "marks": live_canvas.marks([]),
            "labels": lane_canvas.labels(
                [
                    lane_canvas.label(rows.end_ms, lane, last.get(place, ""))
                    for place, lane in enumerate(rows.lanes)
                ]
            ),
            "states": _states(rows.states),
            "order": {
                "x": numbers([x for x, _ in rows.order]),
                "y": numbers([y for _, y in rows.order]),
            },
            "cursor": _cursor(rows),  # the last one: its change reads the others
        },
        x=(0.0, lane_canvas.with_room(rows.end_ms, [_WIDEST], moment.width_px)),
        x_until=rows.end_ms,
        y=(rows.height_px, 0.0),
        height_px=round(rows.height_px),
        x_label=f"{_X_LABEL} on {'the first' if rows.one_clock else 'each'} rank",
        y_labels=[(lane.middle, lane.label) for lane in rows.lanes],
        facts=_facts(rows),
    )


def _title(rows: CountdownRows, step: int) -> str:
    ready = [event for event in rows.events if event.what == "ready"]
    launched = {event.bucket for event in rows.events if event.what == "launched"}
    buckets = count(len(launched), "bucket")
    if not ready:
        return f"step {step}: {buckets} launched; when gradients were ready was not recorded"
    if all(event.bucket < 0 for event in ready):
        last = max(ready, key=lambda event: event.at_ms)
        return (
            f"step {step}: {buckets} launched, {last.name} came last; which gradients a bucket "
            "waited for is not known without the bucket plan"
        )
    longest_ms = rows.waits[0].waited_ms if rows.waits else 0.0
    if longest_ms < _LEAST_SHARE * rows.end_ms:
        came = [event for event in ready if not event.unused] or ready
        rank, most = Counter(event.rank for event in came).most_common(1)[0]
        unused = sum(event.unused for event in ready if event.rank == rank)
        beside = f" and {count(unused, 'unused parameter')}" if unused else ""
        last = max(came, key=lambda event: event.at_ms)
        waited = f"more than {duration(longest_ms)} " if longest_ms else ""
        return (
            f"step {step}: {count(most, 'gradient')}{beside} counted {buckets} down to zero, and "
            f"none waited {waited}for an earlier one; {last.name} came last"
        )
    wait = rows.waits[0]
    other = holds_up(rows.events, wait.rank, wait.bucket)
    whom = f"bucket {other.bucket}, which {other.name} held up" if other else "an earlier one"
    return (
        f"step {step}: bucket {wait.bucket} was full for {duration(wait.waited_ms)} on rank "
        f"{wait.rank} before it was its turn: it waited for {whom}"
    )


def _facts(rows: CountdownRows) -> tuple[str, ...]:
    told = []
    for wait in rows.waits[:_MOST_WAITS]:
        other = holds_up(rows.events, wait.rank, wait.bucket)
        held = f" for bucket {other.bucket}, whose last gradient is {other.name}" if other else ""
        told.append(
            f"head-of-line wait: bucket {wait.bucket} on rank {wait.rank} waited "
            f"{duration(wait.waited_ms)}{held}"
        )
    if len(rows.waits) > _MOST_WAITS:
        told.append(f"and {count(len(rows.waits) - _MOST_WAITS, 'more head-of-line wait')}")
    told.append(
        "a bucket is launched when nothing is pending in it and every earlier one was launched: "
        "the dotted line goes from launch to launch; beside each lane stands what its bucket has "
        "come to, “done” when its all-reduce is over"
    )
    if rows.other_runs:
        told.append(
            f"the step has {count(rows.other_runs, 'more backward')} with buckets: this is the one "
            "with most launches, of several the last"
        )
    if rows.of_ranks > len(rows.ranks):
        shown = names([str(rank) for rank in rows.ranks])
        told.append(f"shown are ranks {shown} of {rows.of_ranks}, the slowest among them")
    if rows.left_out:
        told.append(f"{count(rows.left_out, 'more bucket')} of each rank would not fit")
    return tuple(told)


def _states(rows: list[dict[str, Any]]) -> Columns:
    return columns(_STATES, rows, {"text"})


def _cursor(rows: CountdownRows | None) -> Columns:
    if rows is None:
        return columns(_CURSOR, [], ())
    end = {"x": rows.end_ms, "right": rows.end_ms, "bottom": rows.height_px}
    return columns(_CURSOR, [{**end, "begin": 0.0, "top": 0.0}], ())


def _nothing(moment: Moment, title: str) -> Picture:
    return lane_canvas.empty(
        title,
        moment.step,
        {
            "bars": lane_canvas.bars([]),
            "marks": live_canvas.marks([]),
            "labels": lane_canvas.labels([]),
            "states": _states([]),
            "order": {"x": numbers([]), "y": numbers([])},
            "cursor": _cursor(None),
        },
    )


VIEW = LiveView("countdown", draw, picture, of_step=True)
