"""A front end without a browser: a kernel's client that opens ddpviz's comms, as the lab does."""

from __future__ import annotations

import contextlib
import queue
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_client.blocking import BlockingKernelClient

from tests.waiting import until


class Front:
    """``client``: connected to the kernel. Messages are read while something is waited for."""

    def __init__(self, client: BlockingKernelClient, name: str | None = None) -> None:
        self.client = client
        self.name = name or uuid.uuid4().hex
        self.frames: list[tuple[float, dict[str, Any], list[memoryview]]] = []
        self.told: list[dict[str, Any]] = []
        self.closed: list[str] = []
        self.outputs: list[dict[str, Any]] = []
        self.subshell: str | None = None
        self._frames_comm, self._control_comm = uuid.uuid4().hex, uuid.uuid4().hex
        self._replies: dict[int, tuple[dict[str, Any], list[memoryview]]] = {}
        self._begun: set[str] = set()
        self._idle: set[str] = set()
        self._requests = 0

    # --- messages ------------------------------------------------------------------------------

    def send(self, kind: str, content: dict[str, Any]) -> str:
        message = self.client.session.msg(kind, content)
        if self.subshell is not None:
            message["header"]["subshell_id"] = self.subshell
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def read(self, seconds: float = 0.02) -> None:
        """Take in what came, for so long."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                message = self.client.get_iopub_msg(timeout=left)
            except queue.Empty:
                return
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "status" and content["execution_state"] == "idle":
            self._idle.add(message["parent_header"].get("msg_id", ""))
        elif kind == "execute_input":
            self._begun.add(message["parent_header"].get("msg_id", ""))
        elif kind == "comm_close":
            self.closed.append(content["comm_id"])
        elif kind == "comm_msg" and content["comm_id"] == self._control_comm:
            self._replies[content["data"]["id"]] = content["data"], message["buffers"]
        elif kind == "comm_msg" and content["comm_id"] == self._frames_comm:
            data = content["data"]
            if data["type"] == "frame":
                self.frames.append((time.monotonic(), data, message["buffers"]))
            else:
                self.told.append(data)
        elif kind in ("stream", "display_data", "update_display_data", "execute_result", "error"):
            self.outputs.append({"kind": kind, **content})

    # --- what a front end does -----------------------------------------------------------------

    def open(self, version: int = 1) -> None:
        for comm, target in (
            (self._frames_comm, "ddpviz.frames"),
            (self._control_comm, "ddpviz.control"),
        ):
            data = {"version": version, "client": self.name}
            self.send("comm_open", {"comm_id": comm, "target_name": target, "data": data})

    def close(self) -> None:
        for comm in (self._frames_comm, self._control_comm):
            self.send("comm_close", {"comm_id": comm, "data": {}})

    def ask(self, action: str, **args: Any) -> int:
        """Send a request; its number."""
        self._requests += 1
        data = {"id": self._requests, "action": action, "args": args}
        self.send("comm_msg", {"comm_id": self._control_comm, "data": data})
        return self._requests

    def answer(self, number: int, seconds: float = 30.0) -> Any:
        """The result of a request. Raises RuntimeError with the kernel's sentence."""

        def replied() -> bool:
            self.read()
            return number in self._replies

        until(replied, seconds)
        reply, self.buffers = self._replies.pop(number)
        if not reply["ok"]:
            raise RuntimeError(reply["error"])
        return reply["result"]

    def request(self, action: str, seconds: float = 30.0, **args: Any) -> Any:
        return self.answer(self.ask(action, **args), seconds)

    def watch(self, session: str, *views: str, **more: Any) -> None:
        given = {"step": "newest", "hidden": False, "width_px": 1000, **more}
        self.request("watch", session=session, views=list(views), **given)

    def run(self, code: str) -> str:
        """Execute a cell; its message's id."""
        subshell, self.subshell = self.subshell, None
        content = {
            "code": code,
            "silent": False,
            "store_history": False,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        }
        id = self.send("execute_request", content)
        self.subshell = subshell
        return id

    def begun(self, id: str) -> bool:
        """Whether that cell has begun to run."""
        self.read()
        return id in self._begun

    def busy(self, id: str) -> bool:
        """Whether that cell still runs."""
        self.read()
        return id not in self._idle

    def done(self, id: str, seconds: float = 60.0) -> None:
        """Wait for the cell. Raises AssertionError with its error."""
        until(lambda: not self.busy(id), seconds)
        errors = [one for one in self.outputs if one["kind"] == "error"]
        assert not errors, "\n".join(errors[0]["traceback"])

    @contextlib.contextmanager
    def occupied(self, end: Path) -> Iterator[None]:
        """A cell runs all the while, and then ends. ``end``: the file that has it end."""
        code = f"import os, time\nwhile not os.path.exists({str(end)!r}): time.sleep(0.01)"
        cell = self.run(code)
        until(lambda: self.begun(cell))
        yield
        assert self.busy(cell)
        end.touch()
        self.done(cell)

    def execute(self, code: str, seconds: float = 60.0) -> str:
        """Run a cell and wait for it; what it printed."""
        self.outputs.clear()
        self.done(self.run(code), seconds)
        return "".join(one["text"] for one in self.outputs if one["kind"] == "stream")

    def follow(self, seconds: float) -> None:
        """Read for so long, and acknowledge every frame."""
        deadline, known = time.monotonic() + seconds, len(self.frames)
        while time.monotonic() < deadline:
            self.read()
            if len(self.frames) > known:
                known = len(self.frames)
                self.ask("ack", sequence=self.frames[-1][1]["sequence"])

    def until_step(self, step: int, seconds: float = 10.0) -> None:
        """Read until a timeline of that step, or a later one, has come."""

        def shown() -> bool:
            self.follow(0.05)
            return any(
                one["views"]["timeline"]["step"] >= step
                for _, one, _ in self.frames
                if "timeline" in one["views"]
            )

        until(shown, seconds)

    def new_subshell(self) -> str | None:
        """A subshell of the kernel, as the lab makes one for its comms; None where it has none."""
        message = self.client.session.msg("create_subshell_request", {})
        self.client.control_channel.send(message)
        reply = self.client.get_control_msg(timeout=10)
        found = reply["content"].get("subshell_id")
        return None if found is None else str(found)
