"""How a session begins and ends outside of itself: its folder, the registry, exit, nobody left."""

from __future__ import annotations

import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

from ddpviz.engines import cluster as clusters
from ddpviz.engines import registry
from ddpviz.engines.crew import Crew
from ddpviz.engines.driver import Driver
from ddpviz.engines.errors import SessionError
from ddpviz.engines.progress import say
from ddpviz.events import LEVELS

BACKENDS = ("nccl", "gloo")


def check(engines: Any, backend: Any, level: Any) -> None:
    """Raises SessionError for what cannot be started, before anything is."""
    if not isinstance(engines, int) or isinstance(engines, bool) or engines < 1:
        raise SessionError(f"found engines={engines!r}, expected a whole number from 1 on")
    if backend is not None and backend not in BACKENDS:
        raise SessionError(
            f"found backend={backend!r}, expected one of {', '.join(BACKENDS)}, or None to choose"
        )
    if level not in LEVELS:
        raise SessionError(f"found level={level!r}, expected one of {', '.join(LEVELS)}")


def new_directory(directory: str | Path | None) -> Path:
    """Where ranks write. Raises SessionError where others have written already, or nobody can."""
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="ddpviz-"))
    if not isinstance(directory, (str, os.PathLike)):
        raise SessionError(f"found directory={directory!r}, expected a path")
    path = Path(directory).absolute()
    if path.exists() and not path.is_dir():
        raise SessionError(f"found a file at {path}, expected a directory: name another one")
    if path.exists() and any(path.glob("rank-*")):
        raise SessionError(
            f"found a recording in {path}, expected a new directory: name another one"
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SessionError(f"found that {path} cannot be made ({error.strerror})") from None
    return path


def register(id: str, crew: Crew, started: float) -> None:
    """Let others than this process find the ranks; training works without."""
    engines = crew.engines
    launchers = [*engines.launchers] if engines.owned else []
    controller = getattr(getattr(engines.cluster, "controller", None), "pid", None)
    if engines.owned and isinstance(controller, int):
        launchers.append(controller)
    found = [
        registry.RegisteredRank(
            one.rank, one.info.pid, one.info.ticks, one.info.host.partition("/")[0]
        )
        for one in crew.members
    ]
    try:
        registry.write(id, found, launchers, started)
    except (OSError, ImportError) as error:
        say(f"the session is not registered for a Jupyter server: {error}")


def end(engines: clusters.Engines, driver: Driver, id: str) -> None:
    """What is left of a session that nobody closed."""
    registry.remove(id)
    driver.close()
    clusters.close(engines)


def close_at_exit(reference: weakref.ref[Any]) -> None:
    """Close the session, if there still is one."""
    session = reference()
    if session is not None:
        session.close()


def announce(session: Any) -> None:
    """Inside a Jupyter kernel, let front ends find it; training works without."""
    if not registry.inside_kernel():
        return
    try:
        from ddpviz.explorer import announce

        announce(session)
    except Exception as error:
        say(f"the session is not shown in JupyterLab: {type(error).__name__}: {error}")
