"""What is followed of each thread and of each DDP module."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpviz import events
from ddpviz.events import Cause

if TYPE_CHECKING:
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.tap import Tap


class Local(threading.local):
    """What this thread is in, so that a collective knows its cause."""

    cause: Cause = Cause.UNKNOWN
    hook_bucket: int = -1
    hook_state: ModuleState | None = None
    #: Code, bucket and module of the last call of a hook that is older than the recording.
    early_hook: tuple[Any, int, ModuleState] | None = None
    in_backward: bool = False
    finalized: list[tuple[int, ...]] = []  # records that leave with the backward's own
    state: ModuleState | None = None


@dataclasses.dataclass
class Unreduced:
    """Gradients that backwards left in a module's parameters since the last reduction.

    ``forwards``: with gradients, through DDP, since an optimizer stepped; ``no_sync``: the last of
    them was in no_sync; ``seen``: whether the module's reductions can be seen at all.
    """

    begin_ns: int = 0
    backwards: int = 0
    forwards: int = 0
    no_sync: bool = False
    seen: bool = True


class ModuleState:
    """What is followed of one DDP module between its forward and its finalize."""

    def __init__(self, module_id: int):
        self.id = module_id
        self.ddp: Callable[[], Any] = lambda: None
        self.inner: Any = None
        self.tap: Tap | None = None
        self.iteration = -1
        self.backward_iteration = -1  # of the last forward with gradients
        self.parameters: list[Any] = []  # weak references, in the Reducer's order
        self.buffers: tuple[str, ...] = ()  # names, in the order of the Module note
        self.buffers_after_backward = False  # fingerprints that are still due
        self.names: tuple[str, ...] = ()  # of the parameters
        self.graded: tuple[Any, ...] = ()  # versions of the gradients that were fingerprinted last
        self.projected: list[list[float]] = []  # buckets of this backward, as a comm hook got them
        self.strides: tuple[tuple[int, ...], ...] = ()  # of the parameters as the plan was made
        self.parted: events.Parted | None = None  # the last one that was noted
        self.strided: tuple[str, ...] = ()  # names that were noted last
        self.looked = -2  # the step in which the module was last looked at
        self.read = -2  # the step in which its state_dict was last asked for
        self.unreduced = Unreduced()
        self.used_map = b""  # the last one that was noted
        self.plan_version = -1
        self.plan: events.Plan | None = None
        self.configuration_version = 0
        self.plan_seen = True
        self.last_stats: list[int] = []
        self.initial_limits_bytes: list[int] | None = None
        self.module_span: tuple[int, int] | None = None  # of the forward that runs, once known
        self.prepare_span: tuple[int, int] | None = None
        self.in_forward = False
        self.forward_ns, self.forward_step = 0, -2  # of the last forward with gradients: its begin
        self.awaits_backward = False  # there was one since the last backward
        self.prepared_ns = 0
        self.launched_buckets = 0
        self.first_launch_ns = 0
        self.in_backward = False
        self.synced_backwards = 0
        self.synced_in_step = False
        self.python_hook = False
        self.python_reducer = False  # the Reducer is there and does nothing
        self.delayed = False  # this backward's buckets are reduced after it (static_graph)
        self.steps_ns: list[tuple[int, int]] = []

    def live_parameters(self, ddp: Any) -> dict[str, Any]:
        """The module's parameters by name, as it has them now."""
        return {
            name.replace("_orig_mod.", ""): parameter
            for name, parameter in ddp.module.named_parameters()
        }

    def enter_forward(self) -> None:
        """What the parts of a forward leave here is of this one."""
        self.in_forward = True
        self.module_span = self.prepare_span = None


def in_cause(recorder: Recorder, cause: Cause, call: Callable[..., Any]) -> Callable[..., Any]:
    """``call``, with every collective in it attributed to ``cause``."""
    local = recorder.local

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        before, local.cause = local.cause, cause
        try:
            return call(*args, **kwargs)
        finally:
            local.cause = before

    return wrapper
