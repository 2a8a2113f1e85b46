"""What a deck is made of, without a browser: its slides, what it refuses, how large it gets."""

from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.slides import repeated
from ddpviz import analysis
from ddpviz.events import Batch, Failure
from ddpviz.export.page import page
from ddpviz.export.slides import LIMIT_BYTES, SLIDES, typical
from ddpviz.export.slides.deck import slides_page
from ddpviz.recording import Recording
from ddpviz.views.live import HISTORY_STEPS
from tests.export.material import compared
from tests.views.samples import ZERO_NS, sample_recording

HOSTILE = "<script>window.hacked=1</script>**bold** `code`"


def slides_of(page: str) -> list[str]:
    return re.findall(r'<section id="([^"]+)"', page)


def section(page: str, name: str) -> str:
    found = re.search(rf'<section id="{name}".*?</section>', page, re.S)
    assert found is not None
    return found[0]


def test_a_deck_has_what_the_recording_has_something_for() -> None:
    page = slides_page(sample_recording())
    without = [name for name in SLIDES if name not in ("comparison", "source")]
    assert slides_of(page) == without


def test_slides_come_in_the_order_asked_for_with_their_titles() -> None:
    page = slides_page(
        sample_recording(), slides=("plan", "job"), titles={"plan": HOSTILE}, title="Mine"
    )
    assert slides_of(page) == ["plan", "job"]
    assert "<h2>&lt;script&gt;window.hacked=1&lt;/script&gt;**bold** `code`</h2>" in page
    assert "<h2>Mine</h2>" in section(page, "job")
    assert "<title>Mine</title>" in page


def test_the_deck_is_one_file_that_names_nothing_to_fetch() -> None:
    page = slides_page(sample_recording())
    assert not re.findall(r"<(?:script|link|iframe)\b[^>]*\b(?:src|href)=", page)
    assert "Permission is hereby granted" in page  # the licence of reveal.js goes with it
    assert "Hakim El Hattab" in page


def test_no_name_turns_the_direction_of_what_stands_beside_it() -> None:
    recording = sample_recording(name="net\u202egnp", parameter="layer{index}\u2067.weight")
    for written in (slides_page(recording), page(recording)):
        assert not set(written) & set("\u202e\u2067")
        assert "net\\u202egnp" in written


def test_the_median_step_is_shown_and_said_to_be_it() -> None:
    recording = sample_recording(steps=5)
    step, why = typical.step(recording, analysis.steps(recording))
    lengths = analysis.steps(recording).groupby("step")["step_ms"].max()
    assert lengths[step] == np.sort(lengths)[2]
    assert why == "the median of 5 steps"
    told = f"Timeline of a typical step: step {step}, the median of 5 steps"
    assert f"<h2>{told}</h2>" in section(slides_page(recording), "timeline")


def test_of_a_failed_run_the_step_that_failed_is_shown() -> None:
    recording = sample_recording(steps=3)
    failure = Failure(1, 2, ZERO_NS, "it broke <b>here</b>", "")
    recording.append(Batch(1, 1, recording.records(steps=[])[:0], (failure,)))
    page = slides_page(recording)
    assert "<h2>Timeline of a typical step: step 2, where a rank failed</h2>" in page
    said = section(page, "findings").partition("<aside")[0]
    assert said.count("rank 1 failed: it broke &lt;b&gt;here&lt;/b&gt;") == 2  # headline and row
    assert '<dt><a href="#/timeline">Failure</a></dt>' in said


def test_steps_asked_for_are_those_to_choose_from() -> None:
    page = slides_page(sample_recording(steps=6), steps=(4, 1), slides=("timeline", "close"))
    assert "<h2>Timeline of step 4</h2>" in page
    assert "Steps: only those asked for, 1, 4." in section(page, "close")
    assert "2 of 6 steps are here: those that were asked for" in page
    assert "telling ones" not in page
    options = re.search(r'"options":(\[\["1".*?\]\])', page)
    assert options is not None
    assert re.findall(r'\["(\d+)",', options[1]) == ["1", "4"]


def test_steps_left_out_are_said() -> None:
    recording = sample_recording(steps=260, buckets=12, parameters_per_bucket=4)
    page = slides_page(recording, slides=("timeline", "buffers", "overlap", "close"))
    said = section(page, "close")
    kept = re.search(r"Timelines: (\d+) of 260 steps", said)
    assert kept is not None and 3 < int(kept[1]) < 260
    assert "of 260 steps each bar is the mean of 2 neighbours" in said
    assert len(page.encode()) < LIMIT_BYTES


