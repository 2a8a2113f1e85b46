"""The ipyparallel side: start or take a cluster, restart it, end its processes.

What reaches into ipyparallel beyond its documented calls stands here (processes of local
launchers) and in ``tasks.py`` (message callbacks). Checked on ipyparallel 9.2.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ipyparallel
import psutil

from ddpviz.engines import guard
from ddpviz.engines.errors import SessionError
from ddpviz.engines.progress import Progress
from ddpviz.engines.ranks import EngineInfo, this_host

_START_SECONDS = 120


@dataclasses.dataclass
class Engines:
    """A connection to a cluster. ``owned``: started here, so it ends with the session;
    ``connected``: the client is ours, so it closes with the session.

    ``ids``: the engines in use, in the order of their ranks; they change on a restart.
    """

    client: Any
    cluster: Any
    owned: bool
    ids: list[int]
    connected: bool = True
    profile: Path | None = None
    launchers: dict[int, Any] = dataclasses.field(default_factory=dict)


def connect(count: int, cluster: Any) -> Engines:
    """``cluster``: None to start a local one, an ipyparallel Client or Cluster, or a profile's
    name. A cluster that does not run is started, and ends with the session.

    Raises SessionError where engines are too few or do not come.
    """
    if count < 1:
        raise SessionError(f"found engines={count}, expected at least 1")
    if isinstance(cluster, ipyparallel.Client):
        return _take(Engines(cluster, cluster.cluster, False, [], connected=False), count)
    profile = None
    if cluster is None:
        cluster, profile = _local_cluster()
    elif isinstance(cluster, str):
        cluster = _of_profile(cluster)
    elif not isinstance(cluster, ipyparallel.Cluster):
        raise SessionError(
            f"found cluster of type {type(cluster).__name__}, expected an ipyparallel Cluster, "
            "a Client or a profile's name"
        )
    if cluster.controller is not None:
        return _take(Engines(cluster.connect_client_sync(), cluster, False, []), count)
    engines = Engines(None, cluster, True, [], profile=profile)
    try:
        with Progress("starting engines", count) as progress:
            cluster.start_cluster_sync(n=count)
            _note_launchers(engines)
            engines.client = cluster.connect_client_sync()
            engines.ids = _wait(engines, count, set(), progress)
    except BaseException:
        close(engines)
        raise
    return engines


def restart(engines: Engines, count: int, lost: set[int]) -> None:
    """End all engines of the cluster and start as many anew.

    With only a client to a cluster somebody else runs, takes engines that are still there;
    ``lost``: those known not to be. Raises SessionError where too few come.
    """
    if engines.cluster is None or not engines.cluster.engines:
        _take(engines, count, lost)
        return
    old = set(engines.client.ids)
    with Progress("restarting engines", count) as progress:
        for launcher in engines.launchers.values():
            _kill_launched(launcher)  # a rank that hangs would let its 5 s after SIGTERM pass
        engines.cluster.restart_engines_sync()
        _note_launchers(engines)
        engines.ids = _wait(engines, count, old, progress)


def close(engines: Engines) -> None:
    """Disconnect; end the cluster if it is ours. Engines need not answer."""
    if engines.client is not None and engines.connected:
        engines.client.close()
    if not engines.owned:
        return
    for launcher in engines.launchers.values():
        _kill_launched(launcher)
    if engines.cluster is not None:
        engines.cluster.stop_cluster_sync()
    if engines.profile is not None:
        shutil.rmtree(engines.profile, ignore_errors=True)


def extend_paths(engines: Engines) -> None:
    """Let engines import what this process can, as far as the folders exist on their machine."""
    paths = [os.path.abspath(path) for path in [str(Path(__file__).parents[2]), *sys.path]]
    code = (
        "import os, sys\n"
        f"sys.path += [p for p in {paths!r} if os.path.exists(p) and p not in sys.path]"
    )
    engines.client[engines.ids].execute(code, block=True)


def signal_engine(engines: Engines, engine: int, info: EngineInfo, number: int) -> None:
    """Send a signal to one engine, also if it is stuck in C. Gone already is fine."""
    if info.host == this_host():
        if guard.alive(info.pid, info.ticks):
            try:
                os.kill(info.pid, number)
            except ProcessLookupError:
                pass
    elif engine in engines.client.ids:
        # ipyparallel's nanny process passes it on, on the engine's own machine.
        engines.client.send_signal(number, targets=engine, block=False)


def dead(engines: Engines, engine: int, info: EngineInfo) -> bool:
    """Has the engine's process ended? By its process table where we see it, else by the hub."""
    if info.host == this_host():
        return not guard.alive(info.pid, info.ticks)
    return engine not in engines.client.ids


