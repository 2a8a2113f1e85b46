"""The ipyparallel side: start or take a cluster, restart it, end its processes.

What reaches into ipyparallel beyond its documented calls stands in ``launched.py`` (processes of
local launchers) and in ``wire.py`` (messages).
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ipyparallel
from ipyparallel.cluster.launcher import (
    LocalControllerLauncher,
    LocalEngineLauncher,
    LocalEngineSetLauncher,
)
from IPython.core.profiledir import ProfileDir, ProfileDirError
from IPython.paths import get_ipython_dir

from ddpviz.engines import guard, launched, wire
from ddpviz.engines.errors import SessionError
from ddpviz.engines.progress import Progress
from ddpviz.engines.ranks import EngineInfo, this_host

_START_SECONDS = 120

#: The hub takes a new engine at the second beat after it came: at ipyparallel's own 3 s that is
#: 3 to 6 s of a start. An engine may miss as many seconds of beats as with ipyparallel's numbers.
_HEARTBEAT = ["--HeartMonitor.period=200", "--HeartMonitor.max_heartmonitor_misses=150"]


@dataclasses.dataclass
class Engines:
    """A connection to a cluster. ``owned``: started here, so it ends with the session;
    ``connected``: the client is ours, so it closes with the session.

    ``ids``: the engines in use, in the order of their ranks; they change on a restart.
    ``controller``: the process that messages go through, where it was started from here.
    """

    client: Any
    cluster: Any
    owned: bool
    ids: list[int]
    connected: bool = True
    profile: Path | None = None
    launchers: launched.Launchers = dataclasses.field(default_factory=dict)
    controller: Any = None


def connect(count: int, cluster: Any, give_up: Callable[[], str] = str) -> Engines:
    """``cluster``: None to start a local one, an ipyparallel Client or Cluster, or a profile's
    name. A cluster that does not run is started, and ends with the session. ``give_up``: asked
    while engines start; a reason ends that.

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
    engines = Engines(None, cluster, cluster.controller is None, [], profile=profile)
    try:
        if not engines.owned:
            engines.client = _client(cluster)
            return _take(engines, count)
        _guard(cluster)
        _start(engines, count, give_up)
    except BaseException:
        close(engines)
        raise
    return engines


def restart(engines: Engines, count: int, lost: set[int], give_up: Callable[[], str] = str) -> None:
    """End all engines of the cluster and start as many anew.

    With only a client to a cluster somebody else runs, takes engines that are still there;
    ``lost``: those known not to be. Raises SessionError where too few come.
    """
    if engines.cluster is None or not engines.cluster.engines:
        _take(engines, count, lost)
        return
    ended = controller_ending(engines)
    if ended:
        close(engines)  # its engines wait for one that is gone
        if engines.profile is None:
            raise SessionError(f"found that {ended}, expected one that runs: make a new session")
        engines.cluster, engines.profile = _local_cluster()
        _start(engines, count, give_up)
        return
    old = set(engines.client.ids)
    with Progress("restarting engines", count) as progress:
        kill(engines)  # a rank that hangs would let its 5 s after SIGTERM pass
        engines.cluster.restart_engines_sync()
        engines.launchers = launched.launchers(engines.cluster)
        engines.ids = _wait(engines, count, old, progress, give_up)


def controller_ending(engines: Engines) -> str:
    """Why no engine can be asked any more, "" while its controller runs, or is not ours to see."""
    if engines.controller is None or engines.controller.process.is_running():
        return ""
    return f"its cluster's controller has ended: {launched.ending(engines.controller)}"


def close(engines: Engines) -> None:
    """End the cluster if it is ours; disconnect. Engines need not answer."""
    try:
        if engines.owned:
            kill(engines)
        if engines.client is not None and engines.connected:
            engines.client.close()
    finally:
        if engines.owned:
            controller = engines.controller or launched.controller(engines.cluster)
            if controller_ending(engines):
                launched.kill_children(controller)  # its schedulers
            engines.cluster.stop_cluster_sync()
            if controller is not None:
                launched.kill_children(controller)  # those that were stopped, say
        if engines.profile is not None:
            shutil.rmtree(engines.profile, ignore_errors=True)


def kill(engines: Engines) -> None:
    """End the engines' processes at once, as far as they were started from here."""
    launched.kill(engines.launchers)


def importing() -> str:
    """Code that lets an engine import what this process can, as far as the folders exist there."""
    paths = [os.path.abspath(path) for path in [str(Path(__file__).parents[2]), *sys.path]]
    return (
        "import os, sys\n"
        f"sys.path += [p for p in {paths!r} if os.path.exists(p) and p not in sys.path]"
    )


def signal_engine(engines: Engines, engine: int, info: EngineInfo, number: int) -> None:
    """Send a signal to one engine, also if it is stuck in C. Gone already is fine."""
    if info.host == this_host():
        if guard.alive(info.pid, info.ticks):
            try:
                os.kill(info.pid, number)
            except ProcessLookupError:
                pass
    else:
        wire.signal(engines.client, engine, number)


