"""The two comms that a lab front end opens on the kernel, joined by the client's id.

``ddpviz.frames`` only goes out, from the broadcaster's thread. On ``ddpviz.control`` nothing is
published but the reply to a request, with that request as its parent: ipykernel 7.4 hands a comm's
messages to the shell of what was last published on it, so one word from elsewhere would tie
requests to the main shell, where they wait for the cell that runs.
"""

from __future__ import annotations

import logging
import threading
import uuid
from typing import Any

from ddpviz.explorer.broadcaster import BROADCASTER, Client, Send
from ddpviz.explorer.controls import answer

FRAMES = "ddpviz.frames"
CONTROL = "ddpviz.control"
VERSION = 1

_log = logging.getLogger("ddpviz")
_lock = threading.Lock()
_registered: list[Any] = []


def register_targets() -> None:
    """Make the targets known to this kernel; a second time does nothing."""
    import comm

    manager = comm.get_comm_manager()
    with _lock:
        if any(one is manager for one in _registered):
            return
        _registered.append(manager)
    manager.register_target(FRAMES, _frames_opened)
    manager.register_target(CONTROL, _control_opened)


def _frames_opened(opened: Any, message: dict[str, Any]) -> None:
    client = _client_of(message)
    if client is None:
        opened.close()
        return
    client.send = _sender(opened)
    opened.on_close(lambda _: BROADCASTER.remove(client))
    client.on_lost.append(opened.close)


def _control_opened(opened: Any, message: dict[str, Any]) -> None:
    client = _client_of(message)
    if client is None:
        opened.close()
        return

    def on_message(message: dict[str, Any]) -> None:
        answer(client, message["content"].get("data"), reply)

    def reply(data: dict[str, Any], buffers: list[bytes]) -> None:
        opened.send(data, buffers=buffers)

    opened.on_msg(on_message)
    opened.on_close(lambda _: BROADCASTER.remove(client))
    client.on_lost.append(opened.close)


def _client_of(message: dict[str, Any]) -> Client | None:
    data = message["content"].get("data") or {}
    version = data.get("version")
    if version != VERSION:
        _log.warning(
            "found a front end that speaks version %r of ddpviz's protocol, expected %d: "
            "install the same version of ddpviz beside JupyterLab and in the kernel",
            version,
            VERSION,
        )
        return None
    return BROADCASTER.client(str(data.get("client") or uuid.uuid4()))


def _sender(opened: Any) -> Send:
    def send(data: dict[str, Any], buffer: bytes | None) -> None:
        opened.send(data, buffers=[] if buffer is None else [buffer])

    return send
