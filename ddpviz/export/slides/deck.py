"""A recording's deck: which slides it gets, of which steps, in a file of bounded size."""

from __future__ import annotations

import dataclasses
import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from bokeh.models import InlineStyleSheet, Select

import ddpviz
from ddpviz import analysis
from ddpviz.events import Failure, Module
from ddpviz.export import compared
from ddpviz.export.figures import MOST_ROWS, Moments, Part, parts
from ddpviz.export.slides import html, names, typical
from ddpviz.export.slides.closing import closing
from ddpviz.export.slides.findings import findings
from ddpviz.export.slides.job import job, ranks, workload
from ddpviz.export.slides.slide import Slide
from ddpviz.export.slides.speaking import POINT_AT
from ddpviz.export.slides.stations import stations, walked
from ddpviz.views.follow import colour
from ddpviz.views.live import HISTORY_STEPS
from ddpviz.views.live_views import VIEWS as LIVE_VIEWS
from ddpviz.views.palette import AUTO, theme_named
from ddpviz.views.selector import WIDGET_STYLE, Selected, selectable

if TYPE_CHECKING:
    from ddpviz.analysis.compare import Comparison
    from ddpviz.recording import Recording

#: What a deck stays below, whatever was recorded.
LIMIT_BYTES = 15_000_000
#: Glyphs of all steps of the timeline together; a quarter at a time less, until the deck stays
#: below its limit.
_MOST_GLYPHS = 16_000
#: What figures fit their texts to: the deck's own script enlarges letters beyond it.
_WIDTH_PX = 920


def write_slides(
    recording: Recording,
    path: str | Path,
    *,
    slides: Iterable[str] | None = None,
    titles: Mapping[str, str] | None = None,
    title: str | None = None,
    steps: int | Sequence[int] | None = None,
    theme: str = AUTO,
    comparison: Comparison | None = None,
    source: str | None = None,
    costs: Sequence[str] = (),
) -> Path:
    """Write the deck and return its path: one HTML file, alive without network and kernel.

    ``slides``: some of :data:`~ddpviz.export.slides.SLIDES`, in their order; by default all that
    the recording has something for. ``titles``: by slide, in place of theirs; ``title``: of the
    deck. ``steps``: those to choose from, the first of them shown; by default the median one is
    shown, and as many others can be chosen as there is room for. ``theme``: "auto" (as the
    reader's browser), "light" or "dark". ``comparison``: of :meth:`ddpviz.Session.compare`;
    by default the last one that was made of this recording.
    ``source``: what the last slide calls the recording, as a shell takes it; by default its
    directory. ``costs``: what costs most in a step, as the story of traces has it, in sentences;
    findings begin with them.

    The file stays below :data:`LIMIT_BYTES`: steps are left out for that, and the deck says which;
    it warns where one step alone is larger.
    Raises ValueError for a slide, step or theme that there is not and for a recording without
    steps; RuntimeError where ddpviz was not built; OSError where it cannot be written.
    """
    path = Path(path)
    path.write_text(
        slides_page(
            recording,
            slides=slides,
            titles=titles,
            title=title,
            steps=steps,
            theme=theme,
            comparison=comparison,
            source=source,
            costs=costs,
        ),
        encoding="utf-8",
    )
    return path


