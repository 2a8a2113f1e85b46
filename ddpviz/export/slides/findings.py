"""All findings in one slide: what the audit says is wrong, and a sentence for every view."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from ddpviz import analysis
from ddpviz.events import Failure
from ddpviz.export.figures import Moments
from ddpviz.export.slides.slide import Slide
from ddpviz.views.live_views import VIEWS
from ddpviz.views.text import brief, count

if TYPE_CHECKING:
    from ddpviz.recording import Recording

#: Findings of the audit that are told, the worst ones.
_MOST_AUDITED = 4
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
    costs: Sequence[str] = (),
) -> Slide:
    """``costs``, then the audit's, then those of a step; ``slides``: those in the deck, which
    sentences lead to."""
    here = moments.at(step)
    audited = analysis.audit.audit(recording)
    told = [("Costs most" if place == 0 else "Then", one, "") for place, one in enumerate(costs)]
    told += [
        (one.severity.text.capitalize(), one.what, one.view) for one in audited[:_MOST_AUDITED]
    ]
    if len(audited) > _MOST_AUDITED:
        more = count(len(audited) - _MOST_AUDITED, "more finding")
        told.append(("Audit", f"{more}: ddpviz audit tells them", ""))
    told += [("Failure", f"rank {one.rank} failed: {one.message}", "") for one in failures]
    first = analysis.finding(recording, step)
    told.append((f"Step {step}" if step >= 0 else "Construction", first, "timeline"))
    for name, question in _QUESTIONS.items():
        picture = VIEWS[name].picture(here)
        if not picture.empty:
            told.append((question, picture.title, name))
    told += [("Recording", remark, "") for remark in recording.remarks]
    by_sentence: dict[str, tuple[str, str, str]] = {}
    for one in told:
        by_sentence.setdefault(one[1], one)
    once = [(question, " ".join(said.split()), to) for question, said, to in by_sentence.values()]
    rows = "".join(
        f"<dt>{_linked(question, target, slides)}</dt><dd>{escape(brief(said))}</dd>"
        for question, said, target in (once if audited or costs else once[1:])
    )
    notes = tuple(
        f"{one.what}. Known by: {one.evidence}. Usual cause: {one.cause}. Remedy: {one.remedy}."
        for one in audited[:_MOST_AUDITED]
    )
    html = f'<dl class="findings">{rows}</dl>'
    return Slide("findings", title, told[0][1], html, notes=notes)


def _linked(question: str, target: str, slides: Container[str]) -> str:
    text = escape(question)
    return f'<a href="#/{target}">{text}</a>' if target in slides else text
