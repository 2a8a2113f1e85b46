"""A notebook that was saved or exported shows the explorer's last picture, whatever shows it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from ddpviz.views.palette import DARK, LIGHT
from tests.chromium import chromium, needs_chromium
from tests.explorer.conftest import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.slow, needs_chromium]

CELLS = [
    "import ddpviz\n"
    "session = ddpviz.Session(engines=2)\n"
    'session.load("convnet", bucket_cap_mb=1)\n'
    "session.run(steps=3)",
    "session.explorer()",
    "session.start(); session.stop()",
    "session.close()",
]


@pytest.fixture(scope="module")
def executed() -> Any:
    """The notebook as nbclient leaves it, with the widgets' state."""
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(made, timeout=120, resources={"metadata": {"path": str(ROOT)}}).execute()
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


def opened(browser: Any, notebook: Any, folder: Path, scheme: str = "light") -> Any:
    """Its page by nbconvert, in a browser that has no network."""
    page, _ = HTMLExporter().from_notebook_node(notebook)
    (folder / "page.html").write_text(page)
    context = browser.new_context(color_scheme=scheme, offline=True)
    found = context.new_page()
    found.goto((folder / "page.html").as_uri(), wait_until="load")
    return found


def without_state(notebook: Any) -> Any:
    """As a notebook is saved where the widgets' state is not."""
    found = nbformat.from_dict(notebook)
    found.metadata.pop("widgets", None)
    return found


@pytest.mark.parametrize("state", [True, False], ids=["widget state", "no widget state"])
@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_a_page_without_network_shows_one_picture(
    executed: Any, browser: Any, tmp_path: Path, state: bool, theme: Any
) -> None:
    assert bool(executed.metadata.get("widgets")) and not without_state(executed).get("widgets")
    notebook = executed if state else without_state(executed)
    page = opened(browser, notebook, tmp_path, theme.name)
    images = page.locator(".ddpviz-still img").locator("visible=true")
    assert images.count() == 1
    width, height = images.evaluate("image => [image.naturalWidth, image.naturalHeight]")
    assert width > 600 and height > 200
    assert "convnet · 2 ranks · gloo · idle · step 2" in page.locator("body").inner_text()
    assert corner(images) == theme.background


def corner(image: Any) -> str:
    """The colour of the picture's edge, as the browser has painted it."""
    from PIL import Image

    with Image.open(io.BytesIO(image.screenshot())) as shot:
        found = shot.convert("RGB").getpixel((3, 3))
    return "#{:02x}{:02x}{:02x}".format(*found)  # type: ignore[misc]


def test_a_cell_that_only_trains_displays_nothing(executed: Any) -> None:
    for cell in (executed.cells[0], executed.cells[2]):
        shown = [one for one in cell.outputs if one["output_type"] != "stream"]
        assert shown == []


def test_the_widgets_own_state_has_the_picture(executed: Any) -> None:
    """For viewers that draw widgets from it, without a kernel."""
    state = executed.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    (model,) = [one["state"] for one in state.values() if "snapshot" in one["state"]]
    assert model["snapshot"].startswith("data:image/svg+xml;base64,")
    assert model["snapshot_state"]["step"] == 2
