"""A recording as one HTML page that works offline, from a file: nothing is fetched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bokeh.document import Document
from bokeh.embed import file_html
from bokeh.resources import Resources

from ddpviz.export import compared, figures, tables
from ddpviz.export.colours import color_scheme, variables
from ddpviz.printable import straight
from ddpviz.views.follow import colour
from ddpviz.views.palette import AUTO, theme_named
from ddpviz.views.selector import selectable

if TYPE_CHECKING:
    from ddpviz.recording import Recording

_TEMPLATE = """
{% from macros import embed %}
{% block preamble %}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="{{ color_scheme }}">
<style>{{ style }}</style>
{% endblock %}
{% block contents %}
<main>
<header>{{ state }}</header>
<section>{{ embed(roots[0]) }}</section>
{% for part in parts %}
<section>
<h2>{{ part.heading }}</h2>
<p class="finding" id="finding-{{ part.name }}">{{ part.finding | e }}</p>
{{ embed(roots[loop.index]) }}
<ul id="facts-{{ part.name }}">{% for fact in part.facts %}<li>{{ fact | e }}</li>{% endfor %}</ul>
</section>
{% endfor %}
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
p.finding { color: var(--ddpviz-text); font-weight: bold; overflow-wrap: anywhere; }
ul { margin: 4px 0 0; padding-left: 20px; color: var(--ddpviz-quiet); }
li { overflow-wrap: anywhere; }
.plans { display: flex; flex-wrap: wrap; gap: 8px 40px; align-items: flex-start; }
.plans > div { max-width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 12px 3px 0; text-align: right; vertical-align: top; }
th { color: var(--ddpviz-quiet); font-weight: normal; border-bottom: 1px solid var(--ddpviz-line);
  position: sticky; top: 0; background: var(--ddpviz-background); }
tr.first td { border-top: 1px solid var(--ddpviz-line); }
td.text, th.text { text-align: left; overflow-wrap: anywhere; max-width: 330px; }
"""


def write_page(recording: Recording, path: str | Path, theme: str = "auto") -> Path:
    """Write the page and return its path: state, timeline of every step, the other views, tables.

    ``theme``: "auto" (as the reader's browser, also when that changes), "light" or "dark".
    Raises ValueError for another theme and for a recording without steps.
    """
    path = Path(path)
    path.write_text(page(recording, theme), encoding="utf-8")
    return path


def page(recording: Recording, theme: str = "auto") -> str:
    """The page of :func:`write_page` as text."""
    if theme != AUTO:
        theme_named(theme)
    selected = selectable(recording)
    colour(selected.drawn, theme)
    document = Document()
    parts = figures.parts(recording, selected, theme)
    state = tables.state_line(recording)
    below = tables.plans_section(recording) + tables.steps_section(recording, selected)
    if (comparison := recording.compared) is not None:
        drawn = compared.bars(comparison, theme)
        heading, verdict = "Configurations compared", comparison.verdict
        parts.append(figures.Part("comparison", heading, verdict, drawn, (), 1))
        below = f"<section>{compared.numbers(comparison)}</section>{below}"
    with document.models.freeze():  # or each root would have Bokeh look through all of them again
        for layout in (selected.layout, *(part.layout for part in parts)):
            document.add_root(layout)
    return straight(
        file_html(
            document,
            resources=Resources(mode="inline"),
            title=f"ddpviz: {state.title}",
            template=_TEMPLATE,
            template_variables={
                "style": variables(theme) + _STYLE,
                "color_scheme": color_scheme(theme),
                "state": state.html,
                "parts": parts,
                "below": below,
            },
        )
    )
