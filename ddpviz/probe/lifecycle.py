"""DDP's life, part by part, by wrapping its classes' methods. Checked on torch 2.13."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim import optimizer as optimizer_module

from ddpviz.events import Cause, Kind
from ddpviz.probe import backward, comm_hooks, construction, forward
from ddpviz.probe.state import in_cause

if TYPE_CHECKING:
    from ddpviz.probe.patches import Patches
    from ddpviz.probe.recorder import Recorder


def install(recorder: Recorder, patches: Patches) -> None:
    """Wrap everything that is followed; names this torch lacks are left out."""
    for part in (construction, forward, backward, comm_hooks):
        part.watch(recorder, patches)
    _watch_join(recorder, patches)


def _watch_join(recorder: Recorder, patches: Patches) -> None:
    def in_join(call: Callable[..., Any]) -> Callable[..., Any]:
        return in_cause(recorder, Cause.JOIN, call)

    patches.wrap(DDP, "_find_common_rank", lambda call: _common_rank(recorder, call))
    for name in (
        "_check_global_requires_backward_grad_sync",
        "_sync_final_model",
        "_match_all_reduce_for_bwd_pass",
        "_match_unused_params_allreduce",
    ):
        patches.wrap(DDP, name, in_join)
    # What a joined rank does for the others' buffer sync does not go through _sync_buffers.
    patches.wrap(
        DDP,
        "_check_and_sync_module_buffers",
        lambda call: in_cause(recorder, Cause.BUFFERS, call),
    )
    for name in ("notify_join_context", "_get_num_nonjoined_procs", "_notify_procs_to_terminate"):
        patches.wrap(Join, name, in_join)


def _common_rank(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    call = in_cause(recorder, Cause.JOIN, call)

    def _find_common_rank(self: Any, *args: Any, **kwargs: Any) -> Any:
        begin_ns, wanted_for = time.time_ns(), recorder.local.cause
        rank = call(self, *args, **kwargs)
        state = recorder.state_of(self)
        if state is not None:
            recorder.write(
                Kind.COMMON_RANK,
                begin_ns,
                time.time_ns(),
                iteration=state.iteration,
                index=rank,
                cause=wanted_for or Cause.JOIN,
                module=state.id,
            )
        return rank

    return _find_common_rank


def watch_optimizers(recorder: Recorder) -> list[Any]:
    """Torch's public global hooks around every ``Optimizer.step``."""
    begun: dict[int, int] = {}

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        begun[id(optimizer)] = time.time_ns()

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        begin_ns = begun.pop(id(optimizer), 0)
        if begin_ns:
            recorder.optimizer_stepped(begin_ns, type(optimizer).__name__)

    return [
        optimizer_module.register_optimizer_step_pre_hook(before),
        optimizer_module.register_optimizer_step_post_hook(after),
    ]
