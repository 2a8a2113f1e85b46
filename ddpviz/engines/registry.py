"""Live sessions of this user, each in a small file that others than its kernel can read.

``<jupyter_runtime_dir>/ddpviz/<session id>.json`` names the processes of a session, so that a
Jupyter server can end them where the kernel is stuck. A pid alone may be another process by now:
beside each stands when it started (see ``guard.start_ticks``). Imports neither torch nor
ipyparallel.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from ddpviz.engines import guard


@dataclasses.dataclass(frozen=True)
class RegisteredRank:
    """``host``: ``socket.gethostname()`` there. ``ticks``: see ``guard.start_ticks``."""

    rank: int
    pid: int
    ticks: int
    host: str


@dataclasses.dataclass(frozen=True)
class RegisteredProcess:
    """A process on this machine."""

    pid: int
    ticks: int


@dataclasses.dataclass(frozen=True)
class Registered:
    """``kernel_pid``: the process that has the session; ``kernel_id``: Jupyter's name of it, None
    where it is no kernel; ``kernel_host``: its machine. ``launchers``: what keeps a cluster of the
    session's own together. ``started``: seconds since the epoch."""

    session: str
    kernel_pid: int
    kernel_ticks: int
    kernel_id: str | None
    kernel_host: str
    ranks: tuple[RegisteredRank, ...]
    launchers: tuple[RegisteredProcess, ...]
    started: float


def folder() -> Path:
    """Where the files are; it need not exist."""
    from jupyter_core.paths import jupyter_runtime_dir

    return Path(jupyter_runtime_dir()) / "ddpviz"


def read() -> list[Registered]:
    """Every live session on this machine, the oldest first; files of dead kernels are removed."""
    found = []
    try:
        paths = sorted(folder().glob("*.json"))
    except OSError:
        return []
    for path in paths:
        one = _read(path)
        if one is None or one.kernel_host != host():
            continue  # another machine that shares this folder looks after its own
        if guard.alive(one.kernel_pid, one.kernel_ticks):
            found.append(one)
        else:
            remove(one.session)
    return sorted(found, key=lambda one: one.started)


def write(session: str, ranks: list[RegisteredRank], launchers: list[int], started: float) -> None:
    """Register a session of this process, or what it has become."""
    one = Registered(
        session,
        os.getpid(),
        guard.start_ticks(os.getpid()),
        kernel_id(),
        host(),
        tuple(ranks),
        tuple(RegisteredProcess(pid, guard.start_ticks(pid)) for pid in launchers),
        started,
    )
    place = folder()
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(0o700)
    # mkstemp makes it readable by this user alone; the rename shows it whole or not at all.
    handle, name = tempfile.mkstemp(dir=place, prefix=f".{session}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(dataclasses.asdict(one), file)
    os.replace(name, place / f"{session}.json")


def remove(session: str) -> None:
    """The session is closed. Fine where it is not there."""
    try:
        (folder() / f"{session}.json").unlink(missing_ok=True)
    except OSError:
        pass


def inside_kernel() -> bool:
    """Whether this process is a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def kernel_id() -> str | None:
    """Jupyter's name of this kernel, from its connection file; None outside any."""
    if not inside_kernel():
        return None
    try:
        from ipykernel.connect import get_connection_file

        name = Path(get_connection_file()).stem
    except (ImportError, RuntimeError):
        return None
    return name.removeprefix("kernel-") if name.startswith("kernel-") else None


def host() -> str:
    """This machine, as :class:`RegisteredRank` names it."""
    return socket.gethostname()


def _read(path: Path) -> Registered | None:
    """None for what is not one of ours, or being removed."""
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Registered(
            str(data["session"]),
            int(data["kernel_pid"]),
            int(data["kernel_ticks"]),
            data["kernel_id"],
            str(data.get("kernel_host", host())),
            tuple(RegisteredRank(**one) for one in data["ranks"]),
            tuple(RegisteredProcess(**one) for one in data["launchers"]),
            float(data["started"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
