"""The user's comm hook, recorded around its own call: DDP runs it on the same path."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.nn.parallel import DistributedDataParallel as DDP

from ddpviz.events import Kind
from ddpviz.probe.backward import bucket_launched

if TYPE_CHECKING:
    from ddpviz.probe.patches import Patches
    from ddpviz.probe.recorder import Recorder


def watch(recorder: Recorder, patches: Patches) -> None:
    """Wrap ``register_comm_hook``, so that hooks registered from now on are recorded."""
    patches.wrap(DDP, "register_comm_hook", lambda call: _register_comm_hook(recorder, call))


def _register_comm_hook(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    def register_comm_hook(self: Any, state: object, hook: Callable[..., Any]) -> Any:
        followed = recorder.state_of(self)
        if followed is None:
            return call(self, state, hook)

        def run(state: object, bucket: Any) -> Any:
            local = recorder.local
            if recorder.closed:
                return hook(state, bucket)
            begin_ns = time.time_ns()
            index = bucket_launched(recorder, followed, begin_ns, 0)
            local.hook_bucket, local.hook_state = index, followed
            try:
                return hook(state, bucket)
            finally:
                local.hook_bucket, local.hook_state = -1, None
                recorder.write(
                    Kind.COMM_HOOK,
                    begin_ns,
                    time.time_ns(),
                    nbytes=bucket.buffer().numel() * bucket.buffer().element_size(),
                    iteration=followed.iteration,
                    index=index,
                    module=followed.id,
                )

        # DDP checks the hook's signature and logs its name: show it the user's own.
        run.__dict__.update(getattr(hook, "__dict__", {}))
        run.__wrapped__ = hook  # type: ignore[attr-defined]
        for name in ("__name__", "__qualname__", "__module__"):
            setattr(run, name, getattr(hook, name, type(hook).__name__))
        result = call(self, state, run)
        followed.python_hook = True
        recorder.configured(self)
        return result

    return register_comm_hook
