"""Processes that ipyparallel's local launchers started: how they end, and that they do.

What reaches into launchers beyond their documented calls stands here (``launchers`` of an engine
set, ``process`` and ``join`` of a launcher). Checked on ipyparallel 8.8 and 9.2. A cluster that
starts its engines otherwise (SSH, Slurm, MPI) has none.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import psutil

Launchers = dict[int, Any]


def launchers(cluster: Any) -> Launchers:
    """The launchers of a cluster's engines, by pid."""
    return {
        launcher.pid: launcher
        for engine_set in cluster.engines.values()
        for launcher in getattr(engine_set, "launchers", {}).values()
        if getattr(launcher, "process", None) is not None
    }


def controller(cluster: Any) -> Any:
    """The launcher of a cluster's controller, None where that is no process of ours."""
    found = cluster.controller
    return found if getattr(found, "process", None) is not None else None


def ending(launcher: Any) -> str:
    """How a launcher's process ended, in words."""
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
        named = -code in set(signal.Signals)
        name = signal.Signals(-code).name if named else f"signal {-code}"
        return f"its process was killed by {name}"
    return f"its process exited with status {code}"


def ended_output(found: Launchers) -> list[str]:
    """The last words of those that have ended, one text each."""
    return [one.get_output()[-2000:] for one in found.values() if not one.process.is_running()]


def kill(found: Launchers) -> None:
    """End engines and their nanny processes, which would otherwise stay for seconds."""
    for launcher in found.values():
        try:
            family = [launcher.process, *launcher.process.children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                pass


def kill_children(launcher: Any) -> None:
    """End what a process of ours that has ended left behind, in the group that it led."""
    group = launcher.process.pid
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group != process.pid:
                process.kill()
        except (ProcessLookupError, psutil.NoSuchProcess, psutil.AccessDenied):
            pass
