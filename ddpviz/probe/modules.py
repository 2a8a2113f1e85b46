"""The DDP modules that a recorder follows: state, tap and description of each."""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, Any

from ddpviz import events
from ddpviz.events import NO_MODULE, Kind
from ddpviz.probe import cuda_events, describe, structure, tap
from ddpviz.probe.comm_hooks import RecordedHook
from ddpviz.probe.early_hooks import EarlyHooks
from ddpviz.probe.ready_on_device import ReadyOnDevice
from ddpviz.probe.state import ModuleState

if TYPE_CHECKING:
    from ddpviz.probe.patches import Patches
    from ddpviz.probe.recorder import Recorder

#: Taps that C++ may still point to, for as long as their DDP module lives.
_released_taps: weakref.WeakKeyDictionary[Any, list[tap.Tap]] = weakref.WeakKeyDictionary()


class Modules:
    """Of one recorder; they get ids in the order in which they came."""

    def __init__(self, recorder: Recorder, patches: Patches):
        self._recorder = recorder
        self._patches = patches
        self._ready_on_device = ReadyOnDevice(recorder)
        self.early_hooks = EarlyHooks(recorder, patches)
        self._states: dict[int, ModuleState] = {}
        self._by_reducer: dict[int, ModuleState] = {}
        self._taps: list[tap.Tap] = []
        self._count = 0
        self._forgetting: list[weakref.finalize[Any, Any]] = []

    # --- who there is --------------------------------------------------------------------------

    def of(self, ddp: Any) -> ModuleState | None:
        """The state of a DDP module that is followed."""
        return self._states.get(id(ddp))

    def of_reducer(self, reducer: Any) -> ModuleState | None:
        return self._by_reducer.get(id(reducer))

    def states(self) -> list[ModuleState]:
        return list(self._states.values())

    def in_backward_with_hook(self) -> ModuleState | None:
        """The module whose backward runs, if it has a Python comm hook."""
        return next((s for s in self.states() if s.in_backward and s.python_hook), None)

    # --- life ----------------------------------------------------------------------------------

    def new(self, inner: Any) -> ModuleState:
        """State and tap of a module that is about to exist (``inner``: its process group)."""
        if isinstance(inner, tap.Tap):
            inner = inner.inner
        state = ModuleState(min(self._count, NO_MODULE - 1))
        self._count += 1  # never reused: plans and records refer to it
        state.inner = inner
        state.tap = tap.Tap(inner, self._recorder, state)
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
        cuda_events.follow(self._recorder, state, self._patches)
        if self._recorder.level == "detail":
            self._ready_on_device.watch(state)
        state.last_stats = ddp.reducer.get_backward_stats()
        if len(state.parameters) != len(state.last_stats):
            why = "its Reducer's parameters are not known: attach right after wrapping the model"
            self._not_seen(state, "parameters", why)
        self._hooked_before(ddp, state)
        self.configured(ddp)
        self.plan(ddp, state, reason)
        self._recorder.compiling.built(ddp, state)
        if getattr(ddp, "_use_python_reducer", False):
            state.python_reducer, state.unreduced.seen = True, False
            # A compiled backward is for the group object it was traced with, and reduces by the
            # group's name: nothing but that may change.
            ddp.process_group = state.inner
            if state.tap is not None and not state.tap.take_name():
                why = "this torch does not let a group take another's name"
                self._recorder.note(
                    events.Unavailable(state.id, "collectives", time.time_ns(), why)
                )

    def _hooked_before(self, ddp: Any, state: ModuleState) -> None:
        """What is seen of a comm hook that is there already."""
        hooks = [hook for hook, _ in ddp._comm_hooks]
        state.python_hook = any(not _is_builtin(hook) for hook in hooks)
        if not describe.comm_hook_name(ddp):
            return
        if state.python_hook:
            if isinstance(hooks[-1], RecordedHook):  # of a recorder that is closed
                hooks[-1].follow(self._recorder, state)
                return
            if self.early_hooks.follow(state):
                return
            why = "a comm hook was registered before recording began"
        else:  # C++ keeps the process group that it was registered with
            why = "a comm hook built into torch was registered before recording began"
        state.unreduced.seen = False
        self._not_seen(state, "buckets", f"{why}: attach first, then register it")

    def _not_seen(self, state: ModuleState, what: str, why: str) -> None:
        self._recorder.note(events.Unavailable(state.id, what, time.time_ns(), why))
        are = "are" if what.endswith("s") else "is"
        self._recorder.say(f"{what} {are} not available here, because {why}")

    def described(self, ddp: Any, state: ModuleState) -> None:
        """Note what the module is, once its parameters are known."""
        module = describe.describe_module(ddp, state.id, state.parameters)
        state.names = tuple(parameter.name for parameter in module.parameters)
        state.buffers = tuple(buffer.name for buffer in module.buffers)
        self._recorder.note(module)

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
            if state.plan_seen:
                state.plan_seen = False
                why = "torch does not tell the buckets of a model with sparse gradients"
                self._not_seen(
                    state, "bucket plan", why if describe.has_sparse(ddp) else str(error)
                )
            return
        state.plan_version += 1
        self._recorder.note(state.plan)
        structure.remember(state)

    def configured(self, ddp: Any) -> None:
        """Note the module's present configuration (after a knob was turned)."""
        state = self._states[id(ddp)]
        note = describe.describe_configuration(ddp, state.id, state.configuration_version)
        state.configuration_version += 1
        self._recorder.note(note)
        self._recorder.write(
            Kind.CONFIGURED, note.time_ns, note.time_ns, index=note.version, module=state.id
        )

    def close(self) -> None:
        """Every module gets its group back."""
        for state in self.states():
            self._release(state)
        for released in self._taps:
            released.release()
        for forgetting in self._forgetting:
            forgetting.detach()  # it would keep this recorder as long as the module
        self._ready_on_device.close()

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


def _is_builtin(hook: Any) -> bool:
    return type(hook).__name__ == "BuiltinCommHookType"