def slides_page(
    recording: Recording,
    *,
    slides: Iterable[str] | None = None,
    titles: Mapping[str, str] | None = None,
    title: str | None = None,
    steps: int | Sequence[int] | None = None,
    theme: str = AUTO,
    comparison: Comparison | None = None,
    source: str | None = None,
    costs: Sequence[str] = (),
) -> str:
    """The deck of :func:`write_slides` as text."""
    if theme != AUTO:
        theme_named(theme)
    chosen = names.chosen(slides, titles)
    comparison = recording.compared if comparison is None else comparison
    if comparison is None and "comparison" in chosen:
        if slides is not None:
            raise ValueError(
                "found the slide 'comparison' and nothing that was compared in this recording, "
                "expected what session.compare() ran, or a deck without that slide"
            )
        del chosen["comparison"]
    if title is not None and "job" not in (titles or {}):
        chosen |= {"job": title} if "job" in chosen else {}
    asked = _Asked(
        recording=recording,
        slides=chosen,
        explicit=slides is not None,
        plain=frozenset(chosen) - frozenset(titles or {}),
        steps=None if steps is None else (steps,) if isinstance(steps, int) else tuple(steps),
        theme=theme,
        comparison=comparison,
        source=source or shlex.quote(str(recording.directory or "RECORDING")),
        costs=tuple(costs),
        options=_options(steps, slides, titles, title, theme),
    )
    if asked.steps == ():
        raise ValueError("found no step in steps, expected at least one, or None for the median")
    named = title or f"{workload(recording)}, {ranks(recording)}"
    most = _MOST_GLYPHS
    while True:
        page = html.deck(_slides(asked, most), named, theme)
        size = len(page.encode("utf-8"))
        if size < LIMIT_BYTES:
            return page
        if most < 2:
            warnings.warn(
                f"found {size / 1e6:.0f} MB of one step, expected {LIMIT_BYTES / 1e6:.0f} MB at "
                "most: it is too large for a deck that is opened quickly",
                stacklevel=2,
            )
            return page
        most //= 4


@dataclasses.dataclass(frozen=True)
class _Asked:
    """What a deck is asked for. ``plain``: slides whose title is nobody's but ours."""

    recording: Recording
    slides: dict[str, str]
    explicit: bool
    plain: frozenset[str]
    steps: tuple[int, ...] | None
    theme: str
    comparison: Comparison | None
    source: str
    costs: tuple[str, ...]
    options: tuple[str, ...]


def _compared(comparison: Comparison, title: str, theme: str) -> Slide:
    finding = comparison.verdict[:1].upper() + comparison.verdict[1:]
    table, plot = compared.numbers(comparison), compared.bars(comparison, theme)
    return Slide("comparison", title, finding, table, plot)


def _options(
    steps: int | Sequence[int] | None,
    slides: Iterable[str] | None,
    titles: Mapping[str, str] | None,
    title: str | None,
    theme: str,
) -> tuple[str, ...]:
    """Of the command that makes the same deck."""
    asked = () if steps is None else (steps,) if isinstance(steps, int) else steps
    given = [slides] if isinstance(slides, str) else list(slides or ())
    named = [f"{slide}={text}" for slide, text in (titles or {}).items()]
    return (
        *(f"--step={step}" for step in asked),
        *(f"--title={text}" for text in (*([] if title is None else [title]), *named)),
        *(() if theme == AUTO else (f"--theme={theme}",)),
        *(("--slides", *given) if given else ()),
    )


def _slides(asked: _Asked, most_glyphs: int) -> list[Slide]:
    recording, titles = asked.recording, asked.slides
    table = analysis.steps(recording)
    shown, why = typical.step(recording, table) if asked.steps is None else (asked.steps[0], "")
    opened = typical.open_ranks(table, shown)
    selected = selectable(recording, opened, shown=shown, only=asked.steps, most_glyphs=most_glyphs)
    first = selected.shown
    found: dict[str, list[Slide]] = {
        "job": [job(recording, titles.get("job", ""), table)],
        "timeline": [_timeline(asked, selected, why)],
    }
    views = {name: titles[name] for name in names.VIEWS if name in titles}
    if not asked.explicit and not _has_buffers(recording):
        views.pop("buffers", None)
        titles = {name: text for name, text in titles.items() if name != "buffers"}
    rows = MOST_ROWS * most_glyphs // _MOST_GLYPHS
    every = parts(recording, selected, asked.theme, views, _WIDTH_PX, rows)
    drawn = {part.name: part for part in every}
    for name, part in drawn.items():
        if not (part.layout.visible or asked.explicit):
            found[name] = []  # of no step there is anything to see
            continue
        if name == "countdown":
            _let_choose(part, selected)
        found[name] = [
            Slide(name, part.heading, part.finding, "", part.layout, name, part.facts, part.facts)
        ]
    if asked.comparison is not None:
        found["comparison"] = [
            _compared(asked.comparison, titles.get("comparison", ""), asked.theme)
        ]
    walk = None
    if "source" in titles:
        walk = walked(recording, first, asked.explicit, exactly=asked.steps is not None)
    found["source"] = [] if walk is None else stations(walk, titles["source"])
    if "findings" in titles:
        moments = Moments(recording, [first], _WIDTH_PX, ["timeline"])
        failures = recording.notes(Failure)
        found["findings"] = [
            findings(recording, titles["findings"], moments, first, failures, titles, asked.costs)
        ]
    if "close" in titles:
        thinned = _thinned(selected, drawn, asked.steps, table, opened)
        found["close"] = [
            closing(
                titles["close"],
                asked.source,
                first,
                asked.options,
                recording,
                ddpviz.__version__,
                thinned,
            )
        ]
    return [
        dataclasses.replace(slide, notes=(*POINT_AT[name], *slide.notes))
        for name in titles
        for slide in found[name]
    ]


