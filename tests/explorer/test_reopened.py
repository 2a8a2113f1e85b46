"""A notebook that is opened again, without its kernel, shows the explorer's last picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.jupyterlab import jupyterlab
from tests.chromium import chromium, needs_chromium
from tests.explorer.conftest import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.slow, needs_chromium]

CELL = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from ddpviz.explorer import Explorer
from tests.views.samples import sample_recording
recording = sample_recording()
Explorer(recording)
"""
#: A cell that is run before that may run nothing.
_READY = """() => {
  const kernel = window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel
  return kernel?.connectionStatus == "connected" && kernel.status == "idle"
}"""


def command(page: Any, name: str, wait: bool = True) -> None:
    script = "name => window.jupyterapp.commands.execute(name)"
    page.evaluate(script + (".then(() => null)" if wait else " && null"), name)


def stills(page: Any) -> Any:
    return page.locator(".ddpviz-still img").locator("visible=true")


def test_the_last_picture_takes_the_place_of_a_widget_that_is_gone(tmp_path: Path) -> None:
    with jupyterlab(tmp_path, [CELL]) as address, chromium() as browser:
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        page.set_default_timeout(120_000)
        page.goto(address)
        page.wait_for_function(_READY)
        command(page, "notebook:run-cell", wait=False)
        page.wait_for_selector(".ddpviz-explorer .bk-Figure")
        assert page.locator(".ddpviz-still").count() == 1
        assert stills(page).count() == 0  # the explorer itself is there
        command(page, "docmanager:save")

        page.evaluate("window.jupyterapp.serviceManager.sessions.shutdownAll().then(() => null)")
        page.goto(address.replace("?token", "?reset&token"))
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        page.locator(".jp-OutputArea", has_text="model not found").wait_for()
        assert stills(page).count() == 1
        title = stills(page).get_attribute("alt")
        assert title is not None and title.startswith("rank 1 waited 20 ms for rank 0")
