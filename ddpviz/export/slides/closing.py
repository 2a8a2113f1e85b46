"""The last slide: the commands that show the same again, how it was measured, what was left out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from ddpviz.analysis.communication import enqueued
from ddpviz.events import DeviceClock, Kind
from ddpviz.export.slides import typical
from ddpviz.export.slides.slide import Slide
from ddpviz.export.slides.typical import inferred

if TYPE_CHECKING:
    from ddpviz.recording import Recording

_HATCHED = (
    "Hatched is derived, not measured: what happens inside the Reducer's C++ is not seen from "
    "outside."
)


def measured(recording: Recording) -> list[str]:
    """How this recording's times were, a sentence each."""
    if inferred(recording):
        told = [
            "Times are those of the profiler's rows; which bucket a gradient went into, and when "
            "it was ready, is concluded from them.",
        ]
    else:
        told = [
            "Begin and end of DDP's phases are the host's clock, in ns; when a gradient was ready "
            "comes from the Reducer itself.",
        ]
    calls = recording.records(kinds=(Kind.COLLECTIVE_LAUNCHED, Kind.COLLECTIVE_DONE))
    if enqueued(calls).any():
        told.append(
            "On CUDA the host only enqueued collectives: hidden and exposed communication are not "
            "known here."
        )
    elif recording.notes(DeviceClock):
        told.append("On the GPU times are those of events in its streams, put on the host's clock.")
    return [*told, _HATCHED]


def closing(
    title: str,
    path: str,
    step: int,
    asked: Sequence[str],
    recording: Recording,
    version: str,
    thinned: Sequence[str],
) -> Slide:
    """``path``: of the recording, or of traces, as a shell takes it; ``step``: that is shown first;
    ``asked``: the options of the deck; ``thinned``: what it has less of than the recording."""
    torch = typical.torch_of(recording)
    commands = [f"ddpviz slides {path} -o talk.html {shlex.join(asked)}".rstrip()]
    if len(shlex.split(path)) == 1:
        commands.append(f"ddpviz show {path} --html page.html")
    commands.append(f"ddpviz explain {path} --step={step}")
    lines = "\n".join(escape(command) for command in commands)
    left_out = thinned or ("Nothing: all recorded steps are in this deck.",)
    html = (
        f"<pre>{lines}</pre>"
        f'<p class="quiet">ddpviz {escape(version)}, torch {escape(torch or "unknown")}. '
        "This file needs no network and no kernel.</p>"
        f'<div class="columns"><div><h3>How it was measured</h3>{_items(measured(recording))}</div>'
        f"<div><h3>What this deck leaves out</h3>{_items(left_out)}</div></div>"
    )
    return Slide("close", title, "The same recording, with these commands", html)


def _items(sentences: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(one)}</li>' for one in sentences)}</ul>"
