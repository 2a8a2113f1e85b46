"""The article's parts in JupyterLab: every cell runs there, and every figure is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddpviz.lab import place_tour
from ddpviz.views.palette import DARK, LIGHT
from tests.chromium import needs_chromium
from tests.lab.conftest import Lab
from tests.lab.notebooks import PARTS
from tests.lab.page import Page

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    needs_chromium,
]

_CELLS = "window.jupyterapp.shell.currentWidget.content.widgets"
#: Every cell has run, or one failed.
_ENDED = f"""() => {{
  const cells = {_CELLS}.filter((cell) => cell.model.type == "code")
  const failed = (cell) => cell.model.outputs.toJSON().some((out) => out.output_type == "error")
  const ran = (cell) => cell.model.executionState != "running" && cell.model.executionCount != null
  return cells.every(ran) || cells.some(failed)
}}"""
#: Numbers of the cells with a static figure, and what failed.
_OUTPUTS = f"""() => {{
  const outputs = {_CELLS}.map((cell) => cell.model.outputs?.toJSON() ?? [])
  const draws = (out) => {{
    const data = out.data ?? {{}}
    const shown = "application/vnd.bokehjs_exec.v0+json" in data
    return shown || `${{data["text/html"]}}`.includes("docs_json")
  }}
  return {{
    figures: outputs.flatMap((all, number) => all.some(draws) ? [number] : []),
    failed: outputs.flat().filter((out) => out.output_type == "error").map((out) => out.evalue),
  }}
}}"""
_SHOW = f"""(number) => {{
  const notebook = window.jupyterapp.shell.currentWidget.content
  return notebook.scrollToCell({_CELLS}[number], "center").then(() => null)
}}"""
#: The title's colour of each figure that was laid out, once it is that everywhere.
_TITLES = """(colour) => {
  const titles = Bokeh.documents
    .flatMap((document) => document.roots())
    .flatMap((root) => [root, ...root.references()])
    .filter((root) => root.type == "Figure" && root.tags.includes("ddpviz: follows the page"))
    .map((root) => root.title.text_color)
  return titles.length > 0 && titles.every((one) => one == colour) && titles.length
}"""


@pytest.mark.parametrize("name", PARTS)
def test_every_cell_runs_and_every_figure_is_drawn(
    lab: Lab, browser: Any, tmp_path: Path, name: str
) -> None:
    place_tour(lab.root)
    page = Page(browser, lab, name)
    try:
        page.run_next_cell()  # the title, once the kernel takes cells
        page.command("notebook:run-all-cells", wait=False)
        page.page.wait_for_function(_ENDED, timeout=400_000)
        found = page.page.evaluate(_OUTPUTS)
        assert found["failed"] == []
        assert len(found["figures"]) > 3
        for number in found["figures"]:
            page.page.evaluate(_SHOW, number)
            cell = f".jp-Notebook .jp-Cell[data-windowed-list-index='{number}']"
            page.page.locator(f"{cell} .bk-Figure canvas").first.wait_for(timeout=30_000)
        page.page.wait_for_function(_TITLES, arg=LIGHT.text)
        page.command("apputils:change-theme", theme="JupyterLab Dark")
        page.page.wait_for_function(_TITLES, arg=DARK.text)
        assert (page.errors, page.outside) == ([], [])
    finally:
        page.page.screenshot(path=str(tmp_path / "last.png"))
        page.command("apputils:change-theme", theme="JupyterLab Light")
        page.page.close()
