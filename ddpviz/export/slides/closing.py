"""The last slide: the commands that show the same again, how it was measured, what was left out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from html import escape

from ddpviz.export.slides.slide import Slide

_MEASURED = (
    "Begin and end of DDP's phases are the host's clock, in ns; when a gradient was ready comes "
    "from the Reducer itself.",
    "Hatched is derived, not measured: what happens inside the Reducer's C++ is not seen from "
    "outside.",
    "On CUDA the host only enqueues collectives: hidden and exposed communication are not known "
    "there.",
)


def closing(
    title: str, path: str, step: int, torch: str, version: str, thinned: Sequence[str]
) -> Slide:
    """``path``: of the recording; ``thinned``: what the deck has less of than the recording."""
    quoted = shlex.quote(path)
    commands = (
        f"ddpviz slides {quoted} --step={step} -o talk.html",
        f"ddpviz show {quoted} --html page.html",
        f"ddpviz explain {quoted} --step={step}",
    )
    lines = "\n".join(escape(command) for command in commands)
    left_out = thinned or ("Nothing: all recorded steps are in this deck.",)
    html = (
        f"<pre>{lines}</pre>"
        f'<p class="quiet">ddpviz {escape(version)}, torch {escape(torch or "unknown")}. '
        "This file needs no network and no kernel.</p>"
        f'<div class="columns"><div><h3>How it was measured</h3>{_items(_MEASURED)}</div>'
        f"<div><h3>What this deck leaves out</h3>{_items(left_out)}</div></div>"
    )
    return Slide("close", title, "The same recording, with these commands", html)


def _items(sentences: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(one)}</li>' for one in sentences)}</ul>"
