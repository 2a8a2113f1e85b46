"""The offline page in Chromium: nothing is fetched, everything is drawn, names stay text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddpviz import analysis
from ddpviz.export.page import write_page
from ddpviz.recording import Recording
from ddpviz.views.text import EXPOSED, HIDDEN, NOT_COUNTED, ONE_BUCKET, PERIOD, STEP
from tests.chromium import needs_chromium
from tests.views.samples import sample_recording

pytestmark = [pytest.mark.browser, needs_chromium]

#: A name that runs code wherever it is taken for markup, and is typeset where taken for TeX.
HOSTILE = "<img src=x onerror=window.hacked=1></script>$$x_{index}$$"


@pytest.fixture(scope="module")
def recording() -> Recording:
    """Of three steps."""
    return sample_recording()


@pytest.fixture(scope="module")
def path(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its page."""
    return write_page(recording, tmp_path_factory.mktemp("page") / "page.html")


class Visit:
    """A page opened from its file with everything else blocked; collects what goes wrong."""

    def __init__(self, browser: Any, path: Path, scheme: str = "light") -> None:
        self.requests: list[str] = []
        self.errors: list[str] = []
        context = browser.new_context(viewport={"width": 1366, "height": 768}, color_scheme=scheme)
        context.route("**/*", self._only_files)
        self.page = context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(path.as_uri())
        self.page.wait_for_function(
            "window.Bokeh && Bokeh.documents.length == 1 && Bokeh.documents[0].is_idle"
        )

    def _only_files(self, route: Any) -> None:
        if route.request.url.startswith(("file:", "data:", "blob:")):
            route.continue_()
        else:
            self.requests.append(route.request.url)
            route.abort()

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def title(self) -> str:
        return str(self.page.evaluate(_TITLE))

    def spans(self) -> dict[str, int]:
        """How many rectangles of each kind the browser draws."""
        return dict(self.page.evaluate(_DRAWN))

    def legend(self) -> list[str]:
        """Texts of the entries that are shown."""
        return list(self.page.evaluate(_LEGEND))

    def legend_box(self) -> tuple[float, float]:
        """The legend's height, and where it ends on the right."""
        height, right = self.page.evaluate(_LEGEND_BOX)
        return height, right

    def pixels(self, colour: str) -> int:
        """How many pixels of the figure have exactly this colour."""
        return int(self.page.evaluate(_PIXELS, [int(colour[i : i + 2], 16) for i in (1, 3, 5)]))


_PLOT = """
const root = Bokeh.documents[0].roots()[0]
const views = [...Bokeh.index.roots]
const find = (view) => view.model.type == "Plot" || view.model.type == "Figure" ? view
  : (view.child_views ?? []).map(find).find((found) => found != null)
const plot = views.map(find).find((found) => found != null)
"""
_TITLE = f"() => {{ {_PLOT}; const t = plot.model.title.text; return t.text ?? t }}"
_DRAWN = f"""() => {{ {_PLOT}
  const counts = {{}}
  for (const renderer of plot.model.renderers) {{
    const view = plot.views.get_one(renderer)
    counts[renderer.name] = view.glyph.data_size
  }}
  return counts
}}"""
_ITEMS = f"""{_PLOT}
  const legend = plot.views.get_one(plot.model.above.find((one) => one.type == "Legend"))
  const shown = legend.entries.filter(({{el}}) => el.getBoundingClientRect().width > 0)
"""
_LEGEND = f"() => {{ {_ITEMS}; return shown.map(({{label}}) => label) }}"
_LEGEND_BOX = f"""() => {{ {_ITEMS}
  const rights = shown.map(({{el}}) => el.getBoundingClientRect().right)
  return [legend.el.getBoundingClientRect().height, Math.max(...rights)]
}}"""
_PIXELS = f"""(rgb) => {{ {_PLOT}
  const canvas = plot.canvas_view.primary.canvas
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data
  let count = 0
  for (let i = 0; i < data.length; i += 4) {{
    if (data[i] == rgb[0] && data[i + 1] == rgb[1] && data[i + 2] == rgb[2]) count += 1
  }}
  return count
}}"""
_MIDDLE = f"""(name) => {{ {_PLOT}
  const renderer = plot.model.renderers.find((r) => r.name == name)
  const view = plot.views.get_one(renderer)
  const glyph = view.glyph
  const x = (glyph.sleft[0] + glyph.sright[0]) / 2, y = (glyph.stop[0] + glyph.sbottom[0]) / 2
  const box = plot.canvas_view.el.getBoundingClientRect()
  return [box.left + x, box.top + y]
}}"""


def test_page_draws_every_rectangle_offline_and_without_errors(
    browser: Any, recording: Recording, path: Path
) -> None:
    visit = Visit(browser, path)
    assert visit.title() == analysis.finding(recording, 2)
    table = analysis.buckets(recording, 2)
    drawn = visit.spans()
    for kind in ("filling", "head_of_line", "launch_delay", "wait_for_rank", "transfer"):
        assert drawn[kind] == int((table[f"{kind}_ms"] > 0).sum())
    assert drawn["ticks"] == int(table["parameters"].sum())
    assert visit.requests == []
    assert visit.errors == []
    for colour in ("#56B4E9", "#CC79A7", "#009E73", "#F0E442", "#D55E00", "#0072B2", "#999999"):
        assert visit.pixels(colour) > 50, colour


