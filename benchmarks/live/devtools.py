"""A page of headless Chromium, driven by DevTools' own protocol.

Not by Playwright: it has DevTools keep the body of every response and report each message of a
socket, so that the page's memory grows by what nobody else has, and its thread has more to do.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import websocket

from tests.chromium import CHROMIUM

_FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
]
_STARTING_SECONDS = 60.0
_ANSWER_SECONDS = 120.0


class Page:
    """One tab. ``errors``: exceptions that nothing in it caught."""

    def __init__(self, address: str) -> None:
        self.errors: list[str] = []
        self._socket = websocket.create_connection(address, timeout=_ANSWER_SECONDS)
        self._last = 0
        for domain in ("Page", "Runtime", "Performance"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **given: Any) -> dict[str, Any]:
        """A command of the protocol; its result. Raises RuntimeError where it is refused."""
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": given}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(_told(message["params"]["exceptionDetails"]))
            if message.get("id") == self._last:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                result: dict[str, Any] = message["result"]
                return result

    def call(self, function: str, *given: Any) -> Any:
        """What a JavaScript function returns or resolves to. Raises RuntimeError as it throws."""
        arguments = ", ".join(json.dumps(one) for one in given)
        result = self.ask(
            "Runtime.evaluate",
            expression=f"({function})({arguments})",
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        if "exceptionDetails" in result:
            raise RuntimeError(_told(result["exceptionDetails"]))
        return result["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 60.0) -> Any:
        """Wait until a JavaScript expression is true; its value. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while not (found := self.call(f"() => {expression}")):
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {seconds:g} s for {expression}")
            time.sleep(0.2)
        return found

    def mouse(self, kind: str, x: float, y: float, **given: Any) -> None:
        """An event of the mouse: "mouseMoved", "mousePressed", "mouseReleased", "mouseWheel"."""
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **given)

    def close(self) -> None:
        """Let go of it."""
        self._socket.close()


def _told(details: dict[str, Any]) -> str:
    return str(details.get("exception", {}).get("description") or details.get("text"))


@contextmanager
def chromium(width: int, height: int) -> Iterator[Page]:
    """A browser of its own with one empty page of that size, ended afterwards."""
    if CHROMIUM is None:
        raise RuntimeError("found no chromium on this machine, expected one: `make chromium`")
    folder = tempfile.mkdtemp(prefix="ddpviz-chromium-")
    process = subprocess.Popen(
        [CHROMIUM, *_FLAGS, f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        page = Page(_address(Path(folder), process))
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        page.ask("Emulation.setDeviceMetricsOverride", **size)
        yield page
        page.ask("Browser.close")
        page.close()
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _address(folder: Path, process: subprocess.Popen[bytes]) -> str:
    """Of the first page's protocol, once the browser has said its port."""
    deadline, port = time.monotonic() + _STARTING_SECONDS, folder / "DevToolsActivePort"
    while time.monotonic() < deadline and process.poll() is None:
        if port.exists() and (lines := port.read_text().splitlines()):
            with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json") as reply:
                for one in json.load(reply):
                    if one["type"] == "page":
                        return str(one["webSocketDebuggerUrl"])
        time.sleep(0.1)
    raise RuntimeError(f"{CHROMIUM} opened no page within {_STARTING_SECONDS:g} s")


def version() -> str:
    """Chromium's."""
    if CHROMIUM is None:
        return "none"
    said = subprocess.run([CHROMIUM, "--version"], capture_output=True, text=True, check=False)
    return next((part for part in said.stdout.split() if part[0].isdigit()), said.stdout.strip())
