"""Who asks a module for its ``state_dict()``: a checkpoint may come of it."""

from __future__ import annotations

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
            for state in recorder.states():
                ddp = state.ddp()
                if ddp is not None and (self is ddp or self is ddp.module):
                    recorder.note(
                        StateRead(state.id, recorder.step_index, state.iteration, recorder.now())
                    )
        return found

    return state_dict
