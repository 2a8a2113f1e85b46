"""Jupyter servers of a test's own, on a free port, with a token of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
