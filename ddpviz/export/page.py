"""A recording as one HTML page that works offline, from a file: nothing is fetched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bokeh.document import Document
from bokeh.embed import file_html
from bokeh.events import DocumentReady
from bokeh.models import CustomJS
from bokeh.resources import Resources

from ddpviz.export import tables
from ddpviz.views.figure import apply_theme, themed
from ddpviz.views.palette import DARK, LIGHT, THEMES, Theme
from ddpviz.views.selector import Selected, selectable

if TYPE_CHECKING:
    from ddpviz.recording import Recording

#: Themes of a page; "auto" follows the reader's browser, also while the page is open.
PAGE_THEMES = ("auto", *THEMES)

_TEMPLATE = """
{% block preamble %}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="{{ color_scheme }}">
<style>{{ style }}</style>
{% endblock %}
{% block contents %}
<main>
<header>{{ state }}</header>
<section>{{ super() }}</section>
{{ below }}
</main>
{% endblock %}
"""

_STYLE = """
body {
  margin: 0; background: var(--ddpviz-background); color: var(--ddpviz-text);
  font: 13px/1.45 Helvetica, Arial, sans-serif;
  /* What BokehJS reads for its tooltips. */
  --background-color: var(--ddpviz-background); --color: var(--ddpviz-text);
  --divider-color: var(--ddpviz-line);
}
main { padding: 10px 16px 32px; }
header { color: var(--ddpviz-quiet); margin-bottom: 8px; }
header b { color: var(--ddpviz-text); }
h2 { font-size: 15px; margin: 22px 0 6px; }
h3 { font-size: 13px; margin: 8px 0 4px; }
p { color: var(--ddpviz-quiet); margin: 0 0 6px; }
.scroll { max-height: 340px; overflow: auto; }
.plans { display: flex; flex-wrap: wrap; gap: 8px 40px; align-items: flex-start; }
.plans > div { max-width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 12px 3px 0; text-align: right; vertical-align: top; }
th { color: var(--ddpviz-quiet); font-weight: normal; border-bottom: 1px solid var(--ddpviz-line);
  position: sticky; top: 0; background: var(--ddpviz-background); }
tr.first td { border-top: 1px solid var(--ddpviz-line); }
td.text, th.text { text-align: left; overflow-wrap: anywhere; max-width: 330px; }
"""

_FOLLOW = """
const dark = window.matchMedia("(prefers-color-scheme: dark)")
const apply = () => {
  for (const [model, light, night] of themed) {
    model.setv(dark.matches ? night : light)
  }
}
dark.addEventListener("change", apply)
apply()
"""


def write_page(recording: Recording, path: str | Path, theme: str = "auto") -> Path:
    """Write the page and return its path: state, timeline of every step, steps, bucket plans.

    ``theme``: "auto" (as the reader's browser), "light" or "dark". Raises ValueError for another
    theme and for a recording without steps.
    """
    path = Path(path)
    path.write_text(page(recording, theme), encoding="utf-8")
    return path


def page(recording: Recording, theme: str = "auto") -> str:
    """The page of :func:`write_page` as text."""
    if theme not in PAGE_THEMES:
        raise ValueError(f"found the theme {theme!r}, expected one of {list(PAGE_THEMES)}")
    selected = selectable(recording)
    apply_theme(selected.drawn, THEMES.get(theme, LIGHT))
    document = Document()
    document.add_root(selected.layout)
    if theme == "auto":
        document.js_on_event(DocumentReady, CustomJS(args=_both_themes(selected), code=_FOLLOW))
    state = tables.state_line(recording)
    below = tables.steps_section(recording, selected) + tables.plans_section(recording)
    return str(
        file_html(
            document,
            resources=Resources(mode="inline"),
            title=f"ddpviz: {state.title}",
            template=_TEMPLATE,
            template_variables={
                "style": _variables(theme) + _STYLE,
                "color_scheme": "light dark" if theme == "auto" else theme,
                "state": state.html,
                "below": below,
            },
        )
    )


def _both_themes(selected: Selected) -> dict[str, list[list[object]]]:
    pairs = zip(themed(selected.drawn, LIGHT), themed(selected.drawn, DARK), strict=True)
    return {"themed": [[model, light, night] for (model, light), (_, night) in pairs]}


def _variables(theme: str) -> str:
    """CSS variables of the page's theme."""
    if theme != "auto":
        return _root(THEMES[theme])
    return _root(LIGHT) + "@media (prefers-color-scheme: dark) {" + _root(DARK) + "}\n"


def _root(theme: Theme) -> str:
    return (
        f":root {{ --ddpviz-background: {theme.background}; --ddpviz-text: {theme.text}; "
        f"--ddpviz-quiet: {theme.quiet_text}; --ddpviz-line: {theme.grid}; }}\n"
    )
