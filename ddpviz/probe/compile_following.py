"""What following Dynamo takes: its functions wrapped, nothing of ours raised into it."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.nn.parallel import DistributedDataParallel as DDP

from ddpviz.events import NO_MODULE, Graph, Unavailable
from ddpviz.probe.patches import Patches

if TYPE_CHECKING:
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState


class _Local(threading.local):
    """Of a thread that compiles: graphs that are at their backends now, the innermost last."""

    def __init__(self) -> None:
        self.open: list[Graph] = []
        self.begun_ns: list[int] = []
        self.module = NO_MODULE  # of the last graph of what is compiled now


class Following:
    """Of one recorder."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder
        self._patches = Patches()
        self._local = _Local()

    def _wrap(
        self, what: str, module: str, owner: str, name: str, make: Callable[..., Any]
    ) -> None:
        try:
            found = importlib.import_module(module)
            if owner:
                found = getattr(found, owner)
        except (ImportError, AttributeError):
            found = None
        if found is None or not self._patches.wrap(found, name, make):
            path = ".".join(filter(None, (module, owner, name)))
            self._unavailable(what, f"this torch has no {path}")

    def _unavailable(self, what: str, why: str) -> None:
        self._recorder.note(Unavailable(NO_MODULE, what, time.time_ns(), why))
        self._recorder.say(f"{what} of torch.compile are not available here, because {why}")

    def _safely(self, what: str, work: Callable[[], Any]) -> Any:
        """What the work gives, None where it fails: compiling must go on."""
        if self._recorder.closed:
            return None
        try:
            return work()
        except Exception as error:
            self._unavailable(what, f"following it failed ({type(error).__name__}: {error})")
            return None

    def _active_state(self) -> ModuleState | None:
        """As DDPOptimizer finds the module whose forward runs."""
        active = DDP._get_active_ddp_module() if hasattr(DDP, "_get_active_ddp_module") else None
        return None if active is None else self._recorder.modules.of(active)

    def _active(self) -> int:
        """The DDP module in whose forward or backward this thread is."""
        states = self._recorder.modules.states()
        inside = [one for one in states if one.in_forward]
        if inside:
            return max(inside, key=lambda one: one.forward_ns).id
        state = self._active_state()
        if state is None and any(one.in_backward for one in states):
            state = self._recorder.backward_of
        return NO_MODULE if state is None else state.id
