"""DDP's life, part by part, by wrapping its classes' methods. Checked on torch 2.13."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim import optimizer as optimizer_module

from ddpviz.events import Cause, Kind
from ddpviz.probe import backward, comm_hooks, construction, forward, state_dicts, unreduced
from ddpviz.probe.state import in_cause

if TYPE_CHECKING:
    from ddpviz.probe.patches import Patches
    from ddpviz.probe.recorder import Recorder


def install(recorder: Recorder, patches: Patches) -> None:
    """Wrap everything that is followed; names this torch lacks are left out."""
    for part in (construction, forward, backward, comm_hooks, state_dicts):
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
        state = recorder.modules.of(self)
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


class Optimizers:
    """Torch's public global hooks around every ``Optimizer.step``.

    Of an optimizer that steps another one, as ZeroRedundancyOptimizer does, the outer one counts:
    what it sends after the inner step belongs to it.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        #: By thread: (id, begin) of those that step, the outermost first.
        self._open: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._handles: list[Any] = []

    def watch(self) -> None:
        """From now on the recorder is told when an optimizer has stepped."""
        self._handles = [
            optimizer_module.register_optimizer_step_pre_hook(self._before),
            optimizer_module.register_optimizer_step_post_hook(self._after),
        ]

    def close(self) -> None:
        """No more."""
        for handle in self._handles:
            handle.remove()

    def forget(self) -> None:
        """A forward begins: a step that is still open on its thread raised."""
        if self._open:
            self._open.pop(threading.get_ident(), None)

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        mine = self._open[threading.get_ident()]
        _cut(mine, id(optimizer))  # what raised before: no optimizer steps within its own step
        begin_ns = self._recorder.now()
        mine.append((id(optimizer), begin_ns))
        unreduced.optimizer_steps(self._recorder, optimizer, begin_ns)
        if self._recorder.fingerprints.due:
            self._recorder.fingerprints.optimizer_steps(optimizer)

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        mine = self._open[threading.get_ident()]
        begin_ns = _cut(mine, id(optimizer))
        if begin_ns and not mine:
            self._recorder.steps.optimizer_stepped(begin_ns, type(optimizer).__name__)


def _cut(opened: list[tuple[int, int]], optimizer: int) -> int:
    """Take an optimizer off the list, and all within it; when it began, 0 if it was not there."""
    for at, (one, begin_ns) in enumerate(opened):
        if one == optimizer:
            del opened[at:]
            return begin_ns
    return 0