def ending(engines: Engines, info: EngineInfo) -> str:
    """How an engine's process ended, in words."""
    launcher = engines.launchers.get(info.pid)
    code = None
    if launcher is not None:
        # The launcher's thread reaps the process; only after that does wait() know the code.
        try:
            asyncio.run(launcher.join(2))
            code = launcher.process.wait(0)
        except (TimeoutError, psutil.TimeoutExpired):
            pass
    if code is None:
        return "its process ended"
    if code < 0:
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process exited with status {code}"


def _local_cluster() -> tuple[Any, Path]:
    """A cluster of local processes that end when this one does, in a profile of its own."""
    profile = Path(tempfile.mkdtemp(prefix="ddpviz-cluster-"))
    watched = ["-m", "ddpviz.engines.guard", str(os.getpid()), str(guard.start_ticks(os.getpid()))]
    command = [sys.executable, *watched]
    cluster = ipyparallel.Cluster(
        profile_dir=str(profile),
        controller="local",
        engines="local",
        config=_config(command),
        delay=0,
        shutdown_atexit=False,  # the session does it, and the guard where it cannot
        log_level=logging.CRITICAL,
    )
    return cluster, profile


def _config(command: list[str]) -> Any:
    from traitlets.config import Config

    config = Config()
    config.LocalControllerLauncher.controller_cmd = [*command, "ipyparallel.controller"]
    config.LocalEngineLauncher.engine_cmd = [*command, "ipyparallel.engine"]
    config.LocalEngineSetLauncher.engine_cmd = [*command, "ipyparallel.engine"]
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(part for part in [root, os.environ.get("PYTHONPATH", "")] if part)
    config.BaseLauncher.environment = {"PYTHONPATH": path}
    return config


def _of_profile(name: str) -> Any:
    """The running cluster of a profile, or a new one with that profile's configuration."""
    try:
        return ipyparallel.Cluster.from_file(profile=name)
    except FileNotFoundError:
        return ipyparallel.Cluster(profile=name, log_level=logging.CRITICAL)


def _take(engines: Engines, count: int, lost: set[int] | None = None) -> Engines:
    ids = sorted(set(engines.client.ids) - (lost or set()))
    if len(ids) < count:
        raise SessionError(
            f"found {len(ids)} engines in the cluster, expected {count}: start more, or pass "
            f"engines={max(len(ids), 1)}"
        )
    engines.ids = ids[:count]
    return engines


def _wait(engines: Engines, count: int, old: set[int], progress: Progress) -> list[int]:
    """The ids of ``count`` engines that are not ``old``."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        new = sorted(set(engines.client.ids) - old)
        progress.update(min(len(new), count))
        if len(new) >= count:
            return new[:count]
        ended = [one for one in engines.launchers.values() if not one.process.is_running()]
        if ended or time.monotonic() > deadline:
            output = "".join(one.get_output()[-2000:] for one in ended)
            found = f"{len(ended)} ended at once" if ended else f"{len(new)} came"
            raise SessionError(
                f"expected {count} engines within {_START_SECONDS} s, found that {found}; "
                f"their last words:\n{output}"
            )
        time.sleep(0.05)


def _note_launchers(engines: Engines) -> None:
    """Processes of local engines, by pid: for their exit codes, and to end them for sure."""
    engines.launchers = {
        launcher.pid: launcher
        for engine_set in engines.cluster.engines.values()
        for launcher in getattr(engine_set, "launchers", {}).values()
        if getattr(launcher, "process", None) is not None
    }


def _kill_launched(launcher: Any) -> None:
    """An engine and its nanny process, which would otherwise stay for seconds."""
    if launcher.process.is_running():
        family = [launcher.process, *launcher.process.children(recursive=True)]
        for process in family:
            process.kill()
