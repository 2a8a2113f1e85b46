"""A JupyterLab of its own, with a notebook that a test opens and runs."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TOKEN = "of-this-test-only"
NOTEBOOK = "figure.ipynb"


@contextmanager
def jupyterlab(folder: Path, cells: list[str], theme: str = "JupyterLab Light") -> Iterator[str]:
    """The address of a JupyterLab at a notebook with these cells, in a theme."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = folder / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
    (settings / "themes.jupyterlab-settings").write_text(json.dumps({"theme": theme}))
    root = folder / "root"
    root.mkdir()
    (root / NOTEBOOK).write_text(json.dumps(_notebook(cells)))
    with (folder / "lab.log").open("wb") as log:
        server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "jupyterlab",
                "--no-browser",
                "--allow-root",
                "--LabApp.expose_app_in_browser=True",
                "--ip=127.0.0.1",
                f"--port={port}",
                f"--IdentityProvider.token={TOKEN}",
                f"--ServerApp.root_dir={root}",
                f"--LabApp.user_settings_dir={folder / 'user-settings'}",
                f"--LabApp.workspaces_dir={folder / 'workspaces'}",
            ],
            stdout=log,
            stderr=log,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{address}/api?token={TOKEN}", timeout=5).close()
                break
            except OSError:
                said = (folder / "lab.log").read_text(errors="replace")
                assert server.poll() is None and time.monotonic() < deadline, said
                time.sleep(0.2)
        yield f"{address}/lab/tree/{NOTEBOOK}?token={TOKEN}"
    finally:
        server.terminate()
        server.wait(timeout=60)


def _notebook(cells: list[str]) -> dict[str, Any]:
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": kernel},
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell-{number}",
                "metadata": {},
                "source": source,
                "outputs": [],
                "execution_count": None,
            }
            for number, source in enumerate(cells)
        ],
    }
