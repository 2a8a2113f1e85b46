"""Fingerprints of parameters, gradients and buffers, in sampled steps: are the replicas equal?

Each rank fingerprints its own tensors; whoever reads the recording compares. No collective is
added, and nothing is written to any tensor. On CUDA the host waits for the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ddpviz.events import Fingerprints, Kind
from ddpviz.probe.hashing import hashes, norms

if TYPE_CHECKING:
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState


def check_every(every: Any) -> int:
    """Raises ValueError unless it is a whole number of steps, or 0 for none."""
    if isinstance(every, bool) or not isinstance(every, int) or every < 0:
        raise ValueError(
            f"found {every!r} for how often to take fingerprints, expected a whole number of "
            "steps: 1 for every step, 0 for none"
        )
    return every


class Fingerprinter:
    """Of one recorder. ``due``: whether the step that runs is sampled, the same on all ranks."""

    def __init__(self, recorder: Recorder, every: int):
        self.every = check_every(every)
        self.due = False
        self._recorder = recorder

    def step_begins(self, step: int) -> None:
        """Steps 0, n, 2n, … are sampled; a change holds from the next step on."""
        self.due = self.every > 0 and step % self.every == 0

    def buffers(self, state: ModuleState, what: str) -> None:
        """Around a sync: "buffers before", "buffers after"."""
        self._take(state, what, _buffers, state.iteration)

    def gradients(self, state: ModuleState) -> None:
        """After a backward that reduced them, and waited for what a buffer hook had begun."""
        self._take(state, "gradients", _gradients, state.backward_iteration)
        if state.buffers_after_backward:
            state.buffers_after_backward = False
            self.buffers(state, "buffers after")

    def step_ended(self) -> None:
        """Parameters and buffers of all modules, as the step leaves them."""
        self.due = False
        for state in self._recorder.states():
            if state.iteration >= 0:
                self._take(state, "parameters", _parameters, state.backward_iteration)
                if state.buffers:
                    self._take(state, "buffers", _buffers, state.iteration)

    def _take(
        self,
        state: ModuleState,
        what: str,
        collect: Callable[[Any, ModuleState], Sequence[torch.Tensor | None]],
        iteration: int,
    ) -> None:
        recorder, ddp = self._recorder, state.ddp()
        if ddp is None or _capturing():
            return
        begin_ns, step = time.time_ns(), recorder.step_index
        try:
            tensors = collect(ddp, state)
            hashed, (normed, nonfinite) = hashes(tensors), norms(tensors)
        except Exception as error:  # a tensor of a sort that cannot be viewed; training goes on
            recorder.say(
                f"fingerprints of {what} are not available here, because "
                f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            )
            return
        recorder.note(
            Fingerprints(state.id, step, iteration, begin_ns, what, hashed, normed, nonfinite)
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


def _capturing() -> bool:
    """Whether a CUDA graph is being captured, which a host that waits would break."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _parameters(ddp: Any, state: ModuleState) -> list[torch.Tensor | None]:
    return [reference() for reference in state.parameters]


def _gradients(ddp: Any, state: ModuleState) -> list[torch.Tensor | None]:
    return [None if one is None else one.grad for one in _parameters(ddp, state)]


def _buffers(ddp: Any, state: ModuleState) -> list[torch.Tensor | None]:
    """By name: a buffer can be reassigned, and is then another tensor."""
    found = dict(ddp.module.named_buffers())
    return [found.get(name) for name in state.buffers]
