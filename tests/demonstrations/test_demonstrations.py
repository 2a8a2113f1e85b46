"""Each demonstration shows its fact, on real ranks: one session for all of them."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bokeh.io.state import curstate

from ddpviz.demonstrations import Demonstrated, demonstrations, families
from ddpviz.engines import Session, SessionError
from ddpviz.explain import claims
from ddpviz.views.live_views import VIEWS
from tests.chromium import chromium, needs_chromium
from tests.demonstrations.facts import FACTS, NOT_SO

NAMES = [one.name for one in demonstrations()]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session(engines=2, directory=tmp_path_factory.mktemp("session") / "a") as found:
        yield found


@pytest.fixture(scope="module")
def shown(session: Session) -> dict[str, Demonstrated]:
    """Every demonstration, run one after the other on a session that goes on after each."""
    return {name: session.demonstrate(name) for name in NAMES}


def test_every_demonstration_is_tested() -> None:
    assert sorted(NAMES) == sorted(FACTS)


@pytest.mark.parametrize("name", NAMES)
def test_the_fact_is_what_ddp_does(shown: dict[str, Demonstrated], name: str) -> None:
    fact = shown[name].fact()
    assert {key: fact[key] for key in FACTS[name]} == FACTS[name]


@pytest.mark.parametrize("name", NAMES)
def test_the_fact_holds_on_this_torch_and_can_fail(
    shown: dict[str, Demonstrated], name: str
) -> None:
    found = shown[name]
    assert found.held
    assert not found.demonstration.holds(NOT_SO[name](found.fact())), "nothing could make it fail"


def test_families_have_every_demonstration_once() -> None:
    found = [one for those in families().values() for one in those]
    assert found == list(demonstrations())


def test_a_forward_after_an_evaluation_names_it(shown: dict[str, Demonstrated]) -> None:
    assert shown["around-eval"].finding.endswith("the forward before it was without gradients")


@pytest.mark.parametrize("name", NAMES)
def test_it_is_shown_by_its_view_with_numbers_of_the_recording(
    shown: dict[str, Demonstrated], name: str
) -> None:
    found = shown[name]
    assert found.view == found.demonstration.view
    first, second = found.sentences
    text = str(found)
    assert text.startswith(found.demonstration.title) and first in text and second in text
    # A number in a sentence is measured: the sentence itself has none but in names.
    template = re.sub(r"\{[^}]*\}|\w*[a-z_]\w*\(?\)?", "", " ".join(found.demonstration.look_at))
    assert set(re.findall(r"\d+", template)) <= {"0", "1"}, template
    assert not {"not known", "nothing recorded", "cannot be drawn"} & {found.finding}
    assert found.figure().title.text
    assert any(len(column) for source in _sources(found) for column in source.values()), (
        "the figure is empty"
    )


def _sources(found: Demonstrated) -> list[dict[str, Any]]:
    return [renderer.data_source.data for renderer in found.figure().renderers]


def test_step_that_matters_is_counted_from_the_demonstrations_first(
    shown: dict[str, Demonstrated],
) -> None:
    steps = [shown[name].step for name in NAMES]
    assert steps == sorted(steps) and len(set(steps)) == len(steps)
    for name in NAMES:
        assert shown[name].step in shown[name].excerpt.steps


def test_html_needs_no_network_and_escapes_what_it_shows(shown: dict[str, Demonstrated]) -> None:
    bundle = shown["head-of-line"]._repr_mimebundle_()
    assert bundle["text/plain"] == str(shown["head-of-line"])
    outer, srcdoc, rest = re.split(r' srcdoc="([^"]*)"', bundle["text/html"])
    page = html.unescape(srcdoc)
    assert "Bokeh.embed" in page and "<script" not in outer + rest
    assert not re.search(r"<(script|link|img)\b[^>]*\b(src|href)=", page)
    one = shown["head-of-line"]
    hostile = Demonstrated(one.demonstration, one.excerpt, "<img src=x> is no longer loaded")
    assert "<img" not in re.sub(r' srcdoc="[^"]*"', "", hostile._repr_mimebundle_()["text/html"])


def test_html_uses_the_bokehjs_of_a_page_that_has_it(
    shown: dict[str, Demonstrated], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curstate(), "_notebook", True)  # as after output_notebook()
    text = shown["head-of-line"]._repr_mimebundle_()["text/html"]
    assert "<iframe" not in text and "docs_json" in text
    assert (text.count("<script"), text.count("</script")) == (1, 1)
    assert len(text) < 100_000


@pytest.mark.browser
@needs_chromium
def test_figure_is_drawn_in_its_frame_offline(
    shown: dict[str, Demonstrated], tmp_path: Path
) -> None:
    path = tmp_path / "output.html"
    path.write_text(shown["head-of-line"]._repr_mimebundle_()["text/html"], encoding="utf-8")
    with chromium() as browser:
        page = browser.new_context(offline=True).new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(path.as_uri())
        frame = page.frame_locator("iframe")
        frame.locator("canvas").first.wait_for(timeout=30_000)
        assert errors == []


def test_claims_and_views_are_known() -> None:
    known = {claim.id for claim in claims()}
    for one in demonstrations():
        assert one.claims and {*one.claims} <= known
        assert one.view in VIEWS
        assert len(one.look_at) == 2


def test_the_list_needs_neither_torch_nor_bokeh() -> None:
    program = (
        "import sys\nfrom ddpviz.demonstrations import demonstrations\nassert demonstrations()\n"
        "print(*({'torch', 'bokeh'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


@pytest.mark.slow
def test_under_join_the_highest_of_three_ranks_is_chosen(tmp_path: Path) -> None:
    with Session(engines=3, directory=tmp_path / "three") as session:
        fact = session.demonstrate("join").fact()
    assert fact["forwards"] == [1, 2, 3]
    assert {*fact["chosen"]} == {2}
    # By rank: its own buckets, and those that it shadows without data.
    assert fact["reductions"] == [1, 3, 5] and fact["ghosts"] == [4, 2, 0]


def test_a_session_of_one_rank_is_refused(tmp_path: Path) -> None:
    with Session(engines=1, directory=tmp_path / "one") as session:
        with pytest.raises(SessionError, match="found a session of 1 rank, expected 2 at least"):
            session.demonstrate("join")
        assert session.status().workload == ""


def test_an_unknown_name_is_refused_with_the_close_ones(session: Session) -> None:
    with pytest.raises(ValueError, match="no demonstration 'head-of-lin'.*mean head-of-line"):
        session.demonstrate("head-of-lin")


def test_the_session_is_left_idle_and_its_workload_is_told_of(
    session: Session, shown: dict[str, Demonstrated]
) -> None:
    assert session.status().status == "idle"
    session.load("mlp", layers=2).run(1)
    session.fingerprints(every=2)
    begin = session.recording.last_step
    try:
        found = session.demonstrate("drift")
        assert found.fact()["parameters_equal"] == [1, 1, 1, 1]
        assert found.remark.startswith("mlp is no longer loaded") and found.remark in str(found)
        session.run(4)  # sampled again as it was before
        sampled = session.recording.replicas()
        sampled = sampled[(sampled["what"] == "parameters") & (sampled["step"] > begin + 4)]
        assert len(sampled) == 2
        assert session.demonstrate("one-bucket").remark == ""  # it was not the user's
    finally:
        session.fingerprints(every=0)


def test_a_result_stays_when_the_session_goes_on(
    session: Session, shown: dict[str, Demonstrated]
) -> None:
    before = session.demonstrate("rebuild")
    text, fact = str(before), before.fact()
    session.run(3)
    again = Demonstrated(before.demonstration, before.excerpt, before.remark)
    assert str(again) == text and again.fact() == fact


def test_it_is_refused_while_the_session_trains(session: Session) -> None:
    session.load("mlp", layers=2)
    session.start()
    try:
        with pytest.raises(SessionError, match="call stop\\(\\) before demonstrate"):
            session.demonstrate("rebuild")
    finally:
        session.stop()
    assert session.status().workload == "mlp"
