"""JupyterLab's own menu exports a notebook with ddpviz's templates: alive, and no network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import needs_chromium
from tests.lab.conftest import Lab
from tests.lab.page import opened
from tests.lab.test_converted import FIGURES, Visit
from tests.waiting import until

pytestmark = [pytest.mark.browser, pytest.mark.slow, needs_chromium]

_CELLS = [
    "import ddpviz; ddpviz.output_notebook()",
    "from bokeh.plotting import figure, show\nplot = figure(height=200); plot.line([1, 2], [2, 1])",
    "show(plot)",
]
#: The exporter's name, as JupyterLab writes it in its menu; the end of the file's name.
_EXPORTERS = {"Ddpviz_html": ".html", "Ddpviz_slides": ".slides.html"}


@pytest.mark.parametrize("entry", _EXPORTERS)
def test_a_notebook_is_exported_from_the_menu(
    lab: Lab, browser: Any, tmp_path: Path, entry: str
) -> None:
    with opened(lab, browser, tmp_path, _CELLS) as page:
        for _ in _CELLS:
            page.run_next_cell()
        page.see(".jp-OutputArea .bk-Figure")
        downloads: list[Any] = []

        def take(done: Any) -> None:  # Playwright marks its handlers: no method of a list
            downloads.append(done)

        page.page.on("download", take)
        page.page.context.on("page", lambda new: new.on("download", take))
        page.page.get_by_role("menuitem", name="File", exact=True).click()
        page.page.get_by_text("Save and Export Notebook As").hover()
        page.page.get_by_role("menuitem", name=re.compile(f"^{entry}$")).click()
        (done,) = until(lambda: page.page.wait_for_timeout(100) or downloads, 60)
        assert done.suggested_filename == f"{tmp_path.name}{_EXPORTERS[entry]}"
        saved = tmp_path / "saved.html"
        done.save_as(saved)
        assert page.outside == []
    visit = Visit(browser, saved)
    if entry == "Ddpviz_slides":
        visit.page.wait_for_function("document.documentElement.dataset.deck == 'ready'")
    visit.page.wait_for_function(f"() => ({FIGURES})() == 1")
    assert (visit.requests, visit.errors) == ([], [])
