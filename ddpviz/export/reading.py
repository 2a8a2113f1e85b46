"""What of a figure can be read in full, below it: chosen from a list, or by a click on its bar."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bokeh.layouts import column
from bokeh.models import CustomJS, InlineStyleSheet, LayoutDOM, PreText, Select

from ddpviz.views.live import LiveFigure, Picture
from ddpviz.views.live_views import VIEWS
from ddpviz.views.selector import WIDGET_STYLE

if TYPE_CHECKING:
    from ddpviz.recording import Recording

#: Characters of all readings of a page together.
_MOST_CHARACTERS = 600_000
_LEFT_OUT = "left out, as this page has no room for it: recording.graphs()['code'] has it"
_STYLE = """
pre {
  max-height: 420px; max-width: calc(100vw - 48px); overflow: auto;
  margin: 4px 0 0; font-size: 12px; line-height: 1.4;
  color: var(--ddpviz-text, var(--jp-ui-font-color1, #1f2328)); white-space: pre;
}
"""
#: Texts come as one text of JSON: Bokeh looks for models in everything else.
_READ = """
select.texts ??= JSON.parse(texts)
shown.text = select.texts[select.value] ?? ""
"""
_TAPPED = """
const key = source.data.reading?.[cb_obj.indices[0]]
if (key) {
  select.value = key
}
"""


def readable(
    name: str,
    drawn: LiveFigure,
    pictures: Iterable[Picture],
    recording: Recording,
    layout: LayoutDOM,
) -> LayoutDOM:
    """The layout of a view's figure above its pictures' readings; itself where there are none."""
    read = VIEWS[name].read
    labels = {key: label for picture in pictures for key, label in picture.readings}
    if read is None or not labels:
        return layout
    texts, room = {}, _MOST_CHARACTERS
    for key in labels:
        text = read(recording, key)
        texts[key] = text if len(text) <= room else _LEFT_OUT
        room -= len(texts[key])
    shown = PreText(
        text="",
        sizing_mode="stretch_width",
        stylesheets=[InlineStyleSheet(css=_STYLE)],
        name=f"reading {name}",
    )
    select = Select(
        title="code of (or click a graph)",
        options=[("", "…"), *labels.items()],
        value="",
        width=480,
        stylesheets=[InlineStyleSheet(css=WIDGET_STYLE)],
        name=f"readings {name}",
    )
    arguments = {"select": select, "shown": shown, "texts": json.dumps(texts)}
    select.js_on_change("value", CustomJS(args=arguments, code=_READ))
    source = drawn.sources["bars"]
    tapped = CustomJS(args={"select": select, "source": source}, code=_TAPPED)
    source.selected.js_on_change("indices", tapped)
    return column(layout, select, shown, sizing_mode="stretch_width")
