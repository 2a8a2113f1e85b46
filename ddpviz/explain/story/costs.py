"""What DDP costs a step, one thing at a time, in plain words."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from ddpviz.analysis.units import format_bytes, format_duration
from ddpviz.events import Cause
from ddpviz.explain.story.facts import Facts, parts_ms
from ddpviz.explain.story.waits import Wait, lateness
from ddpviz.traces.backwards import one_backward, repeated
from ddpviz.traces.comms import total
from ddpviz.traces.phases import COPIES_IN, COPY_OUT, SEARCH

#: Below this share of a step a thing is not worth a change.
LITTLE = 0.01


@dataclasses.dataclass(frozen=True)
class Cost:
    """``ms``: of a step, the median, NaN where the trace doesn't tell. ``share``: of the step.
    ``change``: "" where there is none."""

    name: str
    ms: float
    share: float
    sentence: str
    change: str
    risk: str


def costs(here: Facts) -> list[Cost]:
    """All of them, the most expensive first, what is not known last."""
    found = [cost for make in _ALL for cost in make(here)]
    return sorted(found, key=lambda cost: (math.isnan(cost.ms), -cost.ms))


def _cost(
    here: Facts, name: str, ms: float, sentence: str, change: str = "", risk: str = ""
) -> Cost:
    share = ms / here.step_ms if here.step_ms else float("nan")
    percent = f" ({share:.0%} of the step)" if share >= LITTLE else ""
    time = "a time that is not known" if math.isnan(ms) else f"{_ms(ms)}{percent}"
    told = sentence.replace("{time}", time)
    return Cost(name, ms, share, told, change, risk)


def _ms(ms: float) -> str:
    return format_duration(ms * 1e6)


def counted(times: float, thing: str) -> str:
    """ "1 broadcast", "2 broadcasts", "0.6 broadcasts"."""
    return f"{times:.3g} {thing}" + ("" if times == 1 else "s")


# --- one thing at a time -------------------------------------------------------------------------


def _for_another(here: Facts) -> Iterator[Cost]:
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
        f"{_ms(at_ms)} {name}"
        for name, at_ms in sorted(where.items(), key=lambda one: -one[1])
        if at_ms > 0.05 * ms
    )
    rank, late = here.run.rank, found.chronic
    counted = dict(found.last)
    if late is None or late == rank:
        often = ", ".join(f"rank {one} is last in {times}" for one, times in found.last[:4])
        yield _cost(
            here,
            "waiting for other ranks",
            ms,
            f"rank {rank} waits {{time}} for ranks that come later ({places}), and no one rank is "
            f"always the late one: {often} of {found.steps} steps, as chance may have it",
            "like work for all ranks: batches of one size, as many loading workers, nothing else "
            "on their hosts",
            "none to DDP",
        )
        return
    yield _cost(
        here,
        f"waiting for rank {late}",
        ms,
        f"rank {rank} waits {{time}} for rank {late}, which comes last in {counted[late]} of "
        f"{found.steps} steps ({places}){_before(here, late, ms)}",
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
        f": {name} it takes {_ms(theirs[name])}, where rank {here.run.rank} takes "
        f"{_ms(max(ours[name], 0.0))}"
    )


def _waiting(here: Facts) -> Iterator[Cost]:
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
    yield _cost(
        here,
        "waiting for buckets",
        ms,
        f"after its last gradient rank {here.run.rank} waits {{time}} for its buckets{why}",
        change,
        risk,
    )


def _buffers(here: Facts) -> Iterator[Cost]:
    mine = [one for one in here.waited if one.cause == Cause.BUFFERS and one.step in here.steps]
    if not mine:
        return
    of_step: dict[int, float] = collections.defaultdict(float)
    for one in mine:
        of_step[one.step] += one.own_ns
    forwards = sum(it.step in set(here.steps) for it in here.run.phases.iterations)
    often = "on every step" if len(mine) >= forwards else f"in {len(mine)} of {forwards} forwards"
    yield _cost(
        here,
        "broadcasting buffers",
        here.a_step_ms(of_step, where_any=True),
        f"{_moved(mine[-1])} are the module's buffers (as BatchNorm has them): {{time}} before the "
        f"forward can start, {often}",
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


def _not_ddps(here: Facts) -> Iterator[Cost]:
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
        yield _cost(
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


def _accumulating(here: Facts) -> Iterator[Cost]:
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
    yield _cost(
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


def _copies(here: Facts) -> Iterator[Cost]:
    where = (
        "kernels"
        if here.run.on_device
        else "operations of the host"
        if here.run.enqueued
        else "operations"
    )
    for name, rows, sentence in (
        ("copying gradients in", COPIES_IN, "copying gradients into their buckets"),
        ("copying gradients back", (COPY_OUT,), "copying reduced gradients back out of them"),
    ):
        ms, count = _copy_ms(here, rows), _copy_count(here, rows)
        if ms > 0:
            change, risk = _VIEWS if not _are_views(here) else _KEPT
            yield _cost(
                here, name, ms, f"{sentence} takes {{time}}, in {count:.0f} {where}", change, risk
            )


#: What makes copying unnecessary, and what that risks.
_VIEWS = (
    "`gradient_as_bucket_view=True` makes gradients views of their buckets",
    "`detach_()` on a gradient then raises; what holds on to gradients over steps sees them "
    "overwritten",
)
#: The same where gradients are views already: they are made anew in each step.
_KEPT = (
    "`zero_grad(set_to_none=False)`: `gradient_as_bucket_view` is on (nothing is copied back), and "
    "gradients that are kept stay views of their buckets",
    "gradients are then zeroed instead of freed: one more pass over them, and a parameter that got "
    "none is stepped as if its gradient were 0",
)


def _are_views(here: Facts) -> bool:
    """Whether buckets were reduced and nothing copied back out of them."""
    reduced = [
        it.backward
        for it in here.run.phases.iterations
        if it.backward is not None
        and any(one.iteration == it.number for one in here.waited if one.cause == Cause.BUCKET)
    ]
    return bool(reduced) and not any(len(backward.copies) for backward in reduced)


def _copy_ms(here: Facts, rows: tuple[str, ...]) -> float:
    """Per step: of the kernels on a GPU, else of the rows."""
    at = _in_steps(here, rows)
    trace = here.run.trace
    if here.run.on_device:
        total = here.run.kernels.busy_ns(
            trace.begin_ns[at], trace.end_ns[at], trace.thread[at].astype(np.int64)
        )
    else:
        total = int((trace.end_ns[at] - trace.begin_ns[at]).sum())
    return total / 1e6 / max(len(here.steps), 1)


def _copy_count(here: Facts, rows: tuple[str, ...]) -> float:
    return len(_in_steps(here, rows)) / max(len(here.steps), 1)


def _in_steps(here: Facts, rows: tuple[str, ...]) -> np.ndarray:
    trace, steps = here.run.trace, set(here.steps)
    at = trace.named(lambda name: name in rows)
    inside = np.zeros(len(at), bool)
    for it in here.run.phases.iterations:
        if it.step in steps:
            end_ns = it.backward.span.end_ns if it.backward else it.forward.end_ns
            begins = trace.begin_ns[at]
            inside |= (begins >= it.forward.begin_ns) & (begins <= end_ns)
    return at[inside]


def _unused(here: Facts) -> Iterator[Cost]:
    at = _in_steps(here, (SEARCH,))
    if not len(at):
        return
    trace = here.run.trace
    searched_ns = int((trace.end_ns[at] - trace.begin_ns[at]).sum())
    maps = [one for one in here.run.collectives if one.cause == Cause.USED_MAP]
    also = " and one more all-reduce says which were used" if maps else ""
    yield _cost(
        here,
        "searching unused parameters",
        searched_ns / 1e6 / max(len(here.steps), 1),
        f"every forward searches the graph for unused parameters, {{time}} of the host,{also}",
        "`find_unused_parameters=False` where every parameter is used in every step",
        "a parameter without a gradient then makes the next forward raise",
    )


def _idle(here: Facts) -> Iterator[Cost]:
    if not here.run.on_device or not here.share.window_ns:
        return
    idle = here.share.other_ns / here.share.window_ns
    if idle > 0.3:
        yield _cost(
            here,
            "an idle GPU",
            idle * here.step_ms,
            "the GPU has nothing to run for {time}: the host hands work over more slowly than the "
            "GPU does it; that is not DDP's doing, but no bucket setting helps while it is so",
            "a larger batch, `torch.compile`, CUDA graphs, less Python per step",
            "a larger batch changes training; compiled, gradients may all come at once, so that "
            "buckets overlap less",
        )


def _between(here: Facts) -> Iterator[Cost]:
    rank = here.run.rank
    between_ms = here.gaps_ms.get(rank, math.nan)
    if not between_ms > 0.03 * here.step_ms:
        return
    others = "" if len(here.imported.runs) > 1 else "; other ranks may wait for it"
    for one in here.skews:
        if one.late() == rank:
            others = "; the other ranks wait for it at their next collective"
    yield _cost(
        here,
        "between steps",
        between_ms,
        f"{{time}} go by between the optimizer's end and the next forward, beside any collective: "
        f"loading data, logging, or what else the loop does{others}",
        "load batches ahead (`num_workers`, `pin_memory`)",
        "none to DDP",
    )


_ALL = (
    _for_another,
    _accumulating,
    _waiting,
    _buffers,
    _not_ddps,
    _copies,
    _unused,
    _idle,
    _between,
)
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
