"""The browser that is there, headless: it opens a file, is waited for, and prints or pictures it.

Over Chromium's own pipe (``--remote-debugging-pipe``, DevTools protocol), so nothing listens on a
port and nothing beside the browser is needed. Checked with Chromium 130 and newer.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Commands that are looked for on the PATH, in this order, where $DDPVIZ_BROWSER names none.
COMMANDS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
)
_VARIABLE = "DDPVIZ_BROWSER"
_TIMEOUT_SECONDS = 120.0
_FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-extensions",
    "--hide-scrollbars",
    "--no-first-run",
    "--no-default-browser-check",
    "--password-store=basic",
    "--remote-debugging-pipe",
)


class BrowserError(RuntimeError):
    """No browser is there, or it did not do what it was asked: one sentence."""


def find() -> str:
    """Path of a Chromium, Chrome or Edge. Raises BrowserError where there is none."""
    named = os.environ.get(_VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise BrowserError(f"found no browser at {named}, which {_VARIABLE} names")
        return found
    for command in COMMANDS:
        found = shutil.which(command)
        if found is not None:
            return found
    raise BrowserError(
        f"found no browser (looked for {', '.join(COMMANDS)} on the PATH): pictures and PDF are "
        f"drawn by one, so install chromium, or name yours in {_VARIABLE}"
    )


class Page:
    """A page of the browser, over the pipe."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._buffer = b""
        self._last = 0
        self._session = ""
        self._until = time.monotonic() + _TIMEOUT_SECONDS

    def open(self, url: str, width_px: int, height_px: int, *, dark: bool, scale: float) -> None:
        """Open a page of this size in CSS px, ``scale`` device px for each."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        size = {"width": width_px, "height": height_px}
        self.ask(
            "Emulation.setDeviceMetricsOverride", **size, deviceScaleFactor=scale, mobile=False
        )
        preferred = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[preferred])
        self.ask("Page.enable")
        self.ask("Page.navigate", url=url)

    def wait_for(self, condition: str) -> None:
        """Until a JavaScript expression holds. Raises BrowserError where it never does."""
        while not self.value(condition):
            if time.monotonic() > self._until:
                raise BrowserError(
                    f"the browser did not finish drawing in {_TIMEOUT_SECONDS:.0f} s"
                )
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression, or the promise that it gives, comes to."""
        found = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            told = details.get("exception", {}).get("description") or details.get("text", "")
            raise BrowserError(f"the browser could not draw it: {' '.join(told.split())[:300]}")
        return found["result"].get("value")

    def pdf(self) -> bytes:
        """The page on paper, in the size that its style asks for."""
        asked = {"printBackground": True, "preferCSSPageSize": True}
        return base64.b64decode(self.ask("Page.printToPDF", **asked)["data"])

    def png(self, box: dict[str, float]) -> bytes:
        """A part of the page: x, y, width, height in CSS px."""
        taken = self.ask(
            "Page.captureScreenshot",
            format="png",
            clip={**box, "scale": 1},
            captureBeyondViewport=True,
        )
        return base64.b64decode(taken["data"])

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol and its answer."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._write(json.dumps(message).encode() + b"\0")
        while True:
            told = json.loads(self._read())
            if told.get("id") == self._last:
                if "error" in told:
                    raise BrowserError(f"the browser refused {method}: {told['error']['message']}")
                answer: dict[str, Any] = told["result"]
                return answer

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._to, data) :]
        except OSError:
            raise self._ended() from None

    def _read(self) -> bytes:
        while b"\0" not in self._buffer:
            left = self._until - time.monotonic()
            if left <= 0 or not select.select([self._from], [], [], left)[0]:
                raise BrowserError(f"the browser did not answer within {_TIMEOUT_SECONDS:.0f} s")
            more = os.read(self._from, 1 << 20)
            if not more:
                raise self._ended()
            self._buffer += more
        told, _, self._buffer = self._buffer.partition(b"\0")
        return told

    def _ended(self) -> BrowserError:
        return BrowserError(
            "the browser ended before it had drawn anything: does it start by itself?"
        )


@contextmanager
def opened(
    path: Path, query: str, width_px: int, height_px: int, *, dark: bool = False, scale: float = 1
) -> Iterator[Page]:
    """A file in a browser of its own, which is ended afterwards. Raises BrowserError."""
    command = find()
    with tempfile.TemporaryDirectory(prefix="ddpviz-browser-", ignore_cleanup_errors=True) as home:
        flags = [*_FLAGS, f"--user-data-dir={home}", f"--window-size={width_px},{height_px}"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")  # as root it does not start with one
        with _started([command, *flags, "about:blank"]) as page:
            url = path.resolve().as_uri() + query
            page.open(url, width_px, height_px, dark=dark, scale=scale)
            yield page


@contextmanager
def _started(command: list[str]) -> Iterator[Page]:
    """The browser, which takes its commands from descriptor 3 and answers on 4."""
    ours: list[int] = []
    theirs: list[int] = []
    for place in (0, 1):
        ends = os.pipe()
        # Above those that they become, so that one dup2 does not overwrite the other.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
        for end in ends:
            os.close(end)
        theirs.append(high[place])
        ours.append(high[1 - place])
    silent = os.open(os.devnull, os.O_RDWR)
    moved = [(silent, 0), (silent, 1), (silent, 2), (theirs[0], 3), (theirs[1], 4)]
    actions = [(os.POSIX_SPAWN_DUP2, end, becomes) for end, becomes in moved]
    try:
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions, setpgroup=0)
    except OSError as error:
        for end in ours:
            os.close(end)
        raise BrowserError(f"could not start {command[0]}: {error.strerror}") from None
    finally:
        for end in (*theirs, silent):
            os.close(end)
    try:
        yield Page(ours[0], ours[1])
    finally:
        for end in ours:
            os.close(end)
        _end(pid)


def _end(pid: int) -> None:
    """It ends when its pipe does; if not, it is killed with what it started."""
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.02)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(pid, 0)
