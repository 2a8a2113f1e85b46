"""The figures of a page below its timeline: the live views, which follow the timeline's selector.

Each comes with its pictures of some steps, as data, and the browser puts one in.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from bokeh.layouts import column, row
from bokeh.models import Button, CustomJS, InlineStyleSheet, LayoutDOM, Slider

from ddpviz.analysis.tables import StepIndex
from ddpviz.export.reading import readable
from ddpviz.following.whole import still
from ddpviz.following.window import Window
from ddpviz.views.columns import Columns
from ddpviz.views.follow import colour_plot
from ddpviz.views.legend import wrap
from ddpviz.views.live import LiveFigure, Moment, Pairs, Picture, properties, show
from ddpviz.views.live_views import VIEWS
from ddpviz.views.selector import WIDGET_STYLE

if TYPE_CHECKING:
    from ddpviz.recording import Recording
    from ddpviz.views.selector import Selected

#: View → its heading, in the page's order.
HEADINGS = {
    "construction": "Construction",
    "plan": "Bucket plan, in order",
    "countdown": "Countdown",
    "buffers": "Buffers",
    "finalize": "Finalize",
    "overlap": "Hidden and exposed communication",
    "forward_graph": "Forward graph",
    "compile": "Compile",
    "replicas": "Replicas",
}
#: Rows of all pictures of a view: some 1 MB of page.
MOST_ROWS = 4_000
_WIDTH_PX = 1060
_log = logging.getLogger("ddpviz")
#: Parts of a replay.
_STEPS = 1000

#: What is data only comes as one text of JSON: Bokeh looks for models in everything else.
_SHOW = """
const column = (values) => {
  return typeof values[0] == "string" ? values : Float64Array.from(values, (one) => one ?? NaN)
}
const value = (name, value) => {
  return name != "major_label_overrides" ? value
    : new Map(Object.entries(value).map(([tick, text]) => [Number(tick), text]))
}
const each = (object, change) => {
  return Object.fromEntries(Object.entries(object).map(([key, one]) => [key, change(key, one)]))
}
for (const view of views) {
  const {name, models, sources} = view
  view.parsed ??= JSON.parse(view.json)
  const {of, pictures, contents} = view.parsed
  const {at, note} = of[select.value]
  const {properties, data, title, facts} = pictures[at]
  const finding = document.getElementById(`finding-${name}`)
  if (finding != null) {
    finding.textContent = title
  }
  for (const [model, values] of properties) {
    models[model].setv(each(values, value))
  }
  for (const [source, place] of data) {
    sources[source].data = each(contents[place], (_, values) => column(values))
  }
  const list = document.getElementById(`facts-${name}`)
  list?.replaceChildren(...[...note, ...facts].map((fact) => {
    const item = document.createElement("li")
    item.textContent = fact
    return item
  }))
}
if (slider != null) {
  slider.value = slider.end
}
"""
_MOVE = """
const {begin, right} = cursor.data
slider.disabled = begin.length == 0
if (begin.length > 0) {
  const now = begin[0] + (right[0] - begin[0]) * slider.value / slider.end
  slider.title = `${now.toFixed(1)} of ${right[0].toFixed(1)} ms`
  if (cursor.data.x[0] !== now) {
    cursor.data = {...cursor.data, x: [now]}
  }
}
"""
_PLAY = """
const stop = () => {
  clearInterval(play.replay)
  play.replay = null
  play.label = "▶ Play"
}
if (play.replay != null) {
  stop()
} else {
  if (slider.value >= slider.end) {
    slider.value = 0
  }
  play.label = "❚❚ Pause"
  play.replay = setInterval(() => {
    slider.value = Math.min(slider.value + slider.end / 160, slider.end)
    if (slider.value >= slider.end) {
      stop()
    }
  }, 50)
}
"""


@dataclasses.dataclass(frozen=True)
class Part:
    """A figure of the page, whose title and facts the page has as text, which wraps.

    They stand in elements with the ids finding-``name`` and facts-``name``. ``pictures``: how many
    there are; a step without one has that of the nearest.
    """

    name: str
    heading: str
    finding: str
    layout: LayoutDOM
    facts: tuple[str, ...]
    pictures: int


def parts(
    recording: Recording,
    selected: Selected,
    theme: str,
    headings: Mapping[str, str] = HEADINGS,
    width_px: int = _WIDTH_PX,
    most_rows: int = MOST_ROWS,
) -> list[Part]:
    """The figures of some views with their headings, hung to the timeline's selector.

    ``width_px``: that their texts are to fit; ``most_rows``: of all pictures of a view, that of
    the first step not among them.
    """
    moments = Moments(recording, selected.steps, width_px, list(headings))
    select = selected.layout.select_one({"name": "step"})
    shown = selected.steps[0] if select is None else int(select.value)
    made, packed = [], []
    slider: Slider | None = None
    for name, heading in headings.items():
        drawn = VIEWS[name].draw()
        pictures = _pictures(name, moments, selected.steps, shown, most_rows)
        show(drawn, pictures[shown])
        drawn.plot.visible = not pictures[shown].empty
        colour_plot(drawn.plot, drawn.themed, theme)
        for legend in drawn.plot.legend:
            wrap(drawn.plot, legend)
        layout: LayoutDOM = drawn.plot
        if "cursor" in drawn.sources:
            slider, layout = _replayed(drawn)
        layout = readable(name, drawn, pictures.values(), recording, layout)
        # A heading and a sentence are all there is of it.
        layout.visible = not all(picture.empty for picture in pictures.values())
        drawn.plot.title.visible = False
        first = pictures[shown]
        made.append(Part(name, heading, first.title, layout, first.facts, len(pictures)))
        packed.append(_packed(name, drawn, pictures, selected.steps))
    if select is not None:
        arguments = {"views": packed, "select": select, "slider": slider}
        select.js_on_change("value", CustomJS(args=arguments, code=_SHOW))
    return made


class Moments:
    """Moments of some steps, which some views draw; the recording is read once for them."""

    def __init__(
        self, recording: Recording, steps: list[int], width_px: int, views: Sequence[str]
    ) -> None:
        shown = [VIEWS[name] for name in views]
        self._newest = still(recording, None, "nothing recorded yet", width_px, shown)
        self._recording = recording
        self._records = recording.records(steps=[-1, *steps])
        self._index = StepIndex(self._records)

    def at(self, step: int) -> Moment:
        """The moment of a step, or of a construction (-1, -2, …)."""
        records = self._records[self._index.rows(max(step, -1))]
        window = Window(self._recording, records, narrow=step >= 0)
        return dataclasses.replace(self._newest, source=window, step=step)


def _pictures(
    name: str, moments: Moments, steps: list[int], shown: int, most_rows: int
) -> dict[int, Picture]:
    """By step; of the one that is shown first, and as many others as the page has room for."""
    view = VIEWS[name]
    known: dict[Any, Picture] = {}

    def picture(step: int) -> Picture:
        moment = moments.at(step)
        drawn_from = step if view.basis is None or step < 0 else view.basis(moment.source)
        if drawn_from not in known:
            known[drawn_from] = _drawn(name, moment)
        return known[drawn_from]

    first = picture(shown)
    if not view.of_step:
        return {shown: first}
    rows = sum(len(next(iter(columns.values()))) for columns in first.sources.values())
    room = max(most_rows // max(rows, 1) - 1, 0 if most_rows < MOST_ROWS else 1)
    others = [step for step in steps if step != shown]
    if len(others) > room:
        at = np.linspace(0, len(others) - 1, room).round().astype(int)
        others = [others[place] for place in np.unique(at)]
    return {step: first if step == shown else picture(step) for step in sorted([shown, *others])}


def _drawn(name: str, moment: Moment) -> Picture:
    """A moment that one view cannot draw must not cost the page."""
    try:
        return VIEWS[name].picture(moment)
    except Exception as error:
        _log.exception("the view %s could not draw step %s", name, moment.step)
        what = " ".join(f"{type(error).__name__}: {error}".split())
        hint = f"step {moment.step} cannot be drawn: {what}"
        empty = VIEWS[name].picture(dataclasses.replace(moment, step=None, hint=hint))
        return dataclasses.replace(empty, step=moment.step or 0)


def _packed(
    name: str, drawn: LiveFigure, pictures: dict[int, Picture], steps: list[int]
) -> dict[str, Any]:
    """For the browser: pictures by their place, and which of them each step of the page shows.

    ``contents``: columns of sources, each only once, as most steps share some.
    """
    contents: dict[str, int] = {}
    models: dict[str, Any] = {}
    packed = []
    for picture in pictures.values():
        data = [
            [source, contents.setdefault(_json(columns), len(contents))]
            for source, columns in picture.sources.items()
        ]
        changed = []
        seen: Pairs = [(drawn.plot, {"visible": not picture.empty})]
        for model, values in (*properties(drawn, picture), *seen):
            models.setdefault(model.id, model)
            changed.append([list(models).index(model.id), values])
        told = {"title": picture.title, "facts": list(picture.facts)}
        packed.append({"properties": changed, "data": data, **told})
    known = list(pictures)
    of = {}
    for step in steps:
        nearest = min(known, key=lambda one: abs(one - step))
        note = []
        if nearest != step and VIEWS[name].of_step and VIEWS[name].basis is None:
            note = [f"of step {step} this page has no picture here: this is step {nearest}"]
        of[str(step)] = {"at": known.index(nearest), "note": note}
    shown = json.dumps({"of": of, "pictures": packed})
    return {
        "name": name,
        "models": list(models.values()),
        "sources": drawn.sources,
        "json": f'{shown[:-1]}, "contents": [{", ".join(contents)}]}}',
    }


def _json(columns: Columns) -> str:
    """Columns as JSON, which has no NaN."""
    return json.dumps(
        {
            name: [None if math.isnan(value) else value for value in values.tolist()]
            if isinstance(values, np.ndarray)
            else values
            for name, values in columns.items()
        }
    )


def _replayed(drawn: LiveFigure) -> tuple[Slider, LayoutDOM]:
    """The figure below a button and a slider that move its cursor."""
    style = [InlineStyleSheet(css=WIDGET_STYLE)]
    slider = Slider(
        start=0,
        end=_STEPS,
        value=_STEPS,
        step=1,
        title="time in the step",
        show_value=False,
        bar_color="#0072B2",
        width=360,
        stylesheets=style,
        name="time",
    )
    play = Button(label="▶ Play", width=90, stylesheets=style, name="play", align="end")
    moved = CustomJS(args={"cursor": drawn.sources["cursor"], "slider": slider}, code=_MOVE)
    slider.js_on_change("value", moved)
    play.js_on_click(CustomJS(args={"play": play, "slider": slider}, code=_PLAY))
    layout = column(row(play, slider), drawn.plot, sizing_mode="stretch_width")
    return slider, layout
