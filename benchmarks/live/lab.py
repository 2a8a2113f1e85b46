"""A JupyterLab, a notebook's kernel in it, and a page of Chromium that looks at it."""

from __future__ import annotations

import ast
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_client import BlockingKernelClient

from benchmarks.live.devtools import Page, chromium
from tests.lab.servers import TOKEN, running

_HERE = Path(__file__).parent
_NOTEBOOK = {
    "cells": [],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}
#: A laptop's screen, into which the explorer's first screen is to fit.
_SCREEN = 1366, 768
_STARTING_SECONDS = 180


class Lab:
    """``page`` shows JupyterLab with a notebook, whose kernel has run ``in_kernel.py``."""

    def __init__(self, page: Page, address: str, runtime: Path) -> None:
        self.page = page
        source = (_HERE / "in_page.js").read_text()
        page.ask("Page.addScriptToEvaluateOnNewDocument", source=source)
        page.ask("Page.navigate", url=f"{address}/lab/tree/live.ipynb?reset&token={TOKEN}")
        page.wait_for("window.jupyterapp !== undefined")
        page.call("() => window.jupyterapp.restored.then(() => null)")
        page.wait_for("[...window.jupyterapp.serviceManager.kernels.running()].length > 0")
        self._kernel = _kernel(runtime)
        self.run((_HERE / "in_kernel.py").read_text())
        self.kernel_pid = int(self.value("__import__('os').getpid()"))

    # --- the kernel ----------------------------------------------------------------------------

    def run(self, code: str) -> None:
        """Run code in the kernel, beside the page. Raises RuntimeError with what it raised."""
        self._reply(self._kernel.execute(code, reply=True, timeout=_STARTING_SECONDS))

    def value(self, expression: str) -> Any:
        """An expression's value in the kernel, by way of JSON."""
        asked = {"value": f"__import__('json').dumps({expression})"}
        reply = self._kernel.execute(
            "", user_expressions=asked, reply=True, timeout=_STARTING_SECONDS
        )
        told = self._reply(reply)["user_expressions"]["value"]
        if told["status"] != "ok":
            raise RuntimeError(f"{expression}: {told['ename']}: {told['evalue']}")
        return json.loads(ast.literal_eval(told["data"]["text/plain"]))

    def _reply(self, reply: Any) -> Any:
        content = reply["content"]
        if content["status"] != "ok":
            raise RuntimeError("\n".join(content.get("traceback", [str(content)])))
        return content

    # --- the page ------------------------------------------------------------------------------

    def open(self, view: str, session: str) -> None:
        """Open a panel of a session, alone and wide, and wait until it is drawn."""
        self.page.wait_for("document.querySelector('.ddpviz-status-button') !== null")
        self.page.call(
            """async (view, session) => {
                const { commands, shell } = window.jupyterapp;
                shell.collapseLeft();
                await commands.execute("ddpviz:open-panel", { view, session });
                await commands.execute("application:set-mode", { mode: "single-document" });
                // The notebook comes to the front when it has opened, which may be only now.
                await commands.execute("ddpviz:open-panel", { view, session });
            }""",
            view,
            session,
        )
        self.page.wait_for("document.querySelector('.ddpviz-panel .bk-Figure') !== null")

    def take(self) -> dict[str, Any]:
        """What the page's meter kept since the last call."""
        taken: dict[str, Any] = self.page.call("() => window.ddpvizMeter.take()")
        return taken

    def tick(self, on: bool) -> None:
        """Whether the page's meter notes every animation frame."""
        self.page.call("(on) => window.ddpvizMeter.tick(on)", on)


@contextmanager
def lab() -> Iterator[Lab]:
    """A server, a notebook with a kernel and a page of their own, ended afterwards.

    Sessions that the kernel has in ``opened`` are closed. Raises RuntimeError where the page met
    an error.
    """
    with tempfile.TemporaryDirectory(prefix="ddpviz-live-") as name:
        folder = Path(name)
        settings = folder / "settings" / "@jupyterlab" / "apputils-extension"
        settings.mkdir(parents=True)
        (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
        root, runtime = folder / "root", folder / "runtime"
        root.mkdir()
        (root / "live.ipynb").write_text(json.dumps(_NOTEBOOK))
        with (
            running(
                folder,
                "jupyterlab",
                "--LabApp.expose_app_in_browser=True",
                f"--LabApp.user_settings_dir={folder / 'settings'}",
                f"--LabApp.workspaces_dir={folder / 'workspaces'}",
                environment={"JUPYTER_RUNTIME_DIR": str(runtime)},
            ) as address,
            chromium(*_SCREEN) as page,
        ):
            found = Lab(page, address, runtime)
            try:
                yield found
            finally:
                found.run("for one in globals().get('opened', []): one.close()")
        if page.errors:
            raise RuntimeError(f"the page met errors: {'; '.join(page.errors)}")


def _kernel(runtime: Path) -> BlockingKernelClient:
    deadline = time.monotonic() + 30
    while not (files := sorted(runtime.glob("kernel-*.json"))):
        if time.monotonic() > deadline:
            raise RuntimeError(f"no kernel has left its connection file in {runtime}")
        time.sleep(0.2)
    client = BlockingKernelClient(connection_file=str(files[0]))
    client.load_connection_file()
    client.start_channels()
    return client
