"""Who asks a module for its ``state_dict()``: a checkpoint may come of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ddpviz.events import StateRead

if TYPE_CHECKING:
    from ddpviz.probe.patches import Patches
    from ddpviz.probe.recorder import Recorder


def watch(recorder: Recorder, patches: Patches) -> None:
    patches.wrap(torch.nn.Module, "state_dict", lambda call: _state_dict(recorder, call))


def _state_dict(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    def state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = call(self, *args, **kwargs)
        # Of a module's own modules it is asked with the dictionary to fill.
        if not recorder.closed and not args and kwargs.get("destination") is None:
            for state in recorder.modules.states():
                ddp = state.ddp()
                step = recorder.steps.index
                if ddp is None or not (self is ddp or self is ddp.module) or state.read == step:
                    continue
                state.read = step  # once a step, and not at once: an average of weights asks often
                read = StateRead(state.id, step, state.iteration, time.time_ns())
                recorder.note(read, False)
        return found

    return state_dict
