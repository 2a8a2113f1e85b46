"""The recorder of one training process: state of its DDP modules, steps, ring, sinks."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ddpviz import events
from ddpviz.events import LEVELS, NO_GROUP, NO_MODULE, Kind
from ddpviz.probe import describe, lifecycle, structure, tap
from ddpviz.probe.collectives import Collectives
from ddpviz.probe.compiling import Compiling
from ddpviz.probe.device_times import DeviceTimes
from ddpviz.probe.environment import environment
from ddpviz.probe.fingerprints import Fingerprinter
from ddpviz.probe.modules import Modules
from ddpviz.probe.outlet import Outlet, Sink
from ddpviz.probe.patches import Patches
from ddpviz.probe.schedule import Schedule, schedule
from ddpviz.probe.stall import STALL_S, StallWatch
from ddpviz.probe.state import Local, ModuleState
from ddpviz.probe.steps import Steps

_LATE_COMPLETIONS_S = 0.5
#: Seconds between flushes; where a file of the ring keeps what is not flushed, and without one.
_KEPT_FLUSH_S, _FLUSH_S = 5.0, 1.0

_active: Recorder | None = None


class Recorder:
    """Records this process. One at a time; ``close`` puts everything back.

    ``sinks`` are called with a :class:`events.Batch` on the recorder's own thread, every
    ``flush_interval_s`` and at once for notes. ``ring_path``: a file that keeps what was written
    even when the process is killed; with one it is flushed every five seconds by default, else
    every second. ``capacity``: records that it holds.
    ``level``: "summary" (per step), "default" (per parameter and bucket) or "detail" (also when
    each gradient was there on a GPU). ``fingerprints``: in every so many steps, see
    :meth:`fingerprint_every`. ``device``: that is trained on, where it is known before CUDA has
    started. ``stall_s``: after how long what the rank is in is noted, see
    :class:`ddpviz.probe.stall.StallWatch`; 0 for never.
    Raises RuntimeError where another recorder is active, ValueError for an unknown level.
    """

    def __init__(
        self,
        sinks: Sequence[Sink] = (),
        level: str = "default",
        ring_path: str | Path | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        capacity: int = 65_536,
        flush_interval_s: float | None = None,
        fingerprints: int | Schedule = 0,
        device: str | None = None,
        stall_s: float = STALL_S,
    ):
        if level not in LEVELS:
            raise ValueError(f"found level {level!r}, expected one of {', '.join(LEVELS)}")
        ready = dist.is_initialized()
        self.rank = rank if rank is not None else (dist.get_rank() if ready else 0)
        self.world_size = (
            world_size if world_size is not None else (dist.get_world_size() if ready else 1)
        )
        self.level = level
        self.closed = False
        self.local = Local()
        self.detailed = level != "summary"
        self.stalls = StallWatch(self, stall_s)
        if flush_interval_s is None:
            flush_interval_s = _FLUSH_S if ring_path is None else _KEPT_FLUSH_S
        self._outlet = Outlet(self.rank, sinks, capacity, ring_path, flush_interval_s, self._look)
        #: Rows of records, positional: the quick way in.
        self.write_rows: Callable[..., None] = self._outlet.write
        self.write_ready = self._outlet.write_ready
        self.note = self._outlet.note
        self.label = self._outlet.label
        self.say = self._outlet.say
        #: The time, and on a device where its stream is, too.
        self.now: Callable[[], int] = time.time_ns
        self.device_times: DeviceTimes | None = None
        self.fingerprints = Fingerprinter(self, schedule(fingerprints))
        self._patches = Patches()
        self.compiling = Compiling(self)
        self.modules = Modules(self, self._patches)
        self.steps = Steps(self)
        self.collectives = Collectives(self)
        #: The module whose gradients the running backward brings, None where that is not known.
        self.backward_of: ModuleState | None = None
        self.optimizers = lifecycle.Optimizers(self)
        self.note(
            events.Process(
                self.rank,
                self.world_size,
                os.getpid(),
                socket.gethostname(),
                str(torch.__version__),
                platform.python_version(),
                describe.device_name(device),
                time.time_ns(),
                level,
            )
        )

        self.note(environment(self.rank))

    # --- life ----------------------------------------------------------------------------------

    def install(self) -> Recorder:
        """Follow DDP from now on: modules built later are tapped in their constructor."""
        global _active
        check_free()
        _active = self
        try:
            lifecycle.install(self, self._patches)
            tap.watch_python_callers(self, self._patches)
        except BaseException:
            self._patches.restore()
            _active = None
            raise
        self.optimizers.watch()
        self.compiling.follow()
        self._outlet.start()  # who records is on disk before anything that can be killed
        return self

    def adopt(self, module: Any) -> None:
        """Tap a DDP module that exists already, between two of its steps. Idempotent.

        Raises TypeError for anything but a DistributedDataParallel, or one that was compiled.
        """
        ddp = check_module(module)
        if self.modules.of(ddp) is not None:
            return
        state = self.modules.new(ddp.process_group)
        ddp.process_group = state.tap
        # On the Reducer alone: DDP's own _update_process_group would reset it and cost a rebuild.
        ddp.reducer._update_process_group(state.tap)
        state.iteration = -1
        # Its first static step leaves no statistics, but this (torch >= 1.13).
        state.synced_backwards = int(
            any(ddp.reducer.get_backward_stats())
            or getattr(ddp, "_static_graph_delay_allreduce_enqueued", False)
        )
        self.modules.built(ddp, state, "attached")
        structure.look(self, state, False)
        self.fingerprints.initial(state)

    def close(self) -> None:
        """Record no more, give every module its group back, flush. Idempotent."""
        global _active
        if self.closed:
            return
        self.closed = True
        self.fingerprints.due = False  # a step that did not end may hang: nothing may wait for it
        self.steps.abandon()
        # A completion callback can come a moment after its waiter went on; a hung one never does.
        deadline = time.monotonic() + _LATE_COMPLETIONS_S
        while self.collectives.pending and time.monotonic() < deadline:
            time.sleep(0.001)
            if self.device_times is not None:
                self.device_times.resolve()
        if self.device_times is not None:
            self.device_times.close()
        self.modules.close()
        self.optimizers.close()
        self.compiling.close()
        self._patches.restore()
        # Of a batch a file gets the notes first: who reads that it ended finds all it recorded.
        self._outlet.flush()
        self.note(events.Ended(self.rank, time.time_ns()))
        if _active is self:
            _active = None
        self._outlet.close()

    # --- steps ---------------------------------------------------------------------------------

    def step(self) -> contextlib.AbstractContextManager[int]:
        """One training step, explicitly; without it steps end at ``optimizer.step()``."""
        return self.steps.explicit()

    def walk_next_step(self) -> None:
        """See :meth:`ddpviz.probe.steps.Steps.walk_next`."""
        self.steps.walk_next()

    def fingerprint_every(self, steps: int | Schedule) -> None:
        """From the next step on, fingerprint what replicas should share in every so many steps.

        0 ends it. Raises ValueError for anything but a whole number or a :class:`Schedule`.
        """
        self.fingerprints.follow(schedule(steps))

    def fingerprint_next_step(self) -> None:
        """Sample the next step that begins, whatever the schedule. To be called on every rank."""
        self.fingerprints.ask()

    def originals(self) -> list[Any]:
        """The functions of torch that are wrapped now."""
        return self._patches.originals()

    # --- writing -------------------------------------------------------------------------------

    def write(
        self,
        kind: Kind,
        begin_ns: int,
        end_ns: int,
        nbytes: int = 0,
        step: int | None = None,
        iteration: int = -1,
        index: int = -1,
        sequence: int = -1,
        label: int = 0,
        flags: int = 0,
        cause: int = 0,
        module: int = NO_MODULE,
        group: int = NO_GROUP,
    ) -> None:
        """One record, by name."""
        if step is None:
            step = self.steps.current
        self.write_rows(
            (
                begin_ns, end_ns, nbytes, step, iteration, index, sequence, label,
                self.rank, flags, kind, cause, module, group, 0,
            )
        )  # fmt: skip

    def failed(self, error: BaseException) -> None:
        """This rank failed: a FAILED record and the traceback, flushed at once."""
        now_ns = time.time_ns()
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        trace = "".join(traceback.format_exception(error))
        self.note(events.Failure(self.rank, self.steps.current, now_ns, message, trace))
        self.write(Kind.FAILED, now_ns, now_ns, label=self.label(message))
        self.flush()

    @property
    def flush_interval_s(self) -> float:
        """Seconds between two flushes; may be set while it records."""
        return self._outlet.interval_s

    @flush_interval_s.setter
    def flush_interval_s(self, seconds: float) -> None:
        self._outlet.interval_s = seconds

    def follow_device(self, times: DeviceTimes) -> None:
        """From now on spans have the device's times; what is written waits until they are known."""
        self.device_times, self.now, self.write_rows = times, times.now, times.write

    def flush(self) -> None:
        """Hand everything that is known by now to the sinks. From any thread."""
        if self.device_times is not None:
            self.device_times.resolve()
        self._outlet.flush()

    def _look(self) -> None:
        """On the recorder's own thread, before each flush."""
        if self.device_times is not None:
            self.device_times.resolve()
        self.stalls.look()

    @property
    def written(self) -> int:
        """A count that grows whenever something is recorded."""
        return self._outlet.written

    @property
    def current(self) -> str:
        """What this rank is in right now, for a person; empty outside any collective."""
        return self.collectives.current


def check_free() -> None:
    """Raises RuntimeError where a recorder is active in this process."""
    if _active is not None:
        raise RuntimeError(
            "found a recorder already active in this process, expected none: "
            "close it first, or adopt the second module in it"
        )


def check_module(module: Any) -> Any:
    """The DDP module, of ``torch.compile(ddp)`` that inside it. Raises TypeError or ValueError for
    what cannot be followed."""
    module = getattr(module, "_orig_mod", module)  # torch.compile's OptimizedModule
    if not isinstance(module, torch.nn.parallel.DistributedDataParallel):
        raise TypeError(
            f"found a {type(module).__name__}, expected a DistributedDataParallel module: "
            "attach after wrapping the model"
        )
    if not hasattr(module, "reducer"):
        raise ValueError(
            "found a DistributedDataParallel without a Reducer, expected one that has it: "
            "with every parameter in delay_all_reduce_named_params there is nothing to record"
        )
    return module
