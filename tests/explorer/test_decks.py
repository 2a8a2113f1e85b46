"""Slides as a front end asks for them: what it may choose, where they go, what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ddpviz.events import Batch, Frame, Walk
from ddpviz.explorer import controls, registry
from ddpviz.explorer.broadcaster import Client
from ddpviz.explorer.subject import Subject
from ddpviz.export.slides import SLIDES
from tests.views.samples import ZERO_NS, sample_recording


@pytest.fixture
def subject() -> Subject:
    return registry.announce(sample_recording(name="../Conv <Net>"))


def ask(subject: Subject, action: str, **args: Any) -> tuple[Any, list[bytes]]:
    return controls.handle(Client("none"), action, {"session": subject.id, **args})


def test_what_cannot_be_had_is_offered_with_the_reason(subject: Subject) -> None:
    offered, _ = ask(subject, "slides")
    assert {one["name"]: one["title"] for one in offered} == SLIDES
    why = {one["name"]: one["disabled"] for one in offered if one["disabled"]}
    assert why == {
        "comparison": "nothing was compared yet",
        "source": "no step was walked: session.walk().run(1)",
    }
    frame = Frame(0, "torch/nn/modules/module.py", "forward", 1, 0, ZERO_NS, ZERO_NS + 1)
    note = Walk(0, 1, ZERO_NS, (frame,))
    nothing = subject.recording.records(steps=[])[:0]
    subject.recording.append(Batch(0, 1, nothing, (note,)))
    offered, _ = ask(subject, "slides")
    assert {one["name"] for one in offered if one["disabled"]} == {"comparison"}


def test_a_deck_for_the_browser_comes_with_its_bytes(subject: Subject, tmp_path: Path) -> None:
    asked = {"slides": ["plan", "job"], "titles": {"plan": "Mine", "job": ""}, "steps": [1]}
    told, buffers = ask(subject, "deck", place="browser", theme="dark", **asked)
    (page,) = buffers
    assert told["name"] == "Conv-Net-slides.html"
    assert told["size"].endswith(" MiB") and "path" not in told
    text = page.decode()
    assert re.findall(r'<section id="([^"]+)"', text) == ["plan", "job"]
    assert "<h2>Mine</h2>" in text and "<h2>The job</h2>" in text
    assert '<meta name="color-scheme" content="dark">' in text


def test_a_deck_has_the_steps_that_were_asked_for(subject: Subject) -> None:
    _, (page,) = ask(subject, "deck", place="browser", slides=["timeline"], steps=[2, 0])
    assert re.findall(r'"step (\d) [^"]*u00b7', page.decode()) == ["0", "2"]


def test_a_deck_is_saved_where_the_kernel_works_and_none_written_over(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [ask(subject, "deck", place="kernel", slides=["job"])[0]["path"] for _ in range(2)]
    expected = [tmp_path / "Conv-Net-slides.html", tmp_path / "Conv-Net-slides-2.html"]
    assert paths == [str(path) for path in expected]
    assert all(path.stat().st_size > 1_000_000 for path in expected)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"place": "elsewhere"}, "found the place 'elsewhere', expected one of browser, kernel"),
        ({"place": "browser"}, "found no slide to write"),
        ({"place": "browser", "slides": ["nothing"]}, "found the slide 'nothing'"),
        ({"place": "browser", "slides": ["job"], "steps": [99]}, "found no step 99"),
        ({"place": "browser", "slides": ["job"], "steps": "x"}, "found the steps 'x'"),
        ({"place": "browser", "slides": ["job"], "steps": [True]}, "found the steps [True]"),
        ({"place": "browser", "slides": ["job"], "theme": "pink"}, "found the theme 'pink'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    subject: Subject, args: dict[str, Any], said: str
) -> None:
    with pytest.raises(controls.Refused, match=re.escape(said)):
        ask(subject, "deck", **args)
