"""The deck in Chromium, offline: drawn and alive, keys go where they should, names stay text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ddpviz import analysis
from ddpviz.export.slides import write_slides
from ddpviz.export.slides.pdf import write_pdf
from ddpviz.recording import Recording
from tests.browser.test_page import HOSTILE, Visit
from tests.chromium import needs_chromium
from tests.export.material import compared
from tests.views.samples import sample_recording

pytestmark = [pytest.mark.browser, needs_chromium]

_READY = "document.documentElement.dataset.deck == 'ready'"
#: The first plot of the slide that is shown, its view and the view's canvas.
_PLOT = """
const holder = document.querySelector("section.present .figure")
const plots = (view) => view.model.type == "Figure" ? [view]
  : (view.child_views ?? []).flatMap(plots)
const plot = [...Bokeh.index.roots].filter((view) => holder.contains(view.el)).flatMap(plots)[0]
const box = plot.el.getBoundingClientRect(), frame = plot.frame.bbox
"""
_DRAWN = f"""() => {{ {_PLOT}
  return Object.fromEntries(plot.model.renderers.map((renderer) =>
    [renderer.name, plot.views.get_one(renderer).glyph.data_size]))
}}"""
_MIDDLE = f"""(name) => {{ {_PLOT}
  const renderer = plot.model.renderers.find((one) => one.name == name)
  const {{sleft, sright, stop, sbottom}} = plot.views.get_one(renderer).glyph
  return [box.left + (sleft[0] + sright[0]) / 2, box.top + (stop[0] + sbottom[0]) / 2]
}}"""
_RANGE = f"() => {{ {_PLOT}; return [plot.model.x_range.start, plot.model.x_range.end] }}"
_FRAME = f"""() => {{ {_PLOT}
  return [box.left + frame.left, box.top + frame.top, frame.width, frame.height]
}}"""
_CURSOR = f"""() => {{ {_PLOT}
  return plot.model.renderers.find((one) => one.name == "veil").data_source.data.x[0]
}}"""
#: By how much a slide's content is larger than it.
_OVERFLOW = """() => {
  const {scrollHeight, clientHeight, scrollWidth, clientWidth} =
    document.querySelector("section.present")
  return [scrollHeight - clientHeight, scrollWidth - clientWidth]
}"""
#: Of each figure: what it takes, what its slide has room for.
_FILLED = """() => [...document.querySelectorAll("section.present .figure")].map((holder) => {
  const root = [...Bokeh.index.roots].find((view) => holder.contains(view.el))
  return [root.el.offsetHeight, holder.clientHeight, holder.scrollHeight]
})"""


@pytest.fixture(scope="module")
def recording() -> Recording:
    return sample_recording(steps=5)


@pytest.fixture(scope="module")
def path(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_slides(recording, tmp_path_factory.mktemp("deck") / "talk.html")


class Deck(Visit):
    """A deck that was opened, at its first slide."""

    def __init__(self, browser: Any, path: Path, scheme: str = "light") -> None:
        super().__init__(browser, path, scheme)
        self.page.wait_for_function(_READY)

    @property
    def at(self) -> str:
        """The slide that is shown."""
        return str(self.page.evaluate("document.querySelector('section.present').id"))

    def go(self, name: str) -> None:
        while self.at != name:
            before = self.at
            self.page.keyboard.press("ArrowRight")
            self.page.wait_for_function(
                "(before) => document.querySelector('section.present').id != before", arg=before
            )
        self.page.wait_for_timeout(400)  # the figure takes some frames to fill its slide

    @property
    def step(self) -> int:
        """The step that this slide's list says."""
        return self.step_of(self.at)

    def step_of(self, slide: str) -> int:
        text = self.page.locator(f"#{slide} select").input_value()
        return int(re.match(r"step (\d+) ", text)[1])  # type: ignore[index]

    def choose(self, step: int) -> None:
        select = self.page.locator("section.present select")
        texts = select.locator("option").all_inner_texts()
        (at,) = [place for place, text in enumerate(texts) if text.startswith(f"step {step} ")]
        select.select_option(index=at)
        self.page.wait_for_function("Bokeh.documents[0].is_idle")

    def drawn(self) -> dict[str, int]:
        return dict(self.page.evaluate(_DRAWN))


