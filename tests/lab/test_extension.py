"""The extension in JupyterLab: installed, enabled, and its launcher card opens the tour."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import needs_chromium
from tests.lab.conftest import Lab
from tests.lab.notebooks import FOLDER, PARTS
from tests.lab.servers import TOKEN

NOTEBOOKS = ("tour.ipynb", *PARTS)


def extension_folder() -> Path:
    return Path(sys.prefix) / "share" / "jupyter" / "labextensions" / "ddpviz"


pytestmark = pytest.mark.skipif(
    not extension_folder().exists(), reason="the extension is not installed: make test does it"
)


def test_extension_is_installed_and_enabled() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "jupyter", "labextension", "list"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    (line,) = [line for line in listed.stderr.splitlines() if "ddpviz v" in line]
    assert "enabled" in line
    assert "OK" in line


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_extension_carries_the_notebooks_of_their_folder(name: str) -> None:
    notebook = json.loads((FOLDER / name).read_bytes())
    first = notebook["cells"][0]["source"][0].strip()
    scripts = (extension_folder() / "static").glob("*.js")
    assert any(first in script.read_text(encoding="utf-8") for script in scripts)


@pytest.mark.browser
@pytest.mark.slow
@needs_chromium
def test_launcher_card_opens_the_tour(lab: Lab, browser: Any, tmp_path: Path) -> None:
    for name in NOTEBOOKS:
        (lab.root / name).unlink(missing_ok=True)
    errors: list[str] = []
    with browser.new_page() as page:
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{lab.address}/lab?reset&token={TOKEN}")
        page.locator(".jp-LauncherCard", has_text="DDP tour").click(timeout=60_000)
        title = page.get_by_role("heading", name="What DDP does in a step")
        title.wait_for(timeout=60_000)
        page.screenshot(path=str(tmp_path / "tour.png"))
    assert errors == []
    for name in NOTEBOOKS:
        placed = json.loads((lab.root / name).read_bytes())
        assert placed["cells"][0]["source"]
