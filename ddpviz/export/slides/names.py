"""The slides there are, in order, and the titles they have unless others are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: Slide → its title.
SLIDES: dict[str, str] = {
    "job": "The job",
    "timeline": "Timeline of a typical step",
    "plan": "Bucket plan: as registered, first, rebuilt",
    "countdown": "The backward, replayed",
    "buffers": "Buffers",
    "overlap": "Hidden and exposed communication",
    "comparison": "Configurations compared",
    "findings": "Findings",
    "source": "The source lines that ran",
    "close": "How to reproduce this",
}
#: Those that are a live view of that name.
VIEWS = ("plan", "countdown", "buffers", "overlap")


def chosen(slides: Iterable[str] | None, titles: Mapping[str, str] | None) -> dict[str, str]:
    """Slide → title, in the order asked for; all of them for None.

    Raises ValueError for a slide that there is not, one asked for twice, and a title of neither.
    """
    names = list(SLIDES) if slides is None else [slides] if isinstance(slides, str) else [*slides]
    titles = titles or {}
    for name in (*names, *titles):
        if name not in SLIDES:
            raise ValueError(f"found the slide {name!r}, expected some of {', '.join(SLIDES)}")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"found the slide {name!r} twice, expected each one once")
    if not names:
        raise ValueError(f"found no slide to write, expected some of {', '.join(SLIDES)}")
    return {name: titles.get(name, SLIDES[name]) for name in names}