def test_it_is_drawn_offline_and_without_errors(
    browser: Any, recording: Recording, path: Path
) -> None:
    deck = Deck(browser, path)
    names = ["job", "timeline", "plan", "countdown", "buffers", "overlap", "findings", "close"]
    assert deck.page.locator(".slides > section").evaluate_all("all => all.map(x => x.id)") == names
    deck.go("timeline")
    shown = deck.step
    table = analysis.buckets(recording, shown)
    for kind in ("filling", "head_of_line", "launch_delay", "wait_for_rank", "transfer"):
        assert deck.drawn()[kind] == int((table[f"{kind}_ms"] > 0).sum()), kind
    assert deck.drawn()["ticks"] == int(table["parameters"].sum())
    for name in names[2:]:
        deck.go(name)
    assert deck.errors == [] and deck.requests == []


@pytest.mark.parametrize("size", [(1366, 768), (1920, 1080)], ids=["1366", "1920"])
def test_figures_fill_their_slides_and_nothing_is_cut(
    browser: Any, path: Path, size: tuple[int, int]
) -> None:
    deck = Deck(browser, path)
    deck.page.set_viewport_size({"width": size[0], "height": size[1]})
    for name in ("timeline", "plan", "countdown", "buffers", "overlap", "findings", "close"):
        deck.go(name)
        assert deck.page.evaluate(_OVERFLOW) == [0, 0], name
        for taken, room, scrolled in deck.page.evaluate(_FILLED):
            assert 0.5 * room < taken <= room == scrolled, name
    assert deck.errors == []


def test_hover_names_parameters_and_dragging_zooms(browser: Any, path: Path) -> None:
    deck = Deck(browser, path)
    deck.go("timeline")
    deck.page.mouse.move(*deck.page.evaluate(_MIDDLE, "filling"))
    tooltip = deck.page.locator(".bk-tooltip-content").filter(has_text="fills").first
    tooltip.wait_for()
    assert "layer4.weight" in tooltip.inner_text()
    start, end = deck.page.evaluate(_RANGE)
    left, top, width, height = deck.page.evaluate(_FRAME)
    deck.page.mouse.move(left + width / 4, top + height / 2)
    deck.page.mouse.down()
    deck.page.mouse.move(left + width / 2, top + height / 2, steps=4)
    deck.page.mouse.up()
    zoomed = deck.page.evaluate(_RANGE)
    assert zoomed == pytest.approx(
        [start + (end - start) / 4, start + (end - start) / 2], abs=(end - start) / 100
    )
    assert deck.at == "timeline" and deck.errors == []


def test_the_step_is_chosen_for_all_slides(browser: Any, recording: Recording, path: Path) -> None:
    deck = Deck(browser, path)
    deck.go("timeline")
    heading = deck.page.locator("#timeline h2")
    first, typical = deck.step, heading.inner_text()
    assert typical == f"Timeline of a typical step: step {first}, the median of 5 steps"
    deck.choose(0)
    assert heading.inner_text() == "Timeline of step 0"
    assert deck.drawn()["transfer"] == 2  # one bucket before the rebuild
    said = deck.page.locator("#finding-timeline").inner_text()
    assert said == analysis.finding(recording, 0)
    deck.go("countdown")
    assert deck.step == 0
    assert deck.page.locator("#finding-countdown").inner_text().startswith("step 0: ")
    deck.choose(3)
    assert deck.page.locator("#finding-countdown").inner_text().startswith("step 3: ")
    assert deck.page.locator("#finding-timeline").text_content() == analysis.finding(recording, 3)
    assert heading.text_content() == "Timeline of step 3"
    deck.choose(first)
    assert heading.text_content() == typical
    assert deck.errors == []


