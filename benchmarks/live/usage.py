"""CPU time and memory by what a process is for, from /proc."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

import psutil

from benchmarks.live.lab import Lab
from benchmarks.live.numbers import Row

#: Others on the machine took so much of a core: times are no longer this program's own.
DISTURBED_CORES = 0.3


@dataclasses.dataclass(frozen=True)
class Usage:
    """Cores that were busy, by role; ``others``: with what does not belong to this run."""

    cores: dict[str, float]
    others: float

    def told(self) -> str:
        """In words."""
        parts = [f"{name} {value:.2f}" for name, value in self.cores.items() if value >= 0.005]
        return f"{', '.join(parts)}, others {self.others:.2f}"

    def row(self, part: str, before: str = "") -> Row:
        """As a line of the table."""
        numbers = {
            "cores": self.cores,
            "others": self.others,
            "disturbed": self.others > DISTURBED_CORES,
        }
        return Row(part, "cores", before + self.told(), numbers=numbers)


class Watch:
    """CPU time from its making to :meth:`usage`."""

    def __init__(self, lab: Lab) -> None:
        self._kernel = psutil.Process(lab.kernel_pid)
        self._explorer = lab.value(
            "[one.native_id for one in __import__('threading').enumerate()"
            " if one.name == 'ddpviz-explorer']"
        )
        self._begin = self._now()

    def usage(self) -> Usage:
        """What was used since."""
        (at, busy, before), (now, busy_now, after) = self._begin, self._now()
        seconds = now - at
        cores = {
            role: (spent - before.get(role, 0.0)) / seconds
            for role, spent in after.items()
            if role != "all"
        }
        ours = (after["all"] - before["all"]) / seconds
        return Usage(cores, max(0.0, (busy_now - busy) / seconds - ours))

    def _now(self) -> tuple[float, float, dict[str, float]]:
        found: dict[str, float] = {}
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            try:
                times, role = process.cpu_times(), role_of(process, self._kernel)
            except psutil.NoSuchProcess:
                continue
            spent = times.user + times.system
            found["all"] = found.get("all", 0.0) + spent
            found[role] = found.get(role, 0.0) + spent
        threads = self._kernel.threads()
        found["its explorer thread"] = sum(
            one.user_time + one.system_time for one in threads if one.id in self._explorer
        )
        machine = psutil.cpu_times()
        busy = machine.user + machine.nice + machine.system + machine.irq + machine.softirq
        return time.monotonic(), busy, found


def role_of(process: psutil.Process, kernel: psutil.Process) -> str:
    """What a process is for."""
    command = " ".join(process.cmdline())
    if process.pid == kernel.pid:
        return "kernel"
    if "--type=renderer" in command:
        return "page"
    if "chrom" in command:
        return "rest of the browser"
    if "ipyparallel.engine" in command:
        return "engines"
    if "ipyparallel" in command:
        return "ipyparallel"
    if "jupyterlab" in command:
        return "server"
    return "benchmark"


def private_bytes(process: psutil.Process) -> int:
    """What it has allocated, in memory and swapped out; the kernel may drop clean file pages."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return sum(1024 * int(fields[name].split()[0]) for name in ("RssAnon", "VmSwap"))


def resident_bytes(process: psutil.Process) -> int:
    """Its resident size, shared pages included."""
    return int(process.memory_info().rss)


def of_role(role: str, lab: Lab) -> list[psutil.Process]:
    """This run's processes of a role."""
    kernel = psutil.Process(lab.kernel_pid)
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if role_of(process, kernel) == role:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def versions(browser: str) -> str:
    """What was measured with what."""
    names = ("torch", "bokeh", "jupyterlab", "ipykernel")
    listed = ", ".join(f"{name} {version(name)}" for name in names)
    return f"Python {platform.python_version()}, {listed}, Chromium {browser}"


def machine() -> str:
    """What it was measured on, and how busy that was before."""
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    memory = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB; load before: {load} (1, 5, 15 min)"
