"""The views below the page's timeline, in Chromium: they follow its selector and are replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddpviz.export.figures import HEADINGS
from ddpviz.export.page import write_page
from ddpviz.views.live_views import VIEWS
from tests.browser.test_page import HOSTILE, Visit
from tests.chromium import needs_chromium
from tests.views.pictures import picture_of
from tests.views.samples import compile_it, sample_recording

pytestmark = [pytest.mark.browser, needs_chromium]

#: The page has all views: the timeline above them says what "steps" would.
assert set(HEADINGS) == set(VIEWS) - {"timeline", "steps"}

_TITLES = """() => Bokeh.documents[0].roots().slice(1).map((root) => {
  const plot = root.title != null ? root : root.children.find((one) => one.title?.text != null)
  return plot.title.text
})"""
_HEIGHTS = """() => Bokeh.documents[0].roots().slice(1)
  .map((root) => Bokeh.index.get(root).el.getBoundingClientRect().height)"""
_COUNTDOWN = f"""
const root = Bokeh.documents[0].roots()[{1 + list(HEADINGS).index("countdown")}]
const plot = root.children.find((one) => one.renderers != null)
const source = (name) => plot.renderers.find((one) => one.name == name).data_source
"""
#: Where a bar of a forward graph is on the screen, by its place.
_MIDDLE_OF_GRAPH = """(place) => {
  const inside = (view) => [view, ...[...(view.child_views ?? [])].flatMap(inside)]
  const named = (view) => view.model.renderers?.find((one) => one.name == "lines several") != null
  const plot = [...Bokeh.index.roots].flatMap(inside).find(named)
  const source = plot.model.renderers.find((one) => one.name == "forward").data_source
  const {left, right, top, bottom} = source.data
  const box = plot.canvas_view.el.getBoundingClientRect()
  const frame = plot.frame
  return [
    box.x + frame.x_scale.compute((left[place] + right[place]) / 2),
    box.y + frame.y_scale.compute((top[place] + bottom[place]) / 2),
  ]
}"""
_TEXTS = f"() => {{ {_COUNTDOWN}; return Array.from(source('labels').data.text) }}"
_CURSOR = f"() => {{ {_COUNTDOWN}; return source('veil').data.x[0] }}"
_END = f"() => {{ {_COUNTDOWN}; return source('veil').data.right[0] }}"


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Visit:
    return Visit(browser, write_page(sample_recording(steps=4), tmp_path / "page.html"))


def titles(visit: Visit) -> dict[str, str]:
    return dict(zip(HEADINGS, visit.page.evaluate(_TITLES), strict=True))


def finding(visit: Visit, name: str) -> str:
    return str(visit.page.locator(f"#finding-{name}").inner_text())


def facts(visit: Visit, name: str) -> list[str]:
    return list(visit.page.locator(f"#facts-{name} li").all_inner_texts())


def test_every_view_is_there_offline_with_its_finding(visit: Visit) -> None:
    recording = sample_recording(steps=4)
    for name, title in titles(visit).items():
        picture = picture_of(recording, name)
        assert title == finding(visit, name) == picture.title, name
        assert facts(visit, name) == list(picture.facts)
    headings = visit.page.locator("h2").all_inner_texts()
    assert headings[: len(HEADINGS)] == list(HEADINGS.values())
    assert visit.errors == [] and visit.requests == []


def test_a_view_with_nothing_to_see_is_its_sentence(visit: Visit) -> None:
    recording = sample_recording(steps=4)
    heights = visit.page.evaluate(_HEIGHTS)
    empty = {name for name in HEADINGS if picture_of(recording, name).empty}
    assert {"compile", "replicas"} <= empty < set(HEADINGS)
    for name, height in zip(HEADINGS, heights, strict=True):
        assert (height == 0) == (name in empty), name


def test_they_follow_the_selector(visit: Visit) -> None:
    recording = sample_recording(steps=4)
    for step in (0, 2, 3):
        visit.page.locator("select").select_option(index=step)
        visit.page.wait_for_function("Bokeh.documents[0].is_idle")
        shown = titles(visit)
        for name in ("countdown", "finalize", "buffers", "forward_graph"):
            picture = picture_of(recording, name, step)
            assert shown[name] == finding(visit, name) == picture.title, (name, step)
            assert facts(visit, name) == list(picture.facts)
        lanes = len(picture_of(recording, "countdown", step).y_labels or ())
        assert len(visit.page.evaluate(_TEXTS)) == lanes
    assert visit.errors == []


def test_the_countdown_is_scrubbed_by_keys(visit: Visit) -> None:
    assert set(visit.page.evaluate(_TEXTS)) == {"done"}
    assert visit.page.evaluate(_CURSOR) == visit.page.evaluate(_END)
    handle = visit.page.locator(".noUi-handle")
    handle.focus()
    handle.press("Home")
    assert visit.page.evaluate(_CURSOR) == 0
    assert {text.partition(" ")[2] for text in visit.page.evaluate(_TEXTS)} == {"pending"}
    for _ in range(3):
        handle.press("PageUp")
    assert 0 < visit.page.evaluate(_CURSOR) < visit.page.evaluate(_END)
    handle.press("End")
    assert set(visit.page.evaluate(_TEXTS)) == {"done"}
    assert visit.errors == []


def test_the_countdown_plays_to_its_end_and_pauses(visit: Visit) -> None:
    visit.page.get_by_role("button", name="Play").click()
    visit.page.wait_for_function(f"() => {{ const x = ({_CURSOR})(); return x > 5 && x < 60 }}")
    visit.page.get_by_role("button", name="Pause").click()
    stopped = visit.page.evaluate(_CURSOR)
    assert any("pending" in text for text in visit.page.evaluate(_TEXTS))
    visit.page.get_by_role("button", name="Play").click()
    visit.page.wait_for_function(f"() => ({_CURSOR})() == ({_END})()", timeout=30_000)
    assert stopped < visit.page.evaluate(_CURSOR)
    visit.page.get_by_role("button", name="Play").wait_for()
    assert visit.errors == []


def test_they_have_the_readers_colours(browser: Any, tmp_path: Path) -> None:
    path = write_page(sample_recording(), tmp_path / "page.html")
    colours = """() => Bokeh.documents[0].roots().slice(1).map((root) =>
      (root.title != null ? root : root.children.find((one) => one.title?.text != null))
        .title.text_color)"""
    for scheme, text in (("light", "#1f2328"), ("dark", "#e6e6e6")):
        shown = Visit(browser, path, scheme).page.evaluate(colours)
        assert set(shown) == {text} and len(shown) == len(HEADINGS)


def test_hostile_names_stay_text_in_facts(browser: Any, tmp_path: Path) -> None:
    recording = sample_recording(name=HOSTILE, parameter=HOSTILE)
    visit = Visit(browser, write_page(recording, tmp_path / "page.html"))
    assert any("<img src=x" in fact for fact in facts(visit, "plan"))
    visit.page.locator("select").select_option(index=0)
    visit.page.wait_for_function("Bokeh.documents[0].is_idle")
    assert visit.page.evaluate("window.hacked") is None
    assert visit.page.locator("img[src=x]").count() == 0
    assert visit.errors == []


def compiled_page(browser: Any, tmp_path: Path, code: str, **sample: Any) -> Visit:
    recording = sample_recording(**sample)
    compile_it(recording, [[0, 1], [2, 3], [4, 5]], code=code)
    return Visit(browser, write_page(recording, tmp_path / "page.html"))


def test_a_click_on_a_graph_shows_its_code(browser: Any, tmp_path: Path) -> None:
    visit = compiled_page(browser, tmp_path, "def forward(self, x): return x")
    part = visit.page.locator("section").filter(has=visit.page.locator("#finding-compile"))
    assert part.locator("pre").inner_text() == ""
    part.scroll_into_view_if_needed()
    visit.page.mouse.click(*visit.page.evaluate(_MIDDLE_OF_GRAPH, 1))
    shown = part.locator("pre").inner_text()
    assert "# p2_: layer2.weight" in shown and "def forward(self, x): return x" in shown
    assert "layer0.weight" not in shown
    assert visit.errors == []


def test_code_is_chosen_by_keys_too(browser: Any, tmp_path: Path) -> None:
    wide = f"x = {' + '.join(['x'] * 200)}"
    visit = compiled_page(browser, tmp_path, wide)
    part = visit.page.locator("section").filter(has=visit.page.locator("#finding-compile"))
    part.locator("select").focus()
    visit.page.keyboard.press("ArrowDown")
    shown = part.locator("pre").inner_text()
    assert "# p0_: layer0.weight" in shown and wide in shown
    root = "document.documentElement"  # wide code scrolls by itself
    assert visit.page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")
    assert visit.errors == []


def test_hostile_code_stays_text(browser: Any, tmp_path: Path) -> None:
    visit = compiled_page(browser, tmp_path, HOSTILE, name=HOSTILE, parameter=HOSTILE)
    part = visit.page.locator("section").filter(has=visit.page.locator("#finding-compile"))
    part.locator("select").select_option(index=1)
    assert part.locator("pre").inner_text().count("<img src=x") == 3
    assert visit.page.evaluate("window.hacked") is None
    assert visit.page.locator("img[src=x]").count() == 0
    assert visit.errors == []


def test_one_step_alone_needs_no_selector(browser: Any, tmp_path: Path) -> None:
    visit = Visit(browser, write_page(sample_recording(steps=1), tmp_path / "page.html"))
    assert titles(visit)["countdown"].startswith("step 0: 6 gradients counted 1 bucket down")
    assert visit.errors == []