def test_the_countdown_plays(browser: Any, path: Path) -> None:
    deck = Deck(browser, path)
    deck.go("countdown")
    end = deck.page.evaluate(_CURSOR)
    deck.page.get_by_role("button", name="Play").click()
    deck.page.wait_for_function(
        f"(end) => {{ const x = ({_CURSOR})(); return x > 5 && x < end }}", arg=end
    )
    deck.page.get_by_role("button", name="Pause").click()
    stopped = deck.page.evaluate(_CURSOR)
    assert 5 < stopped < end
    # It was clicked: Space is the button's, drawn anew or not, and arrows are the deck's.
    for label in ("Pause", "Play", "Pause"):
        deck.page.keyboard.press("Space")
        deck.page.get_by_role("button", name=label).wait_for()
        assert deck.at == "countdown"
    deck.page.keyboard.press("ArrowRight")
    assert deck.at == "buffers"
    # What plays stops where its slide is left, and its button has no more keys.
    deck.page.keyboard.press("ArrowLeft")
    deck.page.get_by_role("button", name="Play").wait_for()
    assert deck.at == "countdown" and deck.page.evaluate(_CURSOR) < end
    deck.page.keyboard.press("Space")
    assert deck.at == "buffers" and deck.errors == []


def test_keys_in_a_widget_are_the_widgets(browser: Any, path: Path) -> None:
    deck = Deck(browser, path)
    deck.go("timeline")
    select = deck.page.locator("section.present select")
    select.focus()
    before = deck.step
    deck.page.keyboard.press("ArrowUp")
    deck.page.wait_for_function("Bokeh.documents[0].is_idle")
    assert (deck.at, deck.step) == ("timeline", before - 1)
    deck.page.keyboard.press("n")
    assert deck.at == "timeline"
    deck.page.keyboard.press("Escape")
    deck.go("countdown")
    handle = deck.page.locator("section.present .noUi-handle")
    handle.focus()
    deck.page.keyboard.press("ArrowLeft")
    deck.page.keyboard.press("Home")
    assert (deck.at, deck.page.evaluate(_CURSOR)) == ("countdown", 0)
    # Clickers send these, whatever has the focus.
    deck.page.keyboard.press("PageDown")
    assert deck.at == "buffers"
    deck.page.keyboard.press("PageUp")
    assert (deck.at, deck.page.evaluate(_CURSOR)) == ("countdown", 0)
    deck.page.locator("section.present select").focus()
    deck.page.keyboard.press("PageUp")
    assert deck.at == "plan" and deck.step_of("timeline") == before - 1
    deck.page.keyboard.press("ArrowRight")
    assert deck.at == "countdown"
    play = deck.page.get_by_role("button", name="Play")
    play.focus()
    deck.page.keyboard.press("Space")
    deck.page.get_by_role("button", name="Pause").wait_for()
    assert deck.at == "countdown"
    deck.page.keyboard.press("ArrowRight")
    assert deck.at == "buffers" and deck.errors == []


def test_names_stay_text(browser: Any, tmp_path: Path) -> None:
    recording = sample_recording(name=HOSTILE, parameter=HOSTILE)
    titled = "**x** <script>window.hacked=1</script>"
    path = write_slides(
        recording, tmp_path / "talk.html", titles={"plan": titled}, source=f"runs/{HOSTILE}"
    )
    deck = Deck(browser, path)
    assert HOSTILE in deck.page.locator("#job").inner_text()
    assert deck.page.title().startswith(HOSTILE)
    deck.go("plan")
    assert deck.page.locator("#plan h2").inner_text() == titled
    deck.go("close")
    assert HOSTILE in deck.page.locator("#close pre").inner_text()
    assert deck.page.evaluate("window.hacked") is None
    assert deck.page.locator("img[src=x]").count() == 0
    assert deck.errors == [] and deck.requests == []


def test_names_of_500_characters_leave_room_for_the_rest(browser: Any, tmp_path: Path) -> None:
    recording = sample_recording(name="N" * 500, parameter="encoder." + "p" * 500)
    deck = Deck(browser, write_slides(recording, tmp_path / "talk.html"))
    for name in ("job", "timeline", "plan", "countdown", "buffers", "findings"):
        deck.go(name)
        assert deck.page.evaluate(_OVERFLOW) == [0, 0], name
        lines = deck.page.evaluate("""() => {
          const title = document.querySelector("section.present h2, section.present h1")
          return title.offsetHeight / parseFloat(getComputedStyle(title).lineHeight)
        }""")
        assert lines <= 4, name
    assert deck.errors == []


