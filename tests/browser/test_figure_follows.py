"""A figure takes the colours of the page it is shown in: JupyterLab's theme, or a page's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bokeh.embed import file_html
from bokeh.resources import INLINE

from ddpviz.recording import Recording
from ddpviz.views.palette import DARK, LIGHT
from ddpviz.views.timeline import timeline
from tests.browser.jupyterlab import jupyterlab
from tests.browser.test_page import Visit
from tests.chromium import chromium, needs_chromium
from tests.views.samples import sample_recording

pytestmark = [pytest.mark.browser, needs_chromium]

REPOSITORY = Path(__file__).parents[2]

#: What a reader sees, by what it is: every colour that a theme sets.
_COLOURS = """() => {
  const found = {}
  for (const document of Bokeh.documents) {
    for (const plot of document.roots().flatMap((root) => [...root.references()])) {
      if (plot.type == "Figure") {
        found.title = plot.title.text_color
        found.legend = plot.legend?.[0]?.label_text_color ?? plot.above[0].label_text_color
        found.labels = plot.below[0].major_label_text_color
        found.grid = plot.center[0].grid_line_color
        const exposed = plot.renderers.find((renderer) => renderer.name == "exposed")
        found.box = exposed.glyph.fill_color.value ?? exposed.glyph.fill_color
      }
    }
  }
  return found
}"""


def colours(theme: Any) -> dict[str, str]:
    return {
        "title": theme.text,
        "legend": theme.text,
        "labels": theme.text,
        "grid": theme.grid,
        "box": theme.exposed_fill,
    }


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


def plain_page(folder: Path, head: str, step: int | None = None) -> Path:
    """A page of Bokeh's own with a figure, as ``bokeh.io.save`` leaves it."""
    html = file_html(timeline(sample_recording(), step), INLINE, "a page")
    path = folder / "plain.html"
    path.write_text(html.replace("</head>", f"{head}</head>"), encoding="utf-8")
    return path


@pytest.mark.parametrize("step", [None, 2])
def test_a_white_page_keeps_dark_text_whatever_the_browser_prefers(
    browser: Any, tmp_path: Path, step: int | None
) -> None:
    visit = Visit(browser, plain_page(tmp_path, "", step), "dark")
    assert visit.page.evaluate(_COLOURS) == colours(LIGHT)
    assert visit.errors == []


@pytest.mark.parametrize(
    "head",
    [
        "<style>body { background: #111 }</style>",
        "<style>html { background: rgb(20, 20, 30) }</style>",
        '<meta name="color-scheme" content="dark">',
    ],
)
def test_a_dark_page_gets_light_text(browser: Any, tmp_path: Path, head: str) -> None:
    visit = Visit(browser, plain_page(tmp_path, head))
    assert visit.page.evaluate(_COLOURS) == colours(DARK)


def test_a_page_that_turns_dark_takes_the_figure_with_it(browser: Any, tmp_path: Path) -> None:
    visit = Visit(browser, plain_page(tmp_path, ""))
    assert visit.page.evaluate(_COLOURS) == colours(LIGHT)
    for style, theme in (("background: black", DARK), ("background: white", LIGHT)):
        visit.page.evaluate("(style) => document.body.setAttribute('style', style)", style)
        visit.page.wait_for_function(
            f"(title) => ({_COLOURS})().title == title", arg=colours(theme)["title"]
        )
        assert visit.page.evaluate(_COLOURS) == colours(theme)


def test_a_fixed_theme_stays(browser: Any, tmp_path: Path) -> None:
    html = file_html(timeline(sample_recording(), theme="dark"), INLINE, "a page")
    path = tmp_path / "fixed.html"
    path.write_text(html, encoding="utf-8")
    assert Visit(browser, path).page.evaluate(_COLOURS) == colours(DARK)


@pytest.mark.slow
def test_in_jupyterlab_a_cells_figure_follows_the_theme(browser: Any, tmp_path: Path) -> None:
    saved = tmp_path / "recording"
    recording: Recording = sample_recording()
    recording.save(saved)
    cells = [
        "import sys\n"
        f"sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "import ddpviz\n"
        "from bokeh.io import show\n"
        "ddpviz.output_notebook()\n"
        f"show(ddpviz.load({str(saved)!r}).timeline())",
    ]
    with jupyterlab(tmp_path, cells, "JupyterLab Dark") as address:
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        page.goto(address)
        page.wait_for_function(_READY, timeout=90_000)
        page.evaluate("window.jupyterapp.commands.execute('notebook:run-cell') && null")
        page.wait_for_function(
            f"(title) => window.Bokeh?.documents?.length > 0 && ({_COLOURS})().title == title",
            arg=DARK.text,
            timeout=90_000,
        )
        assert page.evaluate(_COLOURS) == colours(DARK)
        # The legend ends within the figure: what does not fit goes into a second line.
        assert page.evaluate(_OVERHANG) <= 0
        _choose_theme(page, "JupyterLab Light")
        page.wait_for_function(f"(title) => ({_COLOURS})().title == title", arg=LIGHT.text)
        assert page.evaluate(_COLOURS) == colours(LIGHT)


#: A key pressed before that may run nothing.
_READY = """() => {
  const kernel = window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel
  return kernel?.connectionStatus == "connected" && kernel.status == "idle"
}"""

#: How far the legend's last entry goes beyond what is around the figure, in px.
_OVERHANG = """() => {
  const deep = (node, found = []) => {
    if (node.classList?.contains("bk-item") && node.querySelector?.(".bk-glyph")) found.push(node)
    for (const child of [...(node.shadowRoot?.children ?? []), ...node.children]) deep(child, found)
    return found
  }
  const output = document.querySelector(".jp-OutputArea-output:has([data-root-id])")
  const items = deep(output).filter((item) => item.getBoundingClientRect().width > 0)
  const right = Math.max(...items.map((item) => item.getBoundingClientRect().right))
  return items.length >= 8 ? right - output.getBoundingClientRect().right : 1e9
}"""


def _choose_theme(page: Any, name: str) -> None:
    """What the menu "Settings, Theme" does."""
    page.evaluate(
        "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", name
    )
