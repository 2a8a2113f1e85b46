"""When each gradient is there on a GPU: level "detail", a Python hook of each parameter.

On the CPU the Reducer's own statistics say it for nothing, so there it is not used.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpviz.events import NO_GROUP, Kind

if TYPE_CHECKING:
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState

_READY = int(Kind.GRAD_READY)


class ReadyOnDevice:
    """The hooks of one recorder. They run once per gradient, before the Reducer's own."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = weakref.ref(recorder)
        self._handles: list[Any] = []

    def watch(self, state: ModuleState) -> None:
        """The parameters of a module, where times of a device are taken."""
        recorder = self._recorder()
        if recorder is None or recorder.device_times is None:
            return
        for index, reference in enumerate(state.parameters):
            parameter = reference()
            if parameter is not None:
                hook = _hook(self._recorder, state, index)
                self._handles.append(parameter.register_post_accumulate_grad_hook(hook))

    def close(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _hook(recorder: Callable[[], Any], state: ModuleState, index: int) -> Callable[[Any], None]:
    def ready(parameter: Any) -> None:
        here = recorder()
        if here is None or here.closed:
            return
        now = here.now()
        here.write_rows(
            (now, now, 0, here.steps.current, state.backward_iteration, index, -1, 0, here.rank, 0,
             _READY, 0, state.id, NO_GROUP, 0)
        )  # fmt: skip

    return ready