def test_comparison_and_source_are_shown_whole(
    browser: Any, recording: Recording, tmp_path: Path
) -> None:
    path = tmp_path / "talk.html"
    write_slides(recording, path, slides=("comparison", "source"), comparison=compared("other"))
    deck = Deck(browser, path)
    stations = [f"source-{number}" for number in range(1, 9)]
    for name in ("comparison", *stations):
        deck.go(name)
        assert deck.page.evaluate(_OVERFLOW) == [0, 0], name
    rows = deck.page.locator("#comparison tbody tr > :first-child").all_inner_texts()
    assert rows == ["one", "other", "no"]
    for name in stations:  # torch's own lines; of C++ the file and its pinned line
        station = deck.page.locator(f"#{name}")
        assert "torch/" in station.inner_text(), name
        assert station.locator("pre, a[href^='https:']").count(), name
    assert deck.errors == [] and deck.requests == []


def test_it_takes_the_readers_colours(browser: Any, path: Path) -> None:
    for scheme, background, text in (
        ("light", "rgb(255, 255, 255)", "#1f2328"),
        ("dark", "rgb(27, 30, 35)", "#e6e6e6"),
    ):
        deck = Deck(browser, path, scheme)
        deck.go("timeline")
        assert deck.page.evaluate("getComputedStyle(document.body).backgroundColor") == background
        colour = f"() => {{ {_PLOT}; return plot.model.below[0].major_label_text_color }}"
        assert deck.page.evaluate(colour) == text


def test_speaker_notes_are_there_without_a_network(browser: Any, path: Path) -> None:
    deck = Deck(browser, path)
    deck.go("countdown")
    deck.page.keyboard.press("t")
    notes = deck.page.locator(".speaker-notes")
    notes.wait_for()
    assert "Press Play" in notes.inner_text()
    bottom = "document.querySelector('section.present').getBoundingClientRect().bottom"
    assert deck.page.evaluate(bottom) <= notes.bounding_box()["y"] + 0.5  # nothing is covered
    deck.page.keyboard.press("t")
    notes.wait_for(state="hidden")
    deck.page.keyboard.press("Shift+Slash")
    keys = deck.page.locator(".r-overlay-help td").all_inner_texts()
    assert "Speaker notes below the slide" in keys
    assert not [text for text in keys if "overview" in text]  # there is none
    deck.page.keyboard.press("Escape")
    with deck.page.expect_popup() as opening:
        deck.page.keyboard.press("s")
    speaker = opening.value
    told = speaker.locator(".speaker-controls-notes .value")
    told.filter(has_text="Press Play").wait_for()
    speaker.keyboard.press("ArrowRight")
    deck.page.wait_for_function("document.querySelector('section.present').id == 'buffers'")
    told.click()
    speaker.keyboard.press("PageUp")
    deck.page.wait_for_function("document.querySelector('section.present').id == 'countdown'")
    assert deck.errors == [] and deck.requests == []


_WIDTH_ON_PAPER = """() => matchMedia("print").addEventListener("change", (media) => {
  if (media.matches) window.onPaper = document.documentElement.scrollWidth
})"""


def test_ctrl_p_prints_every_slide_and_the_menu_says_so(browser: Any, path: Path) -> None:
    deck = Deck(browser, path)
    # Headless there is no dialog: whether one is asked for is what counts.
    deck.page.context.add_init_script("window.print = () => { window.asked = true }")
    with deck.page.expect_popup() as opening:
        deck.page.keyboard.press("Control+p")
    printed = opening.value
    printed.wait_for_function("window.asked")
    # On paper it is as wide as it was laid out: what reaches beyond would make all of it smaller.
    printed.evaluate(_WIDTH_ON_PAPER)
    assert _pages(printed.pdf(prefer_css_page_size=True)) == 8
    assert printed.evaluate("window.onPaper") == printed.evaluate("innerWidth")
    assert _pages(deck.page.pdf()) == 1
    deck.page.emulate_media(media="print")
    assert f"{path.as_uri()}?print-pdf" in deck.page.locator(".on-paper").inner_text()
    assert not deck.page.locator(".reveal").is_visible()
    assert deck.errors == [] and deck.requests == []


def test_the_pdf_has_a_page_for_every_slide(path: Path, tmp_path: Path) -> None:
    pdf = write_pdf(path, tmp_path / "talk.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert _pages(pdf) == 8
    assert {*re.findall(rb"/MediaBox \[0 0 (\d+)", pdf)} == {b"1025"}


def _pages(pdf: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf))
