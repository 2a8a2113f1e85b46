"""Each notebook as ``jupyter nbconvert`` exports it, with our templates: alive, and no network."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddpviz.export import notebook as export_notebook
from tests.chromium import chromium, needs_chromium
from tests.lab.notebooks import FOLDER, code, executed, read

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("nbconvert")

#: The first test of a notebook runs it: part 3 takes minutes where others want the cores too.
pytestmark = pytest.mark.timeout(900)
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
TEMPLATES = Path(export_notebook.__file__).parent / "templates"

#: Figures that are drawn, in shadow trees too.
FIGURES = """() => {
  const drawn = (node) => (node.classList?.contains("bk-Figure") ? 1 : 0)
    + [...(node.shadowRoot?.children ?? []), ...node.children]
      .reduce((sum, child) => sum + drawn(child), 0)
  return drawn(document.body)
}"""
#: Fits the height: what does not is scrolled to, and nothing is cut at the right.
_WIDE = """() => [...document.querySelectorAll("section.present:not(.stack)")]
  .filter((one) => one.scrollWidth > one.clientWidth).length"""

#: The middle of the widest bar in which a bucket fills, scrolled to; null where none is drawn.
_FILLING = """() => {
  const plots = (view) => view.model.type == "Figure" ? [view]
    : (view.child_views ?? []).flatMap(plots)
  for (const plot of [...Bokeh.index.roots].flatMap(plots)) {
    const renderer = plot.model.renderers.find((one) => one.name == "filling")
    if (renderer == undefined) continue
    const {sleft, sright, stop, sbottom} = plot.views.get_one(renderer).glyph
    if (sleft.length == 0) continue
    const wide = [...sleft].map((left, at) => sright[at] - left)
    const at = wide.indexOf(Math.max(...wide))
    plot.el.scrollIntoView({block: "center"})
    const box = plot.el.getBoundingClientRect()
    return [box.left + (sleft[at] + sright[at]) / 2, box.top + (stop[at] + sbottom[at]) / 2]
  }
  return null
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


class Visit:
    """A page in a browser whose every request beside files is refused, and noted."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.requests: list[str] = []
        self.errors: list[str] = []
        context = browser.new_context(viewport={"width": 1366, "height": 768})
        context.route("**/*", self._only_files)
        self.page = context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(path.as_uri())

    def _only_files(self, route: Any) -> None:
        if route.request.url.startswith(("file:", "data:", "blob:")):
            route.continue_()
        else:
            self.requests.append(route.request.url)
            route.abort()

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)


def converted(notebook: Any, folder: Path, to: str, template: str | None = None) -> Path:
    """What the command makes of it. ``template``: instead of ours."""
    source = folder / "it.ipynb"
    nbformat.write(notebook, source)
    template = template or {"html": "ddpviz", "slides": "ddpviz-slides"}[to]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "nbconvert", f"--to={to}", f"--template={template}", source),
            # Where they lie in a checkout; an installed ddpviz has them where nbconvert looks.
            f"--TemplateExporter.extra_template_basedirs={TEMPLATES}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (page,) = folder.glob("it*.html")
    return page


def figures_of(notebook: Any) -> int:
    """How many Bokeh figures its outputs show."""
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    kinds = ("application/javascript", "text/html")
    shown = [str(out.get("data", {}).get(kind, "")) for out in outputs for kind in kinds]
    return sum(text.count('"name":"Figure"') for text in shown)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_each_heading_begins_a_slide(name: str) -> None:
    notebook = read(name)
    kinds = [cell.metadata.get("slideshow", {}).get("slide_type") for cell in notebook.cells]
    assert set(kinds) <= {"slide", "subslide", None}
    for cell, kind in zip(notebook.cells, kinds, strict=True):
        heading = cell.cell_type == "markdown" and cell.source.startswith("#")
        assert (kind == "slide") == heading, cell.source[:60]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_committed_without_outputs(name: str) -> None:
    notebook = read(name)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    assert len({cell["id"] for cell in notebook.cells}) == len(notebook.cells)


@pytest.mark.slow
@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_page_of_it_is_alive_without_a_network(name: str, browser: Any, tmp_path: Path) -> None:
    notebook = executed(name)
    visit = Visit(browser, converted(notebook, tmp_path, "html"))
    figures = figures_of(notebook)
    assert figures > 0 or "output_notebook" not in code(notebook)
    visit.page.wait_for_function(f"(least) => ({FIGURES})() >= least", arg=figures)
    shown = json.dumps([cell.get("outputs", []) for cell in notebook.cells])
    if "ddpviz-still" in shown:  # the explorer's last picture stands for it
        assert visit.page.locator(".ddpviz-still img").locator("visible=true").count() >= 1
    if name == "tour.ipynb":  # a pointer over a bucket is told its parameters, without a kernel
        place = visit.page.evaluate(_FILLING)
        assert place is not None
        visit.page.mouse.move(*place)
        tooltip = visit.page.locator(".bk-tooltip-content").filter(has_text="fills").first
        tooltip.wait_for()
        assert re.search(r"\w+\.(weight|bias)", tooltip.inner_text())
    assert visit.requests == [] and visit.errors == []


@pytest.mark.slow
@pytest.mark.browser
@needs_chromium
def test_figures_are_alive_on_a_page_by_nbconverts_own_template(
    browser: Any, tmp_path: Path
) -> None:
    """It asks the network for what it needs itself, and has the figures without."""
    notebook = executed("tour.ipynb")
    visit = Visit(browser, converted(notebook, tmp_path, "html", "lab"))
    figures = figures_of(notebook)
    assert figures > 0
    visit.page.wait_for_function(f"(least) => ({FIGURES})() >= least", arg=figures)
    assert visit.page.locator(".ddpviz-still img").locator("visible=true").count() >= 1
    assert visit.requests and not any("bokeh" in one for one in visit.requests)


@pytest.mark.slow
@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_slides_of_it_are_alive_without_a_network(name: str, browser: Any, tmp_path: Path) -> None:
    notebook = executed(name)
    visit = Visit(browser, converted(notebook, tmp_path, "slides"))
    page = visit.page
    page.wait_for_function("document.documentElement.dataset.deck == 'ready'")
    kinds = [cell.metadata.get("slideshow", {}).get("slide_type") for cell in notebook.cells]
    assert page.locator(".slides > section").count() == kinds.count("slide")
    slides = kinds.count("slide") + kinds.count("subslide")
    for _ in range(1, slides):
        assert page.evaluate(_WIDE) == 0
        page.keyboard.press("ArrowRight")
    assert page.locator(".slide-number").inner_text().replace(" ", "").split("/") == [
        str(slides),
        str(slides),
    ]
    page.wait_for_function(f"(least) => ({FIGURES})() >= least", arg=figures_of(notebook))
    assert visit.requests == [] and visit.errors == []


#: Everything that a notebook shows of a recording whose names are taken for markup or TeX.
_HOSTILE_CELLS = """
import sys
sys.path.insert(0, {root!r})
import ddpviz
from bokeh.io import show
from tests.browser.test_page import HOSTILE
from tests.views.samples import sample_recording
recording = sample_recording(name=HOSTILE, parameter=HOSTILE)
ddpviz.output_notebook()
###
show(recording.timeline())
###
recording.plans()
###
show(recording.figure("countdown"))
###
recording.walk(recording.last_step)
###
print(recording.audit())
"""


@functools.cache
def _hostile(by_bokeh: bool) -> Any:
    """The cells with their outputs. ``by_bokeh``: as Bokeh alone shows figures."""
    from nbclient import NotebookClient

    source = _HOSTILE_CELLS.format(root=str(Path(__file__).parents[2]))
    if by_bokeh:
        inline = "import bokeh.resources; bokeh.io.output_notebook(bokeh.resources.INLINE)"
        source = source.replace("ddpviz.output_notebook()", inline)
    cells = [nbformat.v4.new_code_cell(cell) for cell in source.split("###")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=100).execute()
    return notebook


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize(
    ("to", "template"), [("html", None), ("slides", None), ("html", "lab"), ("html", "by Bokeh")]
)
def test_names_stay_text_in_an_exported_notebook(
    to: str, template: str | None, browser: Any, tmp_path: Path
) -> None:
    """By our templates also of figures that Bokeh alone showed, by nbconvert's of ours."""
    notebook = _hostile(template == "by Bokeh")
    template = None if template == "by Bokeh" else template
    visit = Visit(browser, converted(notebook, tmp_path, to, template))
    visit.page.wait_for_function(f"(least) => ({FIGURES})() >= least", arg=figures_of(notebook))
    assert "onerror=window.hacked=1" in visit.page.locator("body").inner_text()
    if to == "html":
        visit.page.mouse.move(*visit.page.evaluate(_FILLING))
        tooltip = visit.page.locator(".bk-tooltip-content").filter(has_text="fills").first
        tooltip.wait_for()
        assert "<img src=x onerror=window.hacked=1></script>$$x_" in tooltip.inner_text()
    assert visit.page.evaluate("window.hacked") is None
    assert visit.page.locator("img[src=x]").count() == 0
    if template is None:  # nbconvert's own asks the network for what it needs itself
        assert visit.requests == [] and visit.errors == []