def _has_buffers(recording: Recording) -> bool:
    """Whether a module has any, or that is not known."""
    modules = recording.notes(Module)
    return not modules or any(note.buffers for note in modules)


def _timeline(asked: _Asked, selected: Selected, why: str) -> Slide:
    colour(selected.drawn, asked.theme)
    plot = selected.drawn.plot
    finding = analysis.finding(asked.recording, selected.shown)
    plot.title.visible = False
    title, titles = asked.slides.get("timeline", ""), dict[str, str]()
    if "timeline" in asked.plain:
        told = f"step {selected.shown}" if selected.shown >= 0 else "a construction"
        title = f"{title}: {told}, {why}" if why else f"Timeline of {told}"
        titles = _titles(selected) | {str(selected.shown): title}
    return Slide("timeline", title, finding, "", selected.layout, "timeline", titles=titles)


def _titles(selected: Selected) -> dict[str, str]:
    """The timeline's heading, by value of its selector of steps."""
    select = selected.layout.select_one({"name": "step"})
    if select is None:
        return {}
    named = {value: text.split(" · ")[0] for value, text in select.options}
    return {
        value: f"Timeline of {'a construction' if name == 'construction' else name}"
        for value, name in named.items()
    }


def _let_choose(part: Part, selected: Selected) -> None:
    """A list of steps on this slide too: both choose for all slides."""
    first = selected.layout.select_one({"name": "step"})
    if first is None:
        return
    style = [InlineStyleSheet(css=WIDGET_STYLE)]
    twin = Select(
        value=first.value, options=first.options, width=270, stylesheets=style, align="end"
    )
    twin.js_link("value", first, "value")
    first.js_link("value", twin, "value")
    widgets = part.layout.children[0]
    widgets.children = [twin, *widgets.children]


def _thinned(
    selected: Selected,
    drawn: Mapping[str, Part],
    asked: Sequence[int] | None,
    table: pd.DataFrame,
    opened: Sequence[int] | None,
) -> list[str]:
    """What the deck has less of than the recording, a sentence each. ``opened``: ranks whose
    buckets have lanes, None for all."""
    told = []
    if opened is not None:
        ranks = ", ".join(map(str, opened))
        told.append(f"Lanes of buckets: of rank {ranks} only; other ranks are one line each.")
    recorded = int(table["step"].nunique())
    shown = sum(step >= 0 for step in selected.steps)
    if shown < recorded and asked is None:
        told.append(
            f"Timelines: {shown} of {recorded} steps, the telling ones and others at even "
            "distances."
        )
    if asked is not None:
        missing = sorted(set(asked) - set(selected.steps))
        lacks = f"; no room for {', '.join(map(str, missing))}" if missing else ""
        here = ", ".join(map(str, selected.steps))
        told.append(f"Steps: only those asked for, {here}{lacks}.")
    for part in drawn.values():
        same = LIVE_VIEWS[part.name].basis is not None  # as that of most other steps
        if 1 < part.pictures < len(selected.steps) and not same:
            told.append(
                f"{part.heading}: pictures of {part.pictures} of these {len(selected.steps)} "
                "steps; for another the nearest is shown, and said."
            )
    of_all = [drawn[name].heading for name in ("buffers", "overlap") if name in drawn]
    if recorded > HISTORY_STEPS and of_all:
        each = -(-recorded // HISTORY_STEPS)
        told.append(
            f"{' and '.join(of_all)}: of {recorded} steps each bar is the mean of {each} "
            "neighbours."
        )
    return told
