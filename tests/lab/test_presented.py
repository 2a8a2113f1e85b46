"""A notebook that is presented in JupyterLab, cell by cell, has its explorer alive in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import needs_chromium
from tests.lab.conftest import Lab
from tests.lab.page import Page, opened

pytest.importorskip("jupyterlab_slideshow")
pytestmark = [pytest.mark.browser, pytest.mark.slow, needs_chromium]

_SESSION = """
import ddpviz
session = ddpviz.Session(engines=2)
session.load("convnet", image_size=8, batch_size=4)
session.start()
session.explorer()
"""
_CELL = ".jp-OutputArea .ddpviz-explorer"
_PRESENTED = ".jp-Deck .jp-deck-mod-onscreen .ddpviz-explorer"


@pytest.fixture
def page(lab: Lab, browser: Any, tmp_path: Path) -> Iterator[Page]:
    with opened(lab, browser, tmp_path, [_SESSION, "print(session.status().step)"]) as page:
        yield page


def test_the_explorer_goes_on_while_the_notebook_is_presented(page: Page) -> None:
    page.run_next_cell()
    page.see(f"{_CELL} .bk-Figure")
    page.command("deck:start")
    shown = page.see(f"{_PRESENTED} [aria-label=Step]")
    first = int(shown.input_value())
    page.page.wait_for_function(
        "([selector, first]) => Number(document.querySelector(selector).value) > first + 3",
        arg=[f"{_PRESENTED} [aria-label=Step]", first],
    )
    page.see(f"{_PRESENTED} button", "Stop").click()
    page.see(f"{_PRESENTED} .ddpviz-pill", "idle")
    page.command("deck:stop")
    page.page.wait_for_selector(".jp-Deck", state="detached")
    page.see(f"{_CELL} .ddpviz-pill", "idle")
    assert page.errors == [] and page.outside == []
