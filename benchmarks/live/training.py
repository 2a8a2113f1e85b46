"""A session that trains in the lab's kernel, with its explorer open."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.live.lab import Lab, lab

#: Until the first steps, which allocate, and BokehJS's coming are over.
SETTLE_SECONDS = 4.0


@dataclasses.dataclass(frozen=True)
class Load:
    """What is trained: a built-in workload, at most so many steps a second or as many as go."""

    workload: str
    steps_per_second: float | None

    @property
    def said(self) -> str:
        pace = self.steps_per_second
        return f"{self.workload}, {'unpaced' if pace is None else f'{pace:g} steps/s'}"


@contextmanager
def trained(load: Load, engines: int, view: str = "explorer") -> Iterator[Lab]:
    """The lab, while a session trains there; ``meter`` is the kernel's :class:`Meter`."""
    with lab() as found:
        begin(found, load, engines)
        found.run("session.start()")
        found.open(view, found.value("session.id"))
        time.sleep(SETTLE_SECONDS)
        yield found
        found.run("session.stop()")


def begin(found: Lab, load: Load, engines: int) -> None:
    """A session in the kernel, loaded and not yet training."""
    found.run(
        "import ddpviz\n"
        f"session = ddpviz.Session(engines={engines})\n"
        "opened = [session]\n"
        f"session.load({load.workload!r}, bucket_cap_mb=1, "
        f"steps_per_second={load.steps_per_second!r})\n"
        "meter = Meter(session.recording)"
    )
