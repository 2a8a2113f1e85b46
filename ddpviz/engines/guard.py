"""Run a module, and end its whole process group when the process that owns the session ends.

``python -m ddpviz.engines.guard PID START MODULE [ARGUMENT ...]``: the launcher of a local
session starts its controller and engines through this, so that none outlives a killed kernel.
Needs Linux's ``/proc``. Imports neither torch nor ipyparallel itself.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

_POLL_SECONDS = 0.5


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot: with ``pid`` it names one process for
    good, as numbers are used again. 0 if it is gone or has ended and waits to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def alive(pid: int, ticks: int) -> bool:
    """Is the process that :func:`start_ticks` was asked about still running?"""
    return ticks > 0 and start_ticks(pid) == ticks


def watch(pid: int, ticks: int) -> None:
    """Return only by death: when the process is gone, SIGKILL this one's process group.

    ipyparallel starts controller and engines as leaders of their own groups, so the group is
    exactly this process and its children (schedulers, heartbeat).
    """
    while alive(pid, ticks):
        time.sleep(_POLL_SECONDS)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


def main(arguments: list[str]) -> None:
    """Watch the owner from a thread, and run the module as the program."""
    pid, ticks, module = int(arguments[0]), int(arguments[1]), arguments[2]
    threading.Thread(target=watch, args=(pid, ticks), name="ddpviz-guard", daemon=True).start()
    sys.argv = [module, *arguments[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
