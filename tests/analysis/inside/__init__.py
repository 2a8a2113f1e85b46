"""Real runs on three ranks in which DDP does one thing after the other that the article tells of.

One set of processes for all of them; each gives the batches of its own recorder.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

from torch.nn.parallel import DistributedDataParallel as DDP

from ddpviz.recording import Recording
from tests.analysis.inside import buffers, gradients, plans
from tests.analysis.inside.gradients import CHANGED_RANK, CHANGED_STEP
from tests.analysis.inside.net import CAP, RANKS
from tests.ranks import run_ranks

__all__ = ["CAP", "CASES", "CHANGED_RANK", "CHANGED_STEP", "RANKS", "recorded", "recordings"]

CASES: dict[str, Callable[[int], None]] = {
    "around no_sync": buffers.around_no_sync,
    "around eval": buffers.around_eval,
    "switched off": buffers.switched_off,
    "without buffers": buffers.without_buffers,
    "drifting": buffers.drifting,
    "reassigned": buffers.reassigned,
    "hooked after": buffers.hooked(buffers.Location.POST_FORWARD),
    "hooked before": buffers.hooked(buffers.Location.PRE_FORWARD),
    "hooked on the group": buffers.hooked_on_the_group,
    "repaired": buffers.repaired,
    "stages": buffers.stages,
    "put off": buffers.put_off,
    "joined": buffers.joined,
    "joined by the rest": buffers.joined_by_rest,
    "hook averages": gradients.with_hook(gradients.hook_averages),
    "hook forgets": gradients.with_hook(gradients.hook_forgets),
    "hook with views": gradients.with_hook(gradients.hook_averages, gradient_as_bucket_view=True),
    "built-in hook": gradients.built_in_hook,
    "changed behind": gradients.changed_behind,
    "unused here": plans.unused_here,
    "wrong order": plans.wrong_order,
    "unused in static": plans.unused_in_static,
    "explicit cap": plans.plain(bucket_cap_mb=CAP),
    "list of caps": plans.plain(bucket_cap_mb_list=[0.001, 0.004]),
    "without init sync": plans.plain(init_sync=False, bucket_cap_mb=CAP),
    "views": plans.plain(gradient_as_bucket_view=True, bucket_cap_mb=CAP),
    "sparse": plans.sparse,
    "two dtypes": plans.two_dtypes,
    "by default": plans.by_default,
    "find_unused by default": plans.unsearched,
    "ignored": plans.ignored,
    "convnet": plans.convnet,
}
if "batched_grad_copy" in inspect.signature(DDP).parameters:  # not in every torch
    CASES["batched copy"] = plans.plain(batched_grad_copy=True, bucket_cap_mb=CAP)


def record(rank: int, world_size: int) -> dict[str, list[bytes]]:
    """Every case recorded with fingerprints in each step, as batches."""
    from ddpviz.probe import Recorder

    found = {}
    for name, case in CASES.items():
        batches: list[bytes] = []
        recorder = Recorder(
            sinks=[lambda batch, to=batches: to.append(batch.to_bytes())],  # type: ignore[misc]
            fingerprints=1,
        )
        recorder.install()
        case(rank)
        recorder.close()
        found[name] = batches
    return found


@functools.cache
def recorded() -> dict[str, Recording]:
    """The recording of each of :data:`CASES`; the ranks run once for all tests of a process."""
    return recordings(run_ranks(record, RANKS))


def recordings(outcomes: list[dict[str, list[bytes]]]) -> dict[str, Recording]:
    from ddpviz.events import Batch

    found = {}
    for name in CASES:
        recording = found[name] = Recording()
        for outcome in outcomes:
            for batch in outcome[name]:
                recording.append(Batch.from_bytes(batch))
    return found
