"""The extension in JupyterLab: installed, enabled, and its launcher card opens the tour."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chromium import chromium, needs_chromium

TOKEN = "of-this-test-only"


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


def test_extension_carries_the_tour_of_the_notebooks_folder() -> None:
    tour = json.loads((Path(__file__).parents[2] / "notebooks" / "tour.ipynb").read_bytes())
    first = tour["cells"][0]["source"][0].strip()
    scripts = (extension_folder() / "static").glob("*.js")
    assert any(first in script.read_text(encoding="utf-8") for script in scripts)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab of its own, in an empty folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = tmp_path / "home"
    settings = home / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
    root = tmp_path / "root"
    root.mkdir()
    log = (tmp_path / "lab.log").open("wb")
    server = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "jupyterlab",
            "--no-browser",
            "--allow-root",
            "--ip=127.0.0.1",
            f"--port={port}",
            f"--IdentityProvider.token={TOKEN}",
            f"--ServerApp.root_dir={root}",
            f"--LabApp.user_settings_dir={home / 'lab' / 'user-settings'}",
            f"--LabApp.workspaces_dir={home / 'lab' / 'workspaces'}",
        ],
        stdout=log,
        stderr=log,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{address}/api?token={TOKEN}", timeout=5).close()
                break
            except OSError:
                said = (tmp_path / "lab.log").read_text(errors="replace")
                assert server.poll() is None and time.monotonic() < deadline, said
                time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        log.close()


@pytest.mark.browser
@pytest.mark.slow
@needs_chromium
def test_launcher_card_opens_the_tour(lab: str, tmp_path: Path) -> None:
    errors: list[str] = []
    with chromium() as browser:
        page = browser.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{lab}/lab?reset&token={TOKEN}")
        page.locator(".jp-LauncherCard", has_text="DDP tour").click(timeout=60_000)
        title = page.get_by_role("heading", name="What DDP does in a step")
        title.wait_for(timeout=60_000)
        page.screenshot(path=str(tmp_path / "tour.png"))
    assert errors == []
    placed = json.loads((tmp_path / "root" / "tour.ipynb").read_bytes())
    assert placed["cells"][0]["source"]
