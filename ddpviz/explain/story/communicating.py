"""What a step's collectives cost, and waiting for other ranks at them."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterator

from ddpviz.analysis.units import format_bytes
from ddpviz.events import Cause
from ddpviz.explain.story.cost import LITTLE, Cost, cost_of, counted, told_ms
from ddpviz.explain.story.facts import Facts, parts_ms
from ddpviz.explain.story.waits import Wait, lateness
from ddpviz.traces.backwards import one_backward, repeated
from ddpviz.traces.comms import total

_AT = {
    Cause.BUFFERS: "at its buffers",
    Cause.BUCKET: "at its buckets",
    Cause.REBUILD_ORDER: "where buckets are rebuilt",
    Cause.USER: "at the program's own collectives",
    Cause.JOIN: "at Join's notifications",
    Cause.SYNC_BATCH_NORM: "in SyncBatchNorm",
}
_SPELT = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
}


def for_another(here: Facts) -> Iterator[Cost]:
    """Waiting for a rank that comes later, whatever the collective: it is not what that costs."""
    found = lateness(here.waited, len(here.imported.runs))
    of_step: dict[int, float] = collections.defaultdict(float)
    by_cause: dict[Cause, dict[int, float]] = {}
    for one in here.waited:
        if one.late >= 0:
            of_step[one.step] += one.late_ns
            mine = by_cause.setdefault(one.cause, collections.defaultdict(float))
            mine[one.step] += one.late_ns
    ms = here.a_step_ms(of_step)
    if not ms >= LITTLE * here.step_ms:
        return
    where = {_AT.get(cause, "other collectives"): here.a_step_ms(mine)
             for cause, mine in by_cause.items()}  # fmt: skip
    places = ", ".join(
        f"{told_ms(at_ms)} {name}"
        for name, at_ms in sorted(where.items(), key=lambda one: -one[1])
        if at_ms > 0.05 * ms
    )
    places = f" ({places})" if places else ""
    rank, late = here.run.rank, found.chronic
    times_of = dict(found.last)
    if late is None or late == rank:
        first, times = found.last[0]
        if late == rank:
            often = f"but rank {rank} itself is last in {times_of[rank]} of {found.steps} steps"
        elif times == found.steps:
            often = (
                f"rank {first} is last in all {times} steps, too few to tell whether it always is"
            )
        else:
            listed = ", ".join(f"rank {one} is last in {count}" for one, count in found.last[:4])
            often = (
                f"no one rank is always the late one: {listed} of {found.steps} steps, as chance "
                "may have it"
            )
        yield cost_of(
            here,
            "waiting for other ranks",
            ms,
            f"rank {rank} waits {{time}} for ranks that come later{places}; {often}",
            "like work for all ranks: batches of one size, as many loading workers, nothing else "
            "on their hosts",
            "none to DDP",
        )
        return
    yield cost_of(
        here,
        f"waiting for rank {late}",
        ms,
        f"rank {rank} waits {{time}} for rank {late}, which comes last in {times_of[late]} of "
        f"{found.steps} steps{places}{_before(here, late, ms)}",
        f"what rank {late} alone does: loading, logging, checkpoints, a longer batch",
        "none to DDP",
    )


def _before(here: Facts, late: int, ms: float) -> str:
    """What the late rank did longer than this one, where it explains the wait."""
    theirs, ours = parts_ms(here, late), parts_ms(here, here.run.rank)
    longer = {name: theirs[name] - ours[name] for name in theirs if theirs[name] > ours[name]}
    name = max(longer, key=lambda one: longer[one], default="")
    if not name or longer[name] < 0.3 * ms:
        return ""
    return (
        f": {name} it takes {told_ms(theirs[name])}, where rank {here.run.rank} takes "
        f"{told_ms(max(ours[name], 0.0))}"
    )


def waiting(here: Facts) -> Iterator[Cost]:
    of_step: dict[int, float] = collections.defaultdict(float)
    for one in here.waited:
        if one.cause == Cause.BUCKET:
            of_step[one.step] += one.own_ns
    ms = here.a_step_ms(of_step)
    if not (ms > 0 or math.isnan(ms)):
        return
    why = ""
    change, risk = (
        "a smaller `bucket_cap_mb` lets the last bucket go earlier",
        "smaller buckets pay the fixed cost of a collective more often",
    )
    if here.median("buckets") > 1 and one_backward(here.run):
        why = (
            "; the backward is one compiled graph, so all gradients come at once and no bucket "
            "can be sent while it computes"
        )
        change, risk = (
            '`torch._dynamo.config.optimize_ddp = "ddp_optimizer"` before compiling: it cuts the '
            "graph where buckets end",
            "nothing is fused across the cuts, and each piece is compiled for itself",
        )
    elif here.median("buckets") == 1:
        why = "; one bucket holds everything, so nothing is sent before backward has ended"
    yield cost_of(
        here,
        "waiting for buckets",
        ms,
        f"after its last gradient rank {here.run.rank} waits {{time}} for its buckets{why}",
        change,
        risk,
    )


def buffers(here: Facts) -> Iterator[Cost]:
    mine = [one for one in here.waited if one.cause == Cause.BUFFERS and one.step in here.steps]
    if not mine:
        return
    of_step: dict[int, float] = collections.defaultdict(float)
    for one in mine:
        of_step[one.step] += one.own_ns
    forwards = sum(it.step in set(here.steps) for it in here.run.phases.iterations)
    often = (
        "in every forward" if len(mine) >= forwards else f"in {len(mine)} of {forwards} forwards"
    )
    are = "is" if len(mine[-1].calls) == 1 else "are"
    yield cost_of(
        here,
        "broadcasting buffers",
        here.a_step_ms(of_step, where_any=True),
        f"{_moved(mine[-1])} {are} the module's buffers (as BatchNorm has them): {{time}} before "
        f"the forward can start, {often}",
        "`forward_sync_buffers=False` (`broadcast_buffers` before torch 2.13), or SyncBatchNorm "
        "with it",
        "ranks' running statistics then drift apart unless something else keeps them equal, and a "
        "checkpoint has those of the rank that wrote it",
    )


def _moved(last: Wait) -> str:
    """ "2 broadcasts (0.203 MiB of float32, 424 B of int64)"."""
    sent = [one.collective for one in last.calls]
    count = counted(len(sent), "broadcast")
    if any(one.bytes < 0 for one in sent):
        return count
    return f"{count} ({', '.join(f'{format_bytes(one.bytes)} of {one.dtype}' for one in sent)})"


def not_ddps(here: Facts) -> Iterator[Cost]:
    """Collectives that something else than DDP issues, and those of which that isn't known."""
    for cause, name, told, change, risk in (
        (
            Cause.USER,
            "the program's own collectives",
            "the program itself, not DDP, issues {count} a step ({where}): {{time}} in which "
            "nothing else is computed",
            "issue them less often, or with `async_op=True`, and wait where their result is needed",
            "before it has been waited for, a result must not be read",
        ),
        (
            Cause.UNKNOWN,
            "collectives of an unknown cause",
            "whose {count} a step ({where}) is, DDP's or the program's, can't be told from this "
            "trace (`with_stack=True` tells): {{time}} in which nothing else is computed",
            "",
            "",
        ),
    ):
        mine = [one for one in here.waited if one.cause == cause and one.step in here.steps]
        if not mine or not here.run.phases.iterations:
            continue
        of_step: dict[int, float] = collections.defaultdict(float)
        for one in mine:
            of_step[one.step] += one.own_ns
        where = sorted({_where(here, one) for one in mine})
        sent = collections.Counter(call.collective.operation for one in mine for call in one.calls)
        count = " and ".join(
            counted(times / len(here.steps), _SPELT.get(operation, operation))
            for operation, times in sorted(sent.items())
        )
        yield cost_of(
            here,
            name,
            here.a_step_ms(of_step, where_any=True),
            told.format(count=count, where=", ".join(where)),
            change,
            risk,
        )


