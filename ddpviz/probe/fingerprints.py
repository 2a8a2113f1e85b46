"""Fingerprints of parameters, gradients and buffers, in sampled steps: are the replicas equal?

Each rank fingerprints its own tensors; whoever reads the recording compares. No collective is
added, and nothing is written to any tensor. On CUDA the host waits for the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ddpviz.events import Fingerprints, Kind, Projections
from ddpviz.probe import hashing
from ddpviz.probe.projecting import project, project_gradients
from ddpviz.probe.schedule import Schedule
from ddpviz.probe.unreduced import steps

if TYPE_CHECKING:
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState


class Fingerprinter:
    """Of one recorder. ``due``: whether the step that runs is sampled, the same on all ranks."""

    def __init__(self, recorder: Recorder, schedule: Schedule):
        self.due = False
        self._schedule = schedule
        self._since = 0
        self._asked = False
        self._recorder = recorder

    def follow(self, schedule: Schedule) -> None:
        """Another schedule, from the next step on."""
        self._schedule, self._since = schedule, self._recorder.steps.index + 1

    def ask(self) -> None:
        """The next step is sampled, whatever the schedule."""
        self._asked = True

    def step_begins(self, step: int) -> None:
        """Decides about the step; a change of schedule holds from the next one on."""
        self.due = self._asked or self._schedule.samples(step, self._since)
        self._asked = False

    def initial(self, state: ModuleState) -> None:
        """Parameters and buffers of a module as recording it begins, where any step is sampled."""
        if self._schedule:
            self._take(state, "initial parameters", _parameters, -1, -1)
            if state.buffers:
                self._take(state, "initial buffers", _buffers, -1, -1)

    def buffers(self, state: ModuleState, what: str) -> None:
        """Around a sync: "buffers before", "buffers after"."""
        self._take(state, what, _buffers, state.iteration)

    def bucket(self, state: ModuleState, order: int, buffer: torch.Tensor) -> None:
        """What a comm hook is given of a bucket: this rank's own gradients."""
        if order == 0:
            state.projected = []
        if len(state.projected) == order and not _capturing():
            try:
                state.projected.append(project(buffer))
            except Exception as error:  # one of a sort that cannot be projected; training goes on
                self._without("projections", error)

    def gradients(self, state: ModuleState) -> None:
        """After a backward that reduced them, and waited for what a buffer hook had begun."""
        self._take(state, "gradients", _gradients, state.backward_iteration)
        state.graded = _versions(state)
        self._projections(state)
        if state.buffers_after_backward:
            state.buffers_after_backward = False
            self.buffers(state, "buffers after")

    def optimizer_steps(self, optimizer: Any) -> None:
        """An optimizer begins to step: gradients that have changed since they were reduced, and
        those that never were. Not those of a module whose gradients were all set to None."""
        for state in self._recorder.modules.states():
            versions = _versions(state) if steps(optimizer, state) else state.graded
            if versions != state.graded and any(versions):
                state.graded = versions
                self._take(state, "applied", _gradients, state.backward_iteration)

    def step_ended(self) -> None:
        """Parameters and buffers of all modules, as the step leaves them."""
        self.due = False
        for state in self._recorder.modules.states():
            state.graded = ()
            if state.iteration >= 0:
                self._take(state, "parameters", _parameters, state.backward_iteration)
                if state.buffers:
                    self._take(state, "buffers", _buffers, state.iteration)

    def _projections(self, state: ModuleState) -> None:
        local, state.projected = state.projected, []
        if not local or state.plan is None or len(local) != len(state.plan.buckets):
            return
        try:
            reduced = project_gradients(state.plan, state.parameters)
        except Exception as error:
            self._without("projections", error)
            return
        if reduced is None:
            return
        step, now_ns = self._recorder.steps.index, time.time_ns()
        for what, buckets in (("local", local), ("reduced", reduced)):
            values = tuple(value for bucket in buckets for value in bucket)
            self._recorder.note(
                Projections(
                    state.id,
                    step,
                    state.backward_iteration,
                    now_ns,
                    what,
                    len(buckets),
                    values,
                )
            )

    def _without(self, what: str, error: Exception) -> None:
        said = str(error).splitlines()[0] if str(error) else ""
        self._recorder.say(f"{what} are not available here, because {type(error).__name__}: {said}")

    def _take(
        self,
        state: ModuleState,
        what: str,
        collect: Callable[[Any, ModuleState], Sequence[torch.Tensor | None]],
        iteration: int,
        step: int | None = None,
    ) -> None:
        recorder, ddp = self._recorder, state.ddp()
        if ddp is None or _capturing():
            return
        begin_ns = time.time_ns()
        step = recorder.steps.index if step is None else step
        try:
            tensors = collect(ddp, state)
            hashed, normed, nonfinite = hashing.fingerprints(tensors)
            storages = _storages(tensors) if what == "gradients" else 0
        except Exception as error:  # a tensor of a sort that cannot be viewed; training goes on
            self._without(f"fingerprints of {what}", error)
            return
        recorder.note(
            Fingerprints(
                *(state.id, step, iteration, begin_ns, what),
                *(hashed, normed, nonfinite, storages),
            )
        )
        recorder.write(
            Kind.FINGERPRINT,
            begin_ns,
            time.time_ns(),
            step=step,
            iteration=iteration,
            index=len(hashed),
            label=recorder.label(what),
            module=state.id,
        )


def _storages(tensors: Sequence[torch.Tensor | None]) -> int:
    """In how many pieces of memory they lie; 0 where one of them has none."""
    try:
        found = (one.untyped_storage().data_ptr() for one in tensors if one is not None)
        return len(set(found))
    except (NotImplementedError, RuntimeError):  # sparse, or of a sort without storage
        return 0


def _capturing() -> bool:
    """Whether a CUDA graph is being captured, which a host that waits would break."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _parameters(ddp: Any, state: ModuleState) -> list[torch.Tensor | None]:
    """By name, as the module has them now: one that was replaced is another tensor. After those of
    the Reducer come those that it should have, in the order of the Parted note."""
    if not state.parted:
        return [reference() for reference in state.parameters]
    live = state.live_parameters(ddp)
    return [
        live.get(name, reference())
        for name, reference in zip(state.names, state.parameters, strict=True)
    ] + [live.get(name) for name in state.parted.added]


def _gradients(ddp: Any, state: ModuleState) -> list[torch.Tensor | None]:
    return [None if one is None else one.grad for one in _parameters(ddp, state)]


def _versions(state: ModuleState) -> tuple[Any, ...]:
    """What changes when a gradient is written to, or is another tensor; empty for none at all."""
    ddp = state.ddp()
    grads = [] if ddp is None else _gradients(ddp, state)
    if not any(grad is not None for grad in grads):
        return ()
    return tuple(None if grad is None else (id(grad), grad._version) for grad in grads)


def _buffers(ddp: Any, state: ModuleState) -> list[torch.Tensor | None]:
    """By name: a buffer can be reassigned, and is then another tensor."""
    found = dict(ddp.module.named_buffers())
    return [found.get(name) for name in state.buffers]
