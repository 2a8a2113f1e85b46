"""Many steps in one figure: a selector that works without a server, and which steps it offers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from bokeh.layouts import column, row
from bokeh.models import Column, CustomJS, InlineStyleSheet
from bokeh.models.widgets import Button, Div, Select

from ddpviz.analysis import steps
from ddpviz.views.figure import (
    StepFigure,
    axis_label,
    contents,
    lane_labels,
    step_figure,
    title_text,
    x_bounds,
)
from ddpviz.views.rows import Rows, build_rows
from ddpviz.views.source import Run, is_construction, read_run
from ddpviz.views.text import count, duration

if TYPE_CHECKING:
    from ddpviz.recording import Recording

#: Glyphs of all steps together: some 5 MB of page.
MOST_GLYPHS_OF_ALL_STEPS = 25_000
#: A list longer than this is not chosen from by hand.
MOST_STEPS = 200

#: Widgets take the colours of the page or of JupyterLab.
WIDGET_STYLE = """
.bk-input, .bk-btn {
  background-color: var(--ddpviz-background, var(--jp-layout-color1, #fff)) !important;
  color: var(--ddpviz-text, var(--jp-ui-font-color1, #1f2328)) !important;
  border-color: var(--ddpviz-line, var(--jp-border-color1, #c8ccd1)) !important;
  font-size: var(--ddpviz-widget-size, 13px);
}
select.bk-input { appearance: auto !important; background-image: none !important; }
.noUi-target {
  background: var(--ddpviz-line, var(--jp-border-color1, #c8ccd1)) !important;
  border: 0; box-shadow: none;
}
.bk-clearfix, .bk-slider-title {
  color: var(--ddpviz-quiet, var(--jp-ui-font-color2, #59636e));
  font-size: var(--ddpviz-widget-size, 12px);
}
"""

_SHOW = """
const step = steps[select.value]
plot.title.text = step.title
x_axis.axis_label = step.axis_label
y_axis.ticker.ticks = step.positions
y_axis.major_label_overrides = step.labels
plot.x_range.setv({start: step.x[0], end: step.x[1], reset_start: step.x[0], reset_end: step.x[1]})
plot.y_range.setv({start: step.height, end: 0, reset_start: step.height, reset_end: 0})
plot.frame_height = Math.round(step.height)
for (const [name, source] of Object.entries(sources)) {
  source.data = step.contents[name]
}
note.text = step.note
previous.disabled = select.value == select.options[0][0]
next.disabled = select.value == select.options[select.options.length - 1][0]
"""

_MOVE = """
const values = select.options.map((option) => option[0])
const position = values.indexOf(select.value) + by
if (position >= 0 && position < values.length) {
  select.value = values[position]
}
"""


@dataclasses.dataclass(frozen=True)
class Selected:
    """A figure with its step selector: ``layout`` holds ``drawn.plot`` and the widgets.

    ``steps``: those that can be selected, in order, ``shown`` first; ``left_out``: how many more
    were recorded; ``table``: :func:`ddpviz.analysis.steps`.
    """

    layout: Column
    drawn: StepFigure
    steps: list[int]
    shown: int
    left_out: int
    table: pd.DataFrame


def selectable(
    recording: Recording,
    open_ranks: list[int] | None = None,
    *,
    shown: int | None = None,
    only: Sequence[int] | None = None,
    most_glyphs: int = MOST_GLYPHS_OF_ALL_STEPS,
) -> Selected:
    """The figure of one step and a selector of steps; their data travels with it.

    The first one shown is ``shown``, else the newest, or the one in which a rank failed (outside of
    steps: the one that it had begun last). ``only``: the steps to choose from; by default all.

    What does not fit (``most_glyphs`` of all steps together) is chosen by :func:`choose_steps`, and
    the note beside the selector says how many of how many there are. Raises ValueError for a
    recording without steps, and for a step that it has not.
    """
    run = read_run(recording)
    if not run.steps:
        raise ValueError("the recording has no step yet: run at least one training step")
    table = steps(recording)
    lengths = table.groupby("step")["step_ms"].max()
    newest = _newest(run.steps, lengths)
    failed = [place.step for _, place in run.evidence.failures if place.step in run.steps]
    first_shown = shown if shown is not None else failed[-1] if failed else newest
    telling = {newest: "newest"} | ({failed[-1]: "failed"} if failed else {})
    telling = {first_shown: telling.get(first_shown, "")} | telling
    for step in (first_shown, *(only or ())):
        run.check(step)
    offered = [step for step in run.steps if only is None or step in (first_shown, *only)]
    telling = {step: why for step, why in telling.items() if step in offered}
    glyphs = build_rows(run.source(first_shown), open_ranks).glyphs
    most = min(MOST_STEPS, max(1, most_glyphs // max(glyphs, 1)))
    chosen = choose_steps(offered, lengths, _replanned(table), telling, most)
    all_rows = [build_rows(run.source(step), open_ranks) for step in chosen]
    options = [(str(step), _option(run, step, why, lengths)) for step, why in chosen.items()]
    left_out = len(run.steps) - len(chosen)
    # A construction is no step.
    here, there, recorded = (
        sum(step >= 0 for step in some) for some in (chosen, offered, run.steps)
    )
    sample = _sample(here, there, recorded, only is not None)
    layout, drawn = _assemble(all_rows, options, first_shown, sample)
    return Selected(layout, drawn, list(chosen), first_shown, left_out, table)


def _newest(recorded: list[int], lengths: pd.Series) -> int:
    """The last step that was completed; without any, the last one that was begun."""
    complete = [step for step in recorded if lengths.get(step, float("nan")) > 0]
    return complete[-1] if complete else recorded[-1]


def _replanned(table: pd.DataFrame) -> list[int]:
    """Steps whose bucket plan differs from that of the step before."""
    versions = table.groupby("step")["plan_version"].max().sort_index()
    return [int(step) for step in versions.index[versions.diff() > 0]]


def choose_steps(
    recorded: list[int],
    lengths: pd.Series,
    replanned: list[int],
    telling: dict[int, str],
    most: int,
) -> dict[int, str]:
    """Some ``most`` steps in order, and what each stands for ("" if for nothing).

    ``telling``: those to have in any case. Then come the first construction and the first step,
    those with a new bucket plan (``replanned``), the slowest, the fastest, the median, the other
    constructions; the rest of the room goes to steps at even distances. ``lengths``: step time in
    ms by step.
    """
    reasons = dict(telling)

    def because(step: int, why: str) -> None:
        reasons[step] = reasons.get(step) or why

    built = [step for step in recorded if is_construction(step)]
    training = [step for step in recorded if not is_construction(step)]
    for step in built[:1]:
        because(step, "")
    because(training[0] if training else recorded[0], "first")
    for step in replanned[:5]:
        because(step, "new bucket plan")
    timed = lengths[lengths.index.isin(training)].dropna().sort_values()
    if len(timed) > 2:
        because(int(timed.index[-1]), "slowest")
        because(int(timed.index[0]), "fastest")
        because(int(timed.index[len(timed) // 2]), "median")
    for step in built:
        because(step, "")
    chosen = dict(list(reasons.items())[: max(most, len(telling))])
    rest = [step for step in recorded if step not in chosen]
    room = min(most - len(chosen), len(rest))
    if room > 0:
        positions = np.linspace(0, len(rest) - 1, room).round().astype(int)
        chosen |= {rest[position]: "" for position in np.unique(positions)}
    return {step: chosen[step] for step in recorded if step in chosen}


def _sample(here: int, offered: int, recorded: int, asked: bool) -> str:
    """What the note beside the selector says of steps that are not in it, "" where all are."""
    if here == recorded:
        return ""
    if not asked:
        return (
            f"{here} of {count(recorded, 'step')} are here: the telling ones, and others at even "
            "distances"
        )
    if here == offered:
        return f"{here} of {count(recorded, 'step')} are here: those that were asked for"
    return f"{here} of the {count(offered, 'step')} that were asked for are here: no room for more"


def _assemble(
    all_rows: list[Rows],
    options: list[tuple[str, str]],
    first_shown: int,
    sample: str,
) -> tuple[Column, StepFigure]:
    shown = next(rows for rows in all_rows if rows.step == first_shown)
    drawn = step_figure(shown)
    packed = {str(rows.step): _packed(rows, sample) for rows in all_rows}
    style = [InlineStyleSheet(css=WIDGET_STYLE)]
    select = Select(
        value=str(first_shown),
        options=options,
        width=270,
        stylesheets=style,
        name="step",
    )
    at_end = [str(first_shown) == option[0] for option in (select.options[0], select.options[-1])]
    previous = Button(label="‹", width=34, stylesheets=style, disabled=at_end[0], name="previous")
    following = Button(label="›", width=34, stylesheets=style, disabled=at_end[1], name="next")
    note = Div(
        text=packed[str(first_shown)]["note"],
        render_as_text=True,
        align="center",
        stylesheets=style,
        sizing_mode="stretch_width",
        name="note",
    )
    arguments = {
        "steps": packed,
        "select": select,
        "plot": drawn.plot,
        "x_axis": drawn.plot.xaxis[0],
        "y_axis": drawn.plot.yaxis[0],
        "sources": drawn.sources,
        "note": note,
        "previous": previous,
        "next": following,
    }
    select.js_on_change("value", CustomJS(args=arguments, code=_SHOW))
    for button, by in ((previous, -1), (following, 1)):
        button.js_on_click(CustomJS(args={"select": select, "by": by}, code=_MOVE))
    widgets = row(previous, select, following, note, sizing_mode="stretch_width")
    parts = [widgets, drawn.plot] if len(all_rows) > 1 or shown.note else [drawn.plot]
    return column(*parts, sizing_mode="stretch_width"), drawn


def _packed(rows: Rows, sample: str) -> dict[str, Any]:
    positions, labels = lane_labels(rows)
    return {
        "title": title_text(rows),
        "axis_label": axis_label(rows),
        "positions": positions,
        "labels": labels,
        "x": x_bounds(rows),
        "height": rows.height_px,
        "contents": contents(rows),
        "note": "; ".join(part for part in (rows.note, sample) if part),
    }


def _option(run: Run, step: int, why: str, lengths: pd.Series) -> str:
    built = run.construction(step)
    if built is not None:
        what = built.name if built.count > 1 else "construction"
        return " · ".join(part for part in (what, why) if part)
    length = float(lengths.get(step, float("nan")))
    parts = [f"step {step}", duration(length) if length == length else "not completed", why]
    return " · ".join(part for part in parts if part)