def dead(engines: Engines, engine: int, info: EngineInfo) -> bool:
    """Has the engine's process ended? By its process table where we see it, else by the hub."""
    if info.host == this_host():
        return not guard.alive(info.pid, info.ticks)
    return engine not in engines.client.ids


def ending(engines: Engines, info: EngineInfo) -> str:
    """How an engine's process ended, in words."""
    here = info.host == this_host()
    return launched.ending(engines.launchers.get(info.pid) if here else None)


def _local_cluster() -> tuple[Any, Path]:
    """A cluster of local processes, in a profile of its own."""
    profile = Path(tempfile.mkdtemp(prefix="ddpviz-cluster-"))
    cluster = ipyparallel.Cluster(
        profile_dir=str(profile),
        controller="local",
        engines="local",
        controller_args=_HEARTBEAT,
        delay=0,
        shutdown_atexit=False,  # the session does it, and the guard where it cannot
        log_level=logging.CRITICAL,
    )
    return cluster, profile


def _guard(cluster: Any) -> None:
    """Have the processes of a cluster that is started here end when this one does.

    Only local ones can see it, and a command that somebody configured is left as it is: such
    processes end with the session alone.
    """
    watched = ["-m", "ddpviz.engines.guard", str(os.getpid()), str(guard.start_ticks(os.getpid()))]
    config = copy.deepcopy(cluster.config)
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(part for part in [root, os.environ.get("PYTHONPATH", "")] if part)
    for launcher, name, module in (
        (cluster.controller_launcher_class, "controller_cmd", "ipyparallel.controller"),
        (cluster.engine_launcher_class, "engine_cmd", "ipyparallel.engine"),
    ):
        # Exactly these: launchers for other hosts inherit from them.
        if launcher not in (LocalControllerLauncher, LocalEngineSetLauncher):
            continue
        for one in (launcher, LocalEngineLauncher) if "engine" in name else (launcher,):
            mine = config[one.__name__]
            if name not in mine:
                mine[name] = [sys.executable, *watched, module]
            if "environment" not in mine and "environment" not in config.BaseLauncher:
                mine["environment"] = {"PYTHONPATH": path}
    cluster.config = config


def _start(engines: Engines, count: int, give_up: Callable[[], str]) -> None:
    """Start the cluster, and connect to it."""
    with Progress("starting engines", count) as progress:
        engines.cluster.start_cluster_sync(n=count)
        engines.launchers = launched.launchers(engines.cluster)
        engines.controller = launched.controller(engines.cluster)
        engines.client = _client(engines.cluster)
        engines.ids = _wait(engines, count, set(), progress, give_up)


def _of_profile(name: str) -> Any:
    """The running cluster of a profile, or a new one with that profile's configuration."""
    try:  # what looks for its cluster would make it
        ProfileDir.find_profile_dir_by_name(get_ipython_dir(), name)
    except ProfileDirError:
        raise SessionError(
            f"found no profile {name!r}, expected one of IPython's: leave cluster out for a local "
            f"one, or make it with `ipython profile create --parallel {name}`"
        ) from None
    try:
        return ipyparallel.Cluster.from_file(profile=name)
    except FileNotFoundError:
        return ipyparallel.Cluster(profile=name, log_level=logging.CRITICAL)


def _client(cluster: Any) -> Any:
    try:
        return cluster.connect_client_sync()
    except (OSError, RuntimeError) as error:  # a TimeoutError is an OSError
        raise SessionError(
            f"found no answer from the cluster's controller ({error}), expected one that runs: "
            "start the cluster, or leave cluster out to get a local one"
        ) from None


def _take(engines: Engines, count: int, lost: set[int] | None = None) -> Engines:
    ids = sorted(set(engines.client.ids) - (lost or set()))
    if len(ids) < count:
        raise SessionError(
            f"found {len(ids)} engines in the cluster, expected {count}: start more, or pass "
            f"engines={max(len(ids), 1)}"
        )
    engines.ids = ids[:count]
    return engines


def _wait(
    engines: Engines, count: int, old: set[int], progress: Progress, give_up: Callable[[], str]
) -> list[int]:
    """The ids of ``count`` engines that are not ``old``."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        new = sorted(set(engines.client.ids) - old)
        progress.update(min(len(new), count))
        if len(new) >= count:
            return new[:count]
        why = give_up()
        if why:
            raise SessionError(f"found {len(new)} engines, expected {count}, but {why}")
        ended = launched.ended_output(engines.launchers)
        if ended or time.monotonic() > deadline:
            found = f"{len(ended)} ended at once" if ended else f"{len(new)} came"
            said = "\n".join(ended).strip()
            last = f": {said.splitlines()[-1]}" if said else ""
            raise SessionError(
                f"expected {count} engines within {_START_SECONDS} s, found that {found}{last}"
                + (f"\nTheir last words:\n{said}" if said else "")
            )
        time.sleep(0.05)
