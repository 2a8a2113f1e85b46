"""Slides as one HTML file: reveal.js and BokehJS inside, nothing fetched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bokeh.document import Document
from bokeh.embed import file_html
from bokeh.models import Spacer
from bokeh.resources import Resources

from ddpviz.export.colours import color_scheme, variables
from ddpviz.export.slides.slide import Slide
from ddpviz.printable import straight

#: What the build of labextension/ leaves.
STATIC = Path(__file__).parents[1] / "static"

_TEMPLATE = """
{% from macros import embed %}
{% block preamble %}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="{{ color_scheme }}">
<style>{{ style }}</style>
{% endblock %}
{% block contents %}
<div class="reveal"><div class="slides">
{% for slide in slides %}
<section id="{{ slide.id | e }}"{% if not slide.layout %} class="words"{% endif %}
{%- if slide.titles %} data-titles='{{ slide.titles | tojson }}'{% endif %}>
<h2>{{ slide.title | e }}</h2>
<p class="finding"{% if slide.view %} id="finding-{{ slide.view }}"{% endif %}>
{{- slide.finding | e }}</p>
{% if slide.layout %}
<div class="figure" data-prevent-swipe>{{ embed(roots[places[slide.id]]) }}</div>
{% endif %}
{{ slide.html }}
{% if slide.view %}
<ul class="facts" id="facts-{{ slide.view }}">
{%- for fact in slide.facts %}<li>{{ fact | e }}</li>{% endfor %}</ul>
{% endif %}
<aside class="notes">{% for note in slide.notes %}<p>{{ note | e }}</p>{% endfor %}</aside>
</section>
{% endfor %}
</div></div>
{% if not places %}<div hidden>{{ embed(roots[0]) }}</div>{% endif %}
<script>{{ script }}</script>
{% endblock %}
"""


def deck(slides: Sequence[Slide], title: str, theme: str) -> str:
    """The file as text. Raises RuntimeError where the browser part was not built."""
    document = Document()
    places: dict[str, int] = {}
    with document.models.freeze():
        for slide in slides:
            if slide.layout is not None:
                places[slide.id] = len(places)
                document.add_root(slide.layout)
        if not places:
            document.add_root(Spacer())  # Bokeh writes no page without anything of its own
    return straight(
        file_html(
            document,
            resources=Resources(mode="inline"),
            title=title,
            template=_TEMPLATE,
            template_variables={
                "style": variables(theme) + _built("deck.css"),
                "script": _built("deck.js"),
                "color_scheme": color_scheme(theme),
                "slides": slides,
                "places": places,
            },
        )
    )


def _built(name: str) -> str:
    try:
        return (STATIC / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RuntimeError(
            f"found no {name}, the deck's browser part, in this installation of ddpviz: in a "
            "checkout `make lab` builds it; else install ddpviz from a wheel"
        ) from None