def _where(here: Facts, one: Wait) -> str:
    if one.iteration < 0:
        return "outside forward and backward"
    it = here.run.phases.iterations[one.iteration]
    return (
        "in the forward"
        if one.calls[0].collective.launch_ns <= it.forward.end_ns
        else "in the backward"
    )


def accumulating(here: Facts) -> Iterator[Cost]:
    """The same gradients reduced several times for a step of the optimizer."""
    times = repeated(here.run)
    if times < 2:
        return
    of_step: dict[int, float] = collections.defaultdict(float)
    sizes: dict[int, int] = collections.defaultdict(int)
    last = {one.step: one.iteration for one in here.waited if one.cause == Cause.BUCKET}
    for one in here.waited:
        if one.cause == Cause.BUCKET and one.iteration != last[one.step]:
            of_step[one.step] += one.ns
            sizes[one.step] += total(call.collective.bytes for call in one.calls)
    size = max(sizes.values(), default=-1)
    moved = f" and {format_bytes(size)} sent" if size > 0 else ""
    yield cost_of(
        here,
        "reducing more often than stepping",
        here.a_step_ms(of_step),
        f"gradients are reduced {times} times for each step of the optimizer, as accumulating "
        f"without `no_sync()` does: all but the last cost {{time}} of waiting{moved} that need not "
        "be (part of the waiting told here)",
        "`with model.no_sync():` around forward and backward of all but the last",
        "until the last backward gradients are each rank's own: what clips, logs or steps before "
        "it uses unequal ones; the forward after a `no_sync()` one syncs no buffers",
    )
