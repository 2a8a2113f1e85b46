"""Jupyter servers of a test's own, on a free port, with a token of its own."""

from __future__ import annotations

import json
import os
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


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running(
    folder: Path, module: str, *arguments: str, environment: dict[str, str] | None = None
) -> Iterator[str]:
    """The address of ``python -m module`` (jupyterlab, jupyter_server), in ``folder/root``.

    What it says is in ``folder/server.log``.
    """
    port = free_port()
    root = folder / "root"
    root.mkdir(exist_ok=True)
    log = folder / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                module,
                "--no-browser",
                "--allow-root",
                "--ip=127.0.0.1",
                f"--port={port}",
                f"--IdentityProvider.token={TOKEN}",
                f"--ServerApp.root_dir={root}",
                *arguments,
            ],
            stdout=out,
            stderr=out,
            env={**os.environ, **(environment or {})},
        )
        address = f"http://127.0.0.1:{port}"
        try:
            _wait(address, server, log)
            yield address
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


@contextmanager
def jupyterlab(folder: Path, theme: str = "JupyterLab Light") -> Iterator[str]:
    """The address of a JupyterLab with settings, workspaces and sessions of its own.

    Its notebooks are in ``folder/root``. Tests run commands by their ids.
    """
    settings = folder / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
    (settings / "themes.jupyterlab-settings").write_text(json.dumps({"theme": theme}))
    with running(
        folder,
        "jupyterlab",
        "--LabApp.expose_app_in_browser=True",
        f"--LabApp.user_settings_dir={folder / 'user-settings'}",
        f"--LabApp.workspaces_dir={folder / 'workspaces'}",
        environment={"JUPYTER_RUNTIME_DIR": str(folder / "runtime")},
    ) as address:
        yield address


def end_kernels(address: str) -> None:
    """Shut down all kernels of a server, and wait for it."""
    headers = {"Authorization": f"token {TOKEN}"}
    with urllib.request.urlopen(
        urllib.request.Request(f"{address}/api/kernels", headers=headers), timeout=20
    ) as response:
        kernels = json.load(response)
    for kernel in kernels:
        url = f"{address}/api/kernels/{kernel['id']}"
        request = urllib.request.Request(url, method="DELETE", headers=headers)
        urllib.request.urlopen(request, timeout=60).close()


def notebook(cells: list[str]) -> str:
    """A notebook's file with these cells of code."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    found: dict[str, Any] = {
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
    return json.dumps(found)


def _wait(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"{address}/api?token={TOKEN}", timeout=5).close()
            return
        except OSError:
            said = log.read_text(errors="replace")
            assert server.poll() is None and time.monotonic() < deadline, said
            time.sleep(0.2)
