"""The recorder of one training process: state of its DDP modules, steps, ring, sinks."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ddpviz import events
from ddpviz.events import LEVELS, NO_GROUP, NO_MODULE, Flag, Kind
from ddpviz.probe import cuda_events, describe, lifecycle, structure, tap
from ddpviz.probe.collectives import Collectives
from ddpviz.probe.comm_hooks import RecordedHook
from ddpviz.probe.compiling import Compiling
from ddpviz.probe.device_times import DeviceTimes
from ddpviz.probe.early_hooks import EarlyHooks
from ddpviz.probe.environment import environment
from ddpviz.probe.fingerprints import Fingerprinter
from ddpviz.probe.frames import Walker
from ddpviz.probe.outlet import Outlet, Sink
from ddpviz.probe.patches import Patches
from ddpviz.probe.ready_on_device import ReadyOnDevice
from ddpviz.probe.schedule import Schedule, schedule
from ddpviz.probe.stall import STALL_S, StallWatch
from ddpviz.probe.state import Local, ModuleState

_STEP, _OPTIMIZER = int(Kind.STEP), int(Kind.OPTIMIZER)
_LATE_COMPLETIONS_S = 0.5

#: Taps that C++ may still point to, for as long as their DDP module lives.
_released_taps: weakref.WeakKeyDictionary[Any, list[tap.Tap]] = weakref.WeakKeyDictionary()

_active: Recorder | None = None


class Recorder:
    """Records this process. One at a time; ``close`` puts everything back.

    ``sinks`` are called with a :class:`events.Batch` on the recorder's own thread, every
    ``flush_interval_s`` and at once for notes. ``ring_path``: a file that keeps what was written
    even when the process is killed. ``capacity``: records that it holds.
    ``level``: "summary" (per step), "default" (per parameter and bucket) or "detail" (also when
    each gradient was there on a GPU). ``fingerprints``: in
    every so many steps, see :meth:`fingerprint_every`. ``device``: that is trained on, where it is
    known before CUDA has started. ``stall_s``: after how long what the rank is in is noted, see
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
        flush_interval_s: float = 1.0,
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
        self.step_index = -1
        self.local = Local()
        self.detailed = level != "summary"
        self.stalls = StallWatch(self, stall_s)
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
        self._ready_on_device = ReadyOnDevice(self)
        self.fingerprints = Fingerprinter(self, schedule(fingerprints))
        self._patches = Patches()
        self.compiling = Compiling(self)
        self._states: dict[int, ModuleState] = {}
        self._by_reducer: dict[int, ModuleState] = {}
        self.collectives = Collectives(self)
        self.early_hooks = EarlyHooks(self, self._patches)
        #: The module whose gradients the running backward brings, None where that is not known.
        self.backward_of: ModuleState | None = None
        self._taps: list[tap.Tap] = []
        self._modules = 0
        self._step_begin_ns = 0
        #: When the backward ended that reduced the open step's last gradients, 0 for none yet.
        self.reduced_ns = 0
        self._forgetting: list[weakref.finalize[Any, Any]] = []
        self._explicit_step = False
        self._walker: Walker | None = None
        self._optimizers = lifecycle.Optimizers(self)
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
        self._optimizers.watch()
        self.compiling.follow()
        self._outlet.start()  # who records is on disk before anything that can be killed
        return self

    def adopt(self, module: Any) -> None:
        """Tap a DDP module that exists already, between two of its steps. Idempotent.

        Raises TypeError for anything but a DistributedDataParallel, or one that was compiled.
        """
        ddp = check_module(module)
        if id(ddp) in self._states:
            return
        state = self.new_state(ddp.process_group)
        ddp.process_group = state.tap
        # On the Reducer alone: DDP's own _update_process_group would reset it and cost a rebuild.
        ddp.reducer._update_process_group(state.tap)
        state.iteration = -1
        # Its first static step leaves no statistics, but this (torch >= 1.13).
        state.synced_backwards = int(
            any(ddp.reducer.get_backward_stats())
            or getattr(ddp, "_static_graph_delay_allreduce_enqueued", False)
        )
        self.built(ddp, state, "attached")
        structure.look(self, state, False)
        self.fingerprints.initial(state)

    def close(self) -> None:
        """Record no more, give every module its group back, flush. Idempotent."""
        global _active
        if self.closed:
            return
        self.closed = True
        self.fingerprints.due = False  # a step that did not end may hang: nothing may wait for it
        self.abandon_step()
        # A completion callback can come a moment after its waiter went on; a hung one never does.
        deadline = time.monotonic() + _LATE_COMPLETIONS_S
        while self.collectives.pending and time.monotonic() < deadline:
            time.sleep(0.001)
            if self.device_times is not None:
                self.device_times.resolve()
        if self.device_times is not None:
            self.device_times.close()
        for state in self.states():
            self._release(state)
        for released in self._taps:
            released.release()
        self._optimizers.close()
        for forgetting in self._forgetting:
            forgetting.detach()  # it would keep this recorder as long as the module
        self.compiling.close()
        self._ready_on_device.close()
        self._patches.restore()
        # Of a batch a file gets the notes first: who reads that it ended finds all it recorded.
        self._outlet.flush()
        self.note(events.Ended(self.rank, time.time_ns()))
        if _active is self:
            _active = None
        self._outlet.close()

    def _release(self, state: ModuleState) -> None:
        ddp = state.ddp()
        if state.tap is None:
            return
        state.tap.release()
        if ddp is not None and (ddp.process_group is state.tap or state.python_reducer):
            ddp.process_group = state.inner
            ddp.reducer._update_process_group(state.inner)
            # C++ comm hooks copied the group pointer when they were registered, so the tap
            # must outlive the recorder: it goes with the module.
            _released_taps.setdefault(ddp, []).append(state.tap)

    # --- modules -------------------------------------------------------------------------------

    def new_state(self, inner: Any) -> ModuleState:
        """State and tap of a module that is about to exist (``inner``: its process group)."""
        if isinstance(inner, tap.Tap):
            inner = inner.inner
        state = ModuleState(min(self._modules, NO_MODULE - 1))
        self._modules += 1  # never reused: plans and records refer to it
        state.inner = inner
        state.tap = tap.Tap(inner, self, state)
        self._taps.append(state.tap)
        return state

    def built(self, ddp: Any, state: ModuleState, reason: str) -> None:
        """The module's Reducer stands: describe it."""
        state.ddp = weakref.ref(ddp)
        key, reducer_key = id(ddp), id(ddp.reducer)
        self._states[key] = state
        self._by_reducer[reducer_key] = state
        self._forgetting.append(weakref.finalize(ddp, self._forget, key, reducer_key))
        if not state.parameters:
            state.parameters = describe.reducer_parameters(ddp)
        if not state.names:
            self.described(ddp, state)
        cuda_events.follow(self, state, self._patches)
        if self.level == "detail":
            self._ready_on_device.watch(state)
        state.last_stats = ddp.reducer.get_backward_stats()
        if len(state.parameters) != len(state.last_stats):
            why = "its Reducer's parameters are not known: attach right after wrapping the model"
            self._not_seen(state, "parameters", why)
        self._hooked_before(ddp, state)
        self.configured(ddp)
        self.plan(ddp, state, reason)
        self.compiling.built(ddp, state)
        if getattr(ddp, "_use_python_reducer", False):
            state.python_reducer, state.unreduced.seen = True, False
            # A compiled backward is for the group object it was traced with, and reduces by the
            # group's name: nothing but that may change.
            ddp.process_group = state.inner
            if state.tap is not None and not state.tap.take_name():
                why = "this torch does not let a group take another's name"
                self.note(events.Unavailable(state.id, "collectives", time.time_ns(), why))

    def _hooked_before(self, ddp: Any, state: ModuleState) -> None:
        """What is seen of a comm hook that is there already."""
        hooks = [hook for hook, _ in ddp._comm_hooks]
        state.python_hook = any(not _is_builtin(hook) for hook in hooks)
        if not describe.comm_hook_name(ddp):
            return
        if state.python_hook:
            if isinstance(hooks[-1], RecordedHook):  # of a recorder that is closed
                hooks[-1].follow(self, state)
                return
            if self.early_hooks.follow(state):
                return
            why = "a comm hook was registered before recording began"
        else:  # C++ keeps the process group that it was registered with
            why = "a comm hook built into torch was registered before recording began"
        state.unreduced.seen = False
        self._not_seen(state, "buckets", f"{why}: attach first, then register it")

    def _not_seen(self, state: ModuleState, what: str, why: str) -> None:
        self.note(events.Unavailable(state.id, what, time.time_ns(), why))
        self.say(f"{what} are not available here, because {why}")

    def described(self, ddp: Any, state: ModuleState) -> None:
        """Note what the module is, once its parameters are known."""
        module = describe.describe_module(ddp, state.id, state.parameters)
        state.names = tuple(parameter.name for parameter in module.parameters)
        state.buffers = tuple(buffer.name for buffer in module.buffers)
        self.note(module)

    def release(self, state: ModuleState) -> None:
        """The module of this state is gone, or never came to be: so is its tap."""
        if state.tap in self._taps:
            self._taps.remove(state.tap)
            state.tap.release()

    def _forget(self, key: int, reducer_key: int) -> None:
        state = self._states.pop(key, None)
        if state is not None:
            self.release(state)
        self._by_reducer.pop(reducer_key, None)

    def plan(self, ddp: Any, state: ModuleState, reason: str) -> None:
        """Note the Reducer's present bucket plan."""
        limits = state.initial_limits_bytes if reason == "construction" else None
        if reason == "attached" and not getattr(ddp, "_has_rebuilt_buckets", False):
            limits = []  # the constructor had others than the rebuild will have, and is over
        iteration = max(state.iteration, 0)
        try:
            state.plan = describe.read_plan(
                ddp, state.parameters, state.id, state.plan_version + 1, iteration, reason, limits
            )
        except (RuntimeError, TypeError) as error:
            self.say(f"the bucket plan is not available here, because {error}")
            return
        state.plan_version += 1
        self.note(state.plan)
        structure.remember(state)

    def configured(self, ddp: Any) -> None:
        """Note the module's present configuration (after a knob was turned)."""
        state = self._states[id(ddp)]
        note = describe.describe_configuration(ddp, state.id, state.configuration_version)
        state.configuration_version += 1
        self.note(note)
        self.write(Kind.CONFIGURED, note.time_ns, note.time_ns, index=note.version, module=state.id)

    def state_of(self, ddp: Any) -> ModuleState | None:
        return self._states.get(id(ddp))

    def state_of_reducer(self, reducer: Any) -> ModuleState | None:
        return self._by_reducer.get(id(reducer))

    def states(self) -> list[ModuleState]:
        return list(self._states.values())

    def in_backward_with_hook(self) -> ModuleState | None:
        """The module whose backward runs, if it has a Python comm hook."""
        return next((s for s in self.states() if s.in_backward and s.python_hook), None)

    # --- steps ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def step(self) -> Iterator[int]:
        """One training step, explicitly; without it steps end at ``optimizer.step()``."""
        self.abandon_step()
        self._explicit_step = True
        self._begin_step(time.time_ns())
        try:
            yield self.step_index
        finally:
            self._explicit_step = False
            self.end_step(time.time_ns())

    def forward_begins(self, state: ModuleState, begin_ns: int) -> None:
        """A DDP forward starts a step where none is open, or where its gradients are synced."""
        self._optimizers.forget()
        if torch.is_grad_enabled():  # an evaluation belongs to no training step
            if state.synced_in_step and not self._explicit_step:
                self.abandon_step()
            if self._step_begin_ns == 0:
                self._begin_step(begin_ns)
        state.iteration += 1

    def optimizer_stepped(self, begin_ns: int, label: str) -> None:
        """The optimizer's step is over; so is the training step."""
        end_ns, step = self.now(), self.current_step
        rows = [self._row(_OPTIMIZER, begin_ns, end_ns, step, -1, self.label(label), 0)]
        if not self._explicit_step:
            rows += self._step_row(end_ns)
        self.write_rows(*rows)

    def walk_next_step(self) -> None:
        """Note which functions of torch the next step that begins really runs (:class:`Walk`).

        It takes that step on its own thread a few milliseconds more. Where another profiler
        follows that thread there is no walk, and an :class:`Unavailable` note says why.
        """
        self._walker = Walker(self._patches.originals())

    def fingerprint_every(self, steps: int | Schedule) -> None:
        """From the next step on, fingerprint what replicas should share in every so many steps.

        0 ends it. Raises ValueError for anything but a whole number or a :class:`Schedule`.
        """
        self.fingerprints.follow(schedule(steps))

    def fingerprint_next_step(self) -> None:
        """Sample the next step that begins, whatever the schedule. To be called on every rank."""
        self.fingerprints.ask()

    def _begin_step(self, begin_ns: int) -> None:
        self.step_index += 1
        self.fingerprints.step_begins(self.step_index)
        self._step_begin_ns, self.reduced_ns = begin_ns, 0
        if self.device_times is not None:
            self.device_times.step_begins()
        self.stalls.thread = threading.get_ident()
        if self._walker is not None:
            self._walker.begin()

    def _end_walk(self, end_ns: int) -> None:
        walker = self._walker
        if walker is None or not walker.begun:
            return
        self._walker = None
        frames, now_ns = walker.end(end_ns), time.time_ns()
        module = min((state.id for state in self.states()), default=NO_MODULE)
        if frames:
            self.note(events.Walk(module, self.step_index, now_ns, frames))
        if walker.missing:
            self.note(events.Unavailable(module, "walk", now_ns, walker.missing))
            self.say(f"the walk is not available here, because {walker.missing}")

    @property
    def current_step(self) -> int:
        """The open training step, -1 outside any."""
        return self.step_index if self._step_begin_ns else -1

    def end_step(self, end_ns: int) -> None:
        """Close the open step, if there is one."""
        self.write_rows(*self._step_row(end_ns))

    def abandon_step(self) -> None:
        """Close a step that no optimizer ended: where its last gradients were reduced, which is
        derived. One that has none was not ended, as by an exception: it has no record.
        """
        if self.reduced_ns:
            self.write_rows(*self._step_row(self.reduced_ns, int(Flag.DERIVED)))
        elif self._step_begin_ns:
            self._step_row(time.time_ns())

    def _step_row(self, end_ns: int, flags: int = 0) -> list[tuple[int, ...]]:
        """The open step's record, if there is one; it is open no more."""
        begin_ns, self._step_begin_ns, self.reduced_ns = self._step_begin_ns, 0, 0
        for state in self.states():
            state.synced_in_step = False
        if not begin_ns:
            return []
        self._end_walk(end_ns)
        if self.fingerprints.due:
            self.fingerprints.step_ended()
        return [self._row(_STEP, begin_ns, end_ns, self.step_index, self.step_index, 0, flags)]

    def _row(
        self, kind: int, begin_ns: int, end_ns: int, step: int, index: int, label: int, flags: int
    ) -> tuple[int, ...]:
        return (
            begin_ns, end_ns, 0, step, -1, index, -1, label,
            self.rank, flags, kind, 0, NO_MODULE, NO_GROUP, 0,
        )  # fmt: skip

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
            step = self.current_step
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
        self.note(events.Failure(self.rank, self.current_step, now_ns, message, trace))
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


def _is_builtin(hook: Any) -> bool:
    return type(hook).__name__ == "BuiltinCommHookType"


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
