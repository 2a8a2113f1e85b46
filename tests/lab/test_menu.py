"""A demonstration from the menu, in a real JupyterLab: its sentences, its step, its view."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import needs_chromium
from tests.lab.conftest import Lab
from tests.lab.page import Page, opened

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    needs_chromium,
    pytest.mark.skipif(
        not (Path(sys.prefix) / "share" / "jupyter" / "labextensions" / "ddpviz").exists(),
        reason="the extension is not installed: make test does it",
    ),
]

_SESSION = """
import ddpviz
session = ddpviz.Session(engines=2)
session.load("convnet", image_size=8, batch_size=4)
session.start()
session
"""
_CELL = ".jp-OutputArea .ddpviz-explorer"
_PANEL = ".ddpviz-panel .ddpviz-explorer"
_CARD = ".ddpviz-sidebar .ddpviz-card"


@pytest.fixture
def page(lab: Lab, browser: Any, tmp_path: Path) -> Iterator[Page]:
    with opened(lab, browser, tmp_path, [_SESSION]) as page:
        yield page


def choose(page: Page, place: str, name: str) -> None:
    """Unfold the demonstrations there, by keyboard, and choose one."""
    page.see(f"{place} .ddpviz-demonstrations-toggle").press("Enter")
    page.see(f"{place} .ddpviz-demonstrations select").select_option(name)


def visible(page: Page, selector: str) -> bool:
    """Whether it is inside the window, from its top on."""
    box = page.page.locator(selector).locator("visible=true").first.bounding_box()
    return box is not None and 0 <= box["y"] < 768


def test_a_demonstration_is_run_from_the_menu_and_shown(page: Page, tmp_path: Path) -> None:
    page.command("ddpviz:show-sidebar")
    page.run_next_cell()
    page.see(f"{_CELL} .bk-Figure")

    # In the cell, while training runs: it says why not, and after Stop it can be run.
    choose(page, _CELL, "head-of-line")
    page.see(f"{_CELL} .ddpviz-demonstrations", "training runs: stop it first")
    page.see(f"{_CELL} [data-action=stop]").click()
    run = f"{_CELL} .ddpviz-demonstrations .ddpviz-mod-accept:not([aria-disabled])"
    page.see(run).dblclick()
    found = page.see(f"{_CELL} .ddpviz-demonstrated", "It holds here")
    said = found.inner_text()
    assert "buckets were full in the order 5, 4, 3, 2, 1, 0" in said
    assert "launched in the order 0, 1, 2, 3, 4, 5" in said
    assert "convnet is no longer loaded" in said and "chain loaded" in said
    page.see(f"{_CELL} [role=tab][aria-selected=true]", "Countdown")
    page.see(f"{_CELL} [data-view=countdown] .ddpviz-figure-title", "before it was its turn")
    page.see(f"{_CELL} [data-view=countdown] .bk-Figure")
    assert page.page.locator(f"{_CELL} [data-view=timeline] .bk-Figure").count() == 1
    step = page.see(f"{_CELL} .ddpviz-steps input").input_value()
    assert f"Show step {step} in Countdown" in said
    page.page.wait_for_timeout(500)  # scrolled, which takes a frame
    page.page.screenshot(path=str(tmp_path / "cell.png"))
    assert visible(page, f"{_CELL} .ddpviz-demonstrated")
    assert visible(page, f"{_CELL} [data-view=countdown]")
    page.see(f"{_CELL} .ddpviz-demonstrated button", "Dismiss").click()
    found.wait_for(state="hidden")

    # In the sidebar: the explorer opens beside the notebook, and shows it.
    choose(page, _CARD, "drift")
    page.see(f"{_CARD} .ddpviz-demonstrations .ddpviz-mod-accept:not([aria-disabled])").click()
    page.see(f"{_CARD} .ddpviz-pill", "demonstrating")
    page.see(f"{_PANEL} .ddpviz-demonstrated", "put right at the next forward")
    page.see(f"{_PANEL} [role=tab][aria-selected=true]", "Replicas")
    page.see(f"{_PANEL} [data-view=replicas] .bk-Figure")
    page.see(f"{_CARD} .ddpviz-pill", "idle")
    page.page.screenshot(path=str(tmp_path / "panel.png"))
    assert page.errors == []
    assert page.outside == []
