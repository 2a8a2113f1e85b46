"""The user's comm hook, recorded around its own call: DDP runs it on the same path."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from ddpviz.events import Cause, Kind
from ddpviz.probe.backward import bucket_launched

if TYPE_CHECKING:
    from ddpviz.probe.patches import Patches
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState


def watch(recorder: Recorder, patches: Patches) -> None:
    """Wrap the methods that register hooks, so that those from now on are recorded."""
    patches.wrap(DDP, "register_comm_hook", lambda call: _register_comm_hook(recorder, call))
    # What a module may be told after its constructor; its configuration is then another.
    for name in (
        "_register_builtin_comm_hook",
        "_register_buffer_comm_hook",
        "_set_static_graph",
        "join_hook",
    ):
        patches.wrap(DDP, name, lambda call: _configured_by(recorder, call))


def _register_comm_hook(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    def register_comm_hook(self: Any, state: object, hook: Callable[..., Any]) -> Any:
        followed = recorder.modules.of(self)
        if followed is None:
            return call(self, state, hook)

        result = call(self, state, RecordedHook(recorder, followed, hook))
        followed.python_hook = True
        recorder.modules.configured(self)
        return result

    return register_comm_hook


def _configured_by(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    def configure(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = call(self, *args, **kwargs)
        if recorder.modules.of(self) is not None:
            recorder.modules.configured(self)
        return result

    return configure


class RecordedHook:
    """The user's hook, recorded. Shows DDP the hook's own name and signature; pickles as it."""

    def __init__(self, recorder: Recorder, followed: ModuleState, hook: Callable[..., Any]):
        self._recorder = recorder
        self._followed = followed
        self.__wrapped__ = hook
        for name in ("__name__", "__qualname__", "__module__"):
            setattr(self, name, getattr(hook, name, type(hook).__name__))

    def follow(self, recorder: Recorder, followed: ModuleState) -> None:
        """Another recorder follows its module from now on."""
        self._recorder, self._followed = recorder, followed

    def __reduce__(self) -> Any:
        return _itself, (self.__wrapped__,)

    def __call__(self, state: object, bucket: Any) -> Any:
        recorder, followed, local = self._recorder, self._followed, self._recorder.local
        # python_reducer hands (gradient, parameter) instead of a bucket; a rank that has joined
        # runs the hook on zeros for the others, outside any backward.
        bucketed = isinstance(bucket, dist.GradBucket)
        if recorder.closed or not bucketed or local.cause == Cause.JOIN:
            return self.__wrapped__(state, bucket)
        begin_ns = recorder.now()
        index = bucket_launched(recorder, followed, begin_ns, 0)
        local.hook_bucket, local.hook_state = index, followed
        if recorder.fingerprints.due:
            recorder.fingerprints.bucket(followed, index, bucket.buffer())
        try:
            return self.__wrapped__(state, bucket)
        finally:
            local.hook_bucket, local.hook_state = -1, None
            recorder.write(
                Kind.COMM_HOOK,
                begin_ns,
                recorder.now(),
                nbytes=bucket.buffer().nbytes,
                iteration=followed.backward_iteration,
                index=index,
                module=followed.id,
            )


def _itself(hook: Callable[..., Any]) -> Callable[..., Any]:
    return hook