def test_legend_has_an_entry_for_all_that_is_drawn_and_for_nothing_else(
    browser: Any, path: Path
) -> None:
    visit = Visit(browser, path)
    always = ["forward", "buffer broadcast", "backward", "bucket filling", "gradient ready"]
    stretches = ["full, not yet launched", "waits for a rank", "transfer", "optimizer"]
    exposed, derived = "exposed communication", "hatched: derived"
    assert visit.legend() == [*always, *stretches, exposed, derived]
    visit.page.locator("select").select_option(index=1)
    visit.page.wait_for_function("Bokeh.documents[0].is_idle")
    rebuilt = [*always, *stretches, exposed, "other collective or rebuild", derived]
    assert visit.legend() == rebuilt
    # Where there is less room than for one line, it takes more, and ends within the figure.
    (before, _), wide = visit.legend_box(), visit.page.viewport_size["width"]
    visit.page.set_viewport_size({"width": 760, "height": 768})
    visit.page.wait_for_function(f"(before) => ({_LEGEND_BOX})()[0] > before + 10", arg=before)
    assert visit.legend_box()[1] <= 760 < wide
    assert visit.errors == []


def test_no_part_of_the_page_scrolls_by_itself(browser: Any, tmp_path: Path) -> None:
    """A table in a box of its own ended in the middle of a row, with no sign that it goes on."""
    visit = Visit(browser, write_page(sample_recording(steps=30), tmp_path / "page.html"))
    scrolling = """() => [...document.querySelectorAll("main *")].filter((element) =>
      /auto|scroll/.test(getComputedStyle(element).overflowY)
      && element.scrollHeight > element.clientHeight).length"""
    assert visit.page.evaluate(scrolling) == 0
    assert visit.page.locator("table.steps tbody tr").count() == 60


def test_page_says_what_a_step_is_and_why_the_first_plan_has_one_bucket(
    browser: Any, path: Path
) -> None:
    visit = Visit(browser, path)
    text = visit.page.locator("main").inner_text()
    for told in (STEP, PERIOD, EXPOSED, HIDDEN, ONE_BUCKET):
        assert told in text
    assert NOT_COUNTED[1:] in text


def test_selector_changes_title_and_rectangles(
    browser: Any, recording: Recording, path: Path
) -> None:
    visit = Visit(browser, path)
    assert visit.spans()["transfer"] == 6
    visit.page.locator("select").select_option(index=0)
    visit.page.wait_for_function("Bokeh.documents[0].is_idle")
    assert visit.title() == analysis.finding(recording, 0)
    assert visit.spans()["transfer"] == 2  # one bucket before the rebuild
    visit.page.get_by_role("button", name="›").click()
    assert visit.title() == analysis.finding(recording, 1)
    assert visit.spans()["marks"] == 4
    assert visit.errors == []


def test_hostile_names_stay_text(browser: Any, tmp_path: Path) -> None:
    recording = sample_recording(name=HOSTILE, parameter=HOSTILE)
    visit = Visit(browser, write_page(recording, tmp_path / "page.html"))
    name = HOSTILE.replace("{index}", "5")
    assert visit.page.locator("header b").inner_text() == HOSTILE
    assert name in visit.page.locator("td.text").first.inner_text()
    visit.page.mouse.move(*visit.page.evaluate(_MIDDLE, "filling"))
    tooltip = visit.page.locator(".bk-tooltip-content").filter(has_text="fills").first
    tooltip.wait_for()
    assert "<img src=x onerror=window.hacked=1></script>$$x_" in tooltip.inner_text()
    assert visit.page.evaluate("window.hacked") is None
    assert visit.page.locator("img[src=x]").count() == 0
    assert visit.requests == []
    assert visit.errors == []


def test_page_follows_the_readers_colour_scheme(browser: Any, path: Path) -> None:
    for scheme, text, background in (
        ("light", "#1f2328", "rgb(255, 255, 255)"),
        ("dark", "#e6e6e6", "rgb(27, 30, 35)"),
    ):
        visit = Visit(browser, path, scheme)
        colour = visit.page.evaluate(f"() => {{ {_PLOT}; return plot.model.title.text_color }}")
        assert colour == text
        shown = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert shown == background
        visit.page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
        changed = f"(before) => {{ {_PLOT}; return plot.model.title.text_color != before }}"
        visit.page.wait_for_function(changed, arg=text)
        assert visit.errors == []


def test_a_fixed_theme_does_not_follow(browser: Any, tmp_path: Path) -> None:
    path = write_page(sample_recording(), tmp_path / "page.html", theme="dark")
    visit = Visit(browser, path, "light")
    shown = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert shown == "rgb(27, 30, 35)"
    assert visit.errors == []


def test_page_has_state_steps_and_both_plans(browser: Any, path: Path) -> None:
    visit = Visit(browser, path)
    assert visit.page.title() == "ddpviz: ConvNet, 2 ranks"
    state = visit.page.locator("header").inner_text()
    assert state == "ConvNet · 2 ranks · gloo · cpu · torch 2.13.0 · 3 steps"
    assert visit.page.locator("table.steps tbody tr").count() == 6
    titles = visit.page.locator("h3").all_inner_texts()
    assert titles == [
        "plan 0: construction, from iteration 0",
        "plan 1: rebuild, from iteration 1",
    ]
    # Nothing is wider than the window.
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 1366