def test_slides_say_what_the_recording_has() -> None:
    recording = sample_recording()
    page = slides_page(recording, slides=("job", "plan", "buffers", "overlap"))
    said = {}
    for name in slides_of(page):
        text = html.unescape(re.sub(r"<[^>]+>", " ", section(page, name)))
        said[name] = " ".join(text.split())
    assert set(said) == {"job", "plan", "buffers", "overlap"}
    steps = recording.steps()
    for word in ("ConvNet on 2 ranks, gloo", "model ConvNet", "parameters 6 tensors, 1.5 MiB"):
        assert word in said["job"]
    for word in ("device cpu", "torch 2.13.0", "DDP's configuration", "buffers 1 tensor, 256 B"):
        assert word in said["job"]
    assert "of it waiting for collectives: exposed" in said["job"]
    plans = recording.plans()
    newest = plans[plans["version"] == plans["version"].max()]
    assert f"ConvNet: plan 1 has {len(newest)} buckets up to 0.5 MiB" in said["plan"]
    assert (
        "as registered, first, rebuilt" in said["plan"] and "plan 0, as constructed" in said["plan"]
    )
    assert "sent 256 B of buffers in 1 broadcast of float32" in said["buffers"]
    assert "float32: 1 broadcast, 256 B" in said["buffers"]
    hidden = steps["hidden_communication_ms"].sum()
    share = hidden / (hidden + steps["exposed_communication_ms"].sum())
    assert (
        f"{share:.0%} of communication hidden behind backward in the last 3 steps"
        in said["overlap"]
    )


@pytest.mark.slow
def test_a_deck_of_a_million_events_is_bounded_and_says_what_was_thinned() -> None:
    recording = repeated(sample_recording(steps=23, buckets=6, parameters_per_bucket=10), 1_000_000)
    assert len(recording) >= 1_000_000
    page = slides_page(recording)
    assert len(page.encode()) < LIMIT_BYTES
    said = section(page, "close")
    steps = recording.last_step + 1
    assert f" of {steps} steps, the telling ones and others at even distances." in said
    each = -(-steps // HISTORY_STEPS)
    assert f"of {steps} steps each bar is the mean of {each} neighbours" in said
    # Bars from the first step to the last one.
    last = (steps - 1) // each * each
    ends = f"step {last}" if last == steps - 1 else f"steps {last} to {steps - 1}"
    for named in (f"steps 0 to {each - 1}", ends):
        assert f"{named}: " in page, named


def test_a_comparison_has_its_slide() -> None:
    page = slides_page(sample_recording(), slides=("comparison",), comparison=compared(HOSTILE))
    said = section(page, "comparison")
    assert "From the fastest: one, then the other" in said
    assert HOSTILE not in said and "&lt;script&gt;" in said
    assert "refused: torch says no" in said
    assert said.count("<tr>") == 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"slides": ("plan", "nothing")}, "found the slide 'nothing', expected some of job, time"),
        ({"slides": ("plan", "plan")}, "found the slide 'plan' twice"),
        ({"slides": ()}, "found no slide"),
        ({"titles": {"nothing": "x"}}, "found the slide 'nothing'"),
        ({"slides": ("comparison",)}, "expected what session.compare() ran"),
        ({"steps": 9}, "found no step 9 in the recording, expected 0 to 2"),
        ({"steps": (0, 9)}, "found no step 9 in the recording"),
        ({"steps": ()}, "found no step in steps"),
        ({"theme": "pink"}, "found the theme 'pink'"),
    ],
)
def test_what_there_is_not_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        slides_page(sample_recording(), **options)  # type: ignore[arg-type]


def test_a_recording_without_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="has no step yet"):
        slides_page(Recording())


def test_where_the_browser_part_is_not_built_it_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ddpviz.export.slides.html.STATIC", tmp_path)
    with pytest.raises(RuntimeError, match=r"found no deck\.css.*`make lab` builds it"):
        slides_page(sample_recording())


def test_a_recordings_method_writes_it(tmp_path: Path) -> None:
    path = sample_recording().slides(tmp_path / "talk.html", slides=["job"])
    assert slides_of(path.read_text(encoding="utf-8")) == ["job"]


def test_of_many_ranks_the_slowest_has_lanes() -> None:
    recording = sample_recording(ranks=6, buckets=30)
    table = analysis.steps(recording)
    rows = table[table["step"] == 2].sort_values("step_ms", kind="stable")
    assert typical.open_ranks(table, 2) == [rows["rank"].iloc[-1]]
    page = slides_page(recording, slides=("timeline", "close"))
    assert "5 ranks folded to one line each" in page
    said = section(page, "close")
    assert "of rank" in said and "other ranks are one line each" in said
    assert "Nothing: all recorded steps" not in said
    assert typical.open_ranks(analysis.steps(sample_recording()), 2) is None


def test_it_stays_below_its_limit_whatever_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = sample_recording(steps=40, parameters_per_bucket=20)
    asked = ("timeline", "close")
    whole = len(slides_page(recording, slides=asked).encode())
    monkeypatch.setattr("ddpviz.export.slides.deck.LIMIT_BYTES", whole - 1)
    page = slides_page(recording, slides=asked)
    assert len(page.encode()) < whole
    assert re.search(r"Timelines: \d+ of 40 steps", section(page, "close"))
