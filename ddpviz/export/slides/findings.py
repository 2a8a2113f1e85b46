"""All findings in one slide: a sentence for every question that has a view."""

from __future__ import annotations

from collections.abc import Container, Iterable
from html import escape
from typing import TYPE_CHECKING

from ddpviz import analysis
from ddpviz.events import Failure
from ddpviz.export.figures import Moments
from ddpviz.export.slides.slide import Slide
from ddpviz.views.live_views import VIEWS

if TYPE_CHECKING:
    from ddpviz.recording import Recording

#: View → the question that its sentence answers.
_QUESTIONS = {
    "construction": "Construction",
    "plan": "Bucket plan",
    "countdown": "Backward",
    "buffers": "Buffers",
    "finalize": "End of backward",
    "overlap": "Communication",
    "forward_graph": "Forward graph",
    "replicas": "Replicas",
}


def findings(
    recording: Recording,
    title: str,
    moments: Moments,
    step: int,
    failures: Iterable[Failure],
    slides: Container[str],
) -> Slide:
    """Of a step; ``slides``: those in the deck, which sentences lead to."""
    here = moments.at(step)
    first = analysis.finding(recording, step)
    told = [("Failure", f"rank {one.rank} failed: {one.message}", "") for one in failures]
    told.append((f"Step {step}" if step >= 0 else "Construction", first, "timeline"))
    for name, question in _QUESTIONS.items():
        picture = VIEWS[name].picture(here)
        if not picture.empty:
            told.append((question, picture.title, name))
    told += [("Recording", remark, "") for remark in recording.remarks]
    rows = "".join(
        f"<dt>{_linked(question, target, slides)}</dt><dd>{escape(' '.join(said.split()))}</dd>"
        for question, said, target in told[1:]
    )
    return Slide("findings", title, told[0][1], f'<dl class="findings">{rows}</dl>')


def _linked(question: str, target: str, slides: Container[str]) -> str:
    text = escape(question)
    return f'<a href="#/{target}">{text}</a>' if target in slides else text
