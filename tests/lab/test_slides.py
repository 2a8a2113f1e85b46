"""Slides by the explorer's button in a real JupyterLab: downloaded, saved, alive afterwards."""

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
session.run(steps=3)
session.start()
session
"""
_CELL = ".jp-OutputArea .ddpviz-explorer"
_CARD = ".ddpviz-sidebar .ddpviz-card"
_READY = "document.documentElement.dataset.deck == 'ready'"


@pytest.fixture
def page(lab: Lab, browser: Any, tmp_path: Path) -> Iterator[Page]:
    with opened(lab, browser, tmp_path, [_SESSION]) as page:
        yield page


def test_a_deck_is_downloaded_and_saved_while_training_goes_on(
    page: Page, lab: Lab, browser: Any, tmp_path: Path
) -> None:
    page.run_next_cell()
    page.see(f"{_CELL} .bk-Figure")
    page.see(f"{_CELL} .ddpviz-slides-toggle").press("Enter")
    fold = f"{_CELL} .ddpviz-slides"
    page.see(f"{fold} .ddpviz-slides-line", "nothing was compared yet")
    page.see(f"{fold} input[value=findings]").uncheck()
    page.see(f"{fold} [aria-label='Title of Buffers']").fill("Mine: n, s and →")
    page.see(f"{fold} [aria-label='Steps of the deck by number']").fill("2, 0")
    page.page.screenshot(path=str(tmp_path / "fold.png"))
    with page.page.expect_download() as downloading:
        page.see(f"{fold} [data-place=browser]:not([aria-disabled])").click()
    page.see(fold, "Downloaded as convnet-slides.html, ")
    deck = tmp_path / "talk.html"
    downloading.value.save_as(deck)

    # From the sidebar, to where the kernel works: beside the notebook.
    page.command("ddpviz:show-sidebar")
    page.see(f"{_CARD} .ddpviz-slides-toggle").press("Enter")
    page.see(f"{_CARD} .ddpviz-slides input[value=job]")
    page.see(f"{_CARD} [data-place=kernel]:not([aria-disabled])").click()
    page.see(f"{_CARD} .ddpviz-slides", f"Saved as {lab.root / 'convnet-slides.html'}, ")
    page.page.screenshot(path=str(tmp_path / "sidebar.png"))
    page.see(f"{_CELL} .ddpviz-pill", "training")
    assert page.errors == [] and page.outside == []

    opened = browser.new_context(offline=True).new_page()
    for path, names in (
        (deck, ["job", "timeline", "plan", "countdown", "buffers", "overlap", "close"]),
        (
            lab.root / "convnet-slides.html",
            ["job", "timeline", "plan", "countdown", "buffers", "overlap", "findings", "close"],
        ),
    ):
        opened.goto(path.as_uri())
        opened.wait_for_function(_READY)
        found = opened.locator(".slides > section").evaluate_all("all => all.map(x => x.id)")
        assert found == names
    opened.goto(deck.as_uri() + "#/buffers")
    opened.wait_for_function(_READY)
    assert opened.locator("section.present h2").inner_text() == "Mine: n, s and →"
    opened.goto(deck.as_uri() + "#/timeline")
    opened.wait_for_function(_READY)
    listed = opened.locator("#timeline select option").all_inner_texts()
    assert [text.split(" ")[1] for text in listed] == ["0", "2"]
    opened.context.close()
    page.see(f"{_CELL} [data-action=stop]").click()
    page.see(f"{_CELL} .ddpviz-pill", "idle")
