"""Slides of what a front end looks at: which it may choose, and the deck to download or to save."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ddpviz.events import Walk
from ddpviz.explorer.subject import Subject
from ddpviz.export.slides import SLIDES
from ddpviz.export.slides.deck import slides_page
from ddpviz.views.text import size

#: Where a deck goes.
PLACES = ("browser", "kernel")
_MOST_FILES = 1000
#: Of a title.
_MOST_CHARACTERS = 300


def offered(subject: Subject) -> list[dict[str, Any]]:
    """Slides with their titles, and why one cannot be had."""
    why = dict.fromkeys(SLIDES) | _missing(subject)
    return [{"name": name, "title": title, "disabled": why[name]} for name, title in SLIDES.items()]


def deck(subject: Subject, args: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """Make it: its name and size, and its bytes where the browser is to keep it.

    ``args``: "slides" and "titles" by slide, "title", "steps" (their numbers, the first of them
    shown; null for the median one), "theme", "place": "browser", or "kernel" for a file in the
    kernel's working directory. Raises ValueError for what cannot be.
    """
    place, steps, titles = args.get("place"), args.get("steps"), args.get("titles") or {}
    if place not in PLACES:
        raise ValueError(f"found the place {place!r}, expected one of {', '.join(PLACES)}")
    if not _numbers(steps):
        raise ValueError(f"found the steps {steps!r}, expected numbers, or null for the median one")
    name = subject.state()["name"]
    page = slides_page(
        subject.recording,
        slides=[str(one) for one in args.get("slides") or ()],
        titles={one: str(said)[:_MOST_CHARACTERS] for one, said in titles.items() if said},
        title=str(args.get("title") or "")[:_MOST_CHARACTERS] or None,
        steps=steps,
        theme=str(args.get("theme") or "auto"),
        source=None if subject.session is None else str(subject.session.directory),
    ).encode("utf-8")
    file = f"{re.sub('[^A-Za-z0-9._-]+', '-', name).strip('-.') or 'ddpviz'}-slides.html"
    told = {"name": file, "size": size(len(page))}
    if place == "browser":
        return told, [page]
    path = _free(Path.cwd(), file)
    path.write_bytes(page)
    return {**told, "name": path.name, "path": str(path)}, []


def _numbers(steps: Any) -> bool:
    if steps is None:
        return True
    return isinstance(steps, list) and all(type(step) is int for step in steps)


def _missing(subject: Subject) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    if subject.recording.compared is None:
        found["comparison"] = "nothing was compared yet"
    if not any(note.frames for note in subject.recording.notes(Walk)):
        found["source"] = "no step was walked: session.walk().run(1)"
    return found


def _free(folder: Path, file: str) -> Path:
    """A name that nothing has yet: a deck that somebody edited is not written over."""
    stem, _, ending = file.rpartition(".")
    names = [file, *(f"{stem}-{number}.{ending}" for number in range(2, _MOST_FILES))]
    return next(folder / name for name in names if not (folder / name).exists())
