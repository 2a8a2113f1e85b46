"""The extension with real engines, in a real JupyterLab: found, steered, killed, found again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddpviz.views.live_views import VIEWS
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

#: Leaves the browser a part of the cores.
_SESSION = """
import ddpviz
session = ddpviz.Session(engines=2)
session.load("convnet", bucket_cap_mb=1, steps_per_second=10)
session.start()
"""
#: Runs until a file is there.
_BUSY = "import os, time\nwhile not os.path.exists({path!r}): time.sleep(0.01)"
_CARD = ".ddpviz-sidebar .ddpviz-card"
_VIEWS = tuple(VIEWS)


@pytest.fixture
def page(lab: Lab, browser: Any, tmp_path: Path) -> Iterator[Page]:
    cells = [_SESSION, _BUSY.format(path=str(tmp_path / "end"))]
    with opened(lab, browser, tmp_path, cells) as page:
        yield page


def apply(page: Page, place: str) -> str:
    """Apply the drafts there; what it did."""
    page.see(f"{place} .ddpviz-apply .ddpviz-mod-accept").click()
    return str(page.see(f"{place} .ddpviz-outcome:not(:empty)").inner_text())


def test_session_is_found_steered_and_found_again(page: Page, tmp_path: Path) -> None:
    page.command("ddpviz:show-sidebar")
    page.see(".ddpviz-sidebar", "No DDP session runs")
    page.run_next_cell()
    page.see(f"{_CARD} .ddpviz-facts", "steps/s")
    page.see(".ddpviz-status-button", "steps/s")
    for view in _VIEWS:
        page.command("ddpviz:open-panel", view=view)
        page.see(f".ddpviz-view [data-view={view}] .bk-Figure")
        page.see(f".ddpviz-view [data-view={view}] .ddpviz-figure-title:not(:empty)")
    page.page.screenshot(path=str(tmp_path / "panels.png"))

    # A replay stays at its step; the bar above it follows again.
    page.command("ddpviz:open-panel", view="countdown")
    page.see(".ddpviz-replay button", "Play").click()
    page.see(".ddpviz-replay button", "Pause").click()
    page.see(".ddpviz-view .ddpviz-follow", "Follow").click()
    page.see(".ddpviz-view .ddpviz-follow", "Pause")

    # A cell runs: what is asked for in the sidebar does not wait for it.
    page.run_next_cell()
    page.see(".jp-InputPrompt", "[*]")
    toggle = page.see(f"{_CARD} [data-switch$=_buffers] [role=switch]")
    assert toggle.get_attribute("aria-checked") == "true"
    toggle.click()
    assert "re-wraps" in page.see(f"{_CARD} .ddpviz-apply", "What it takes").inner_text()
    assert "re-wrapped" in apply(page, _CARD)
    page.see(f"{_CARD} [data-action=stop]").click()
    page.see(f"{_CARD} .ddpviz-pill", "idle", seconds=20)
    assert page.page.locator(".jp-InputPrompt", has_text="[*]").count() == 1, "the cell has ended"
    # A page that comes then is told by the server that there is a session, and by no kernel yet.
    page.page.reload()
    page.ready()
    page.command("ddpviz:show-sidebar")
    page.see(".ddpviz-sidebar", "it may be in a cell")
    assert page.page.locator(_CARD).count() == 0
    assert not page.page.get_by_text("No DDP session runs").is_visible()
    (tmp_path / "end").touch()
    page.see(f"{_CARD} [data-action=start]").click()
    page.see(f"{_CARD} .ddpviz-pill", "training")
    page.page.wait_for_function(
        f"document.querySelectorAll('.ddpviz-panel').length === {len(_VIEWS)}"
    )
    page.see(".ddpviz-view .bk-Figure")
    page.page.screenshot(path=str(tmp_path / "reloaded.png"))
    page.see(f"{_CARD} [data-action=stop]").click()
    page.see(f"{_CARD} .ddpviz-pill", "idle")
    assert page.errors == []
    assert page.outside == []


_SYNC_OFF = """
name = next(knob.name for knob in session.knobs() if knob.name.endswith("_buffers"))
session.configure(**{name: False})
"""


def test_a_cell_reaches_the_switches_and_a_renamed_notebook_keeps_its_panels(
    lab: Lab, browser: Any, tmp_path: Path
) -> None:
    with opened(lab, browser, tmp_path, [_SESSION, _SYNC_OFF]) as page:
        page.command("ddpviz:show-sidebar")
        page.run_next_cell()
        page.see(".ddpviz-status-button", "steps/s")
        toggle = f"{_CARD} [data-switch$=_buffers] [role=switch]"
        page.see(f"{toggle}[aria-checked=true]")
        page.run_next_cell()
        page.see(f"{toggle}[aria-checked=false]")  # changed elsewhere, and seen here

        page.command("ddpviz:open-panel", view="timeline")
        page.see(".ddpviz-panel [data-view=timeline] .bk-Figure")
        page.page.evaluate(
            "([before, after]) => window.jupyterapp.serviceManager.contents.rename(before, after)"
            ".then(() => null)",
            [page.path, f"renamed-{page.path}"],
        )
        page.see(".jp-NotebookPanel-toolbar, .lm-TabBar-tabLabel", f"renamed-{page.path}")
        page.page.wait_for_function(
            "(name) => [...window.jupyterapp.serviceManager.sessions.running()]"
            ".some((one) => one.path === name)",
            arg=f"renamed-{page.path}",
        )
        page.see(".ddpviz-panel [aria-label=Step]")
        assert not page.page.locator(".ddpviz-panel .ddpviz-waiting").is_visible()
        page.see(f"{_CARD} [data-action=stop]").click()
        page.see(f"{_CARD} .ddpviz-pill", "idle")
        assert not page.page.locator(".ddpviz-panel .ddpviz-waiting").is_visible()
        assert page.errors == []


def test_killed_ranks_are_named_and_restart_brings_them_back(page: Page, tmp_path: Path) -> None:
    page.command("ddpviz:show-sidebar")
    page.run_next_cell()
    page.see(".ddpviz-status-button", "steps/s")
    page.command("ddpviz:open-panel", view="explorer")
    explorer = ".ddpviz-panel .ddpviz-explorer"
    page.see(f"{explorer} .bk-Figure")
    page.see(f"{explorer} [data-action=kill]:not([aria-disabled])").dblclick()
    confirm = page.see(f"{explorer} .ddpviz-confirm", "What was recorded stays")
    page.page.screenshot(path=str(tmp_path / "confirm.png"))
    page.page.keyboard.press("Escape")
    confirm.wait_for(state="hidden")
    page.see(f"{explorer} .ddpviz-pill", "training")
    page.see(f"{_CARD} [data-action=kill]").click()
    page.see(f"{_CARD} .ddpviz-confirm button", "Keep them").click()
    page.see(f"{explorer} .ddpviz-pill", "training")
    page.see(f"{explorer} [data-action=kill]").click()
    page.see(f"{explorer} .ddpviz-confirm button", "Kill them").click()
    page.see(f"{explorer} .ddpviz-pill", "failed")
    assert "SIGKILL" in page.see(f"{explorer} .ddpviz-why").inner_text()
    page.see(f"{explorer} .ddpviz-action-reason", "were killed")
    page.page.screenshot(path=str(tmp_path / "killed.png"))
    page.see(f"{explorer} [data-action=restart]").click()
    page.see(f"{explorer} .ddpviz-pill", "idle")

    # A new kernel has no session: the panel waits, and takes the next one.
    page.page.evaluate(
        """async () => {
            const { kernels } = window.jupyterapp.serviceManager;
            const [model] = [...kernels.running()];
            await kernels.connectTo({ model, handleComms: false }).restart();
        }"""
    )
    page.see(".ddpviz-panel .ddpviz-waiting", "run the cell that makes one")
    page.command("docmanager:open", path=page.path)
    page.command("notebook:move-cursor-up")
    page.run_next_cell()
    page.see(".ddpviz-status-button", "steps/s")
    page.command("ddpviz:open-panel", view="explorer")
    page.see(f"{explorer} .ddpviz-pill", "training")
    page.see(f"{explorer} [data-action=stop]").click()
    page.see(f"{explorer} .ddpviz-pill", "idle")
    assert page.errors == []
