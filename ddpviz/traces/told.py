"""What a reader should know of imported traces: evidence, what is missing, clocks, doubts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ddpviz.traces.backwards import modules
from ddpviz.traces.clocks import Clock, step_ns
from ddpviz.traces.runs import Run

#: Of more ranks with another clock, one sentence tells.
_MOST_CLOCKS = 4


def remarks_on(runs: list[Run]) -> list[str]:
    """What was concluded, from what, and what these traces don't have; a sentence each."""
    remarks = []
    ddp = any(run.phases.iterations for run in runs)
    if not ddp:
        remarks.append(
            "found no forward of DistributedDataParallel in the trace: its steps are the "
            "profiler's, or end with the optimizer's, and why a collective was issued is not known"
        )
        if any(name.startswith("_c10d_functional::") for run in runs for name in run.trace.names):
            remarks.append(
                "its collectives are functional ones, as DDP's Python reducer issues them "
                '(optimize_ddp="python_reducer"): that has no buckets of its own, and syncs no '
                "buffers"
            )
    on_device = [run for run in runs if run.on_device]
    if on_device:
        remarks.append(
            "times are those of the GPU's streams: each part is told by the kernels that it "
            "launched, a collective by its NCCL kernel"
        )
    if any(run.unlinked for run in runs):
        remarks.append(
            "the trace's kernels don't say who launched them (no correlation): steps and their "
            "parts are told as the host enqueued them, and how long the GPU took for them, or "
            "waited for collectives, is not known"
        )
    if any(run.enqueued and not run.has_kernels for run in runs):
        remarks.append(
            "the trace has no kernels: when collectives ran is not known, only when the host "
            "enqueued them; record it with ProfilerActivity.CUDA"
        )
    remarks += [*_modules(runs), *_hooked(runs), *_unpaired(runs)]
    for run in runs:
        if run.phases.cut >= 0:
            remarks.append(
                f"the trace of rank {run.rank} ends within step {run.phases.cut}, which has no "
                "optimizer: it has no end, and counts in no median"
            )
    evidence = sorted({plan.evidence for run in runs for plan in run.layouts if plan.evidence})
    for told in evidence:
        remarks.append(f"bucket plans are inferred: {told}")
    if any(not plan.counts for run in runs for plan in run.layouts):
        remarks.append(
            "which gradients are in which bucket could not be told: buckets were launched with "
            "no gradient between them, and the trace has no shapes"
        )
    if evidence:
        remarks.append(
            "a trace has no names of parameters: they are numbered as their buckets were launched"
        )
    sizes = [one.collective.bytes for run in runs for one in run.collectives]
    unknown = sum(size < 0 for size in sizes)
    if unknown:
        some = "" if unknown == len(sizes) else f"of {unknown} of {len(sizes)} collectives "
        remarks.append(
            f"the trace has no sizes {some}(their bytes are 0 in tables): record it with "
            "record_shapes=True"
        )
    return remarks


def _modules(runs: list[Run]) -> Iterator[str]:
    several = max((modules(run) for run in runs), key=len, default=[])
    if len(several) > 1:
        listed = ", ".join(f"{gradients} gradients" for gradients, _ in several)
        yield (
            f"a step reduces {len(several)} different sets of gradients ({listed}), as "
            f"{len(several)} DDP modules do: the trace doesn't say which forward is whose, so they "
            "are shown as one module, whose plans change from one backward to the next"
        )


def _unpaired(runs: list[Run]) -> Iterator[str]:
    """Launched collectives that ran, as others of the trace did, and whose row is not there."""
    for run in runs:
        if run.on_device or run.enqueued or not run.phases.iterations:
            continue
        first, last = (run.phases.iterations[at].forward.begin_ns for at in (0, -1))
        inside = [
            one.collective for one in run.collectives if first <= one.collective.launch_ns < last
        ]
        lacking = [one for one in inside if not one.begin_ns]
        if lacking and len(lacking) < len(inside):
            yield (
                f"the trace of rank {run.rank} lacks rows of collectives that ran: which are "
                f"missing is not known, so {len(lacking)} of {len(inside)} are told without an end"
            )


def _hooked(runs: list[Run]) -> Iterator[str]:
    """Where what is sent isn't of the gradients' dtype, a comm hook has made it so."""
    for run in runs:
        dtypes: dict[int, set[str]] = {}
        for call in run.collectives:
            if call.bucket >= 0:
                dtypes.setdefault(call.iteration, set()).add(call.collective.dtype)
        for one in run.reductions:
            sent = dtypes.get(one.iteration.number, set())
            held = {gradient.dtype for gradient in one.gradients}
            if len(sent) == len(held) == 1 and sent != held and "" not in sent | held:
                size = sum(max(gradient.bytes, 0) for gradient in one.gradients)
                known = f", of {size:,} B of gradients" if size else ""
                yield (
                    f"a comm hook, or mixed_precision=, compresses the gradients: they are "
                    f"{min(held)}, and their buckets are sent as {min(sent)}; the sizes of buckets "
                    "are what is sent "
                    f"({sum(one.sizes):,} B{known})"
                )
                return


def told_us(ns: float) -> str:
    """An offset in µs; of a minute or more in seconds, to the µs."""
    return f"{ns / 1e3:.1f} µs" if abs(ns) < 60e9 else f"{ns / 1e9:.6f} s"


def _signed(ns: float) -> str:
    return ("+" if ns >= 0 else "") + told_us(ns)


def clock_remarks(told: list[Clock]) -> list[str]:
    """How each rank's clock was moved, a sentence each; of many ranks in one."""
    remarks = []
    moved = [one for one in told[1:] if one.moved_ns]
    if len(moved) > _MOST_CLOCKS:
        farthest = max(moved, key=lambda one: abs(one.offset_ns))
        remarks.append(
            f"the clocks of {len(moved)} ranks were not rank {told[0].rank}'s and are corrected: "
            f"that of rank {farthest.rank} by most, {_signed(farthest.offset_ns)} (residuals "
            f"up to ± {max(one.residual_ns for one in moved) / 1e3:.1f} µs); ddpviz explain "
            "tells all"
        )
        told = [told[0], *(one for one in told[1:] if not one.matched)]
    for one in told[1:]:
        if not one.matched:
            remarks.append(
                f"rank {one.rank} shares no collective with rank {told[0].rank} in these traces: "
                "its clock was left as it is"
            )
        elif one.moved_ns:
            remarks.append(
                f"rank {one.rank}'s clock was {_signed(one.offset_ns)} from rank "
                f"{told[0].rank}'s and is corrected (± {one.residual_ns / 1e3:.1f} µs, from "
                f"{_collectives(one.matched)}){_drifting(one)}"
            )
        elif one.one_host:
            remarks.append(
                f"ranks {told[0].rank} and {one.rank} are on one host, so on one clock, which was "
                f"left as it is: {_collectives(one.matched)} end {_signed(one.offset_ns)} apart "
                f"(median, ± {one.residual_ns / 1e3:.1f} µs)"
            )
        else:
            remarks.append(
                f"rank {one.rank}'s clock agrees with rank {told[0].rank}'s within "
                f"{one.residual_ns / 1e3:.1f} µs, as far as {_collectives(one.matched)} tell"
                f"{_drifting(one)}"
            )
    return remarks


def _collectives(count: int) -> str:
    return f"{count} collective" + ("" if count == 1 else "s")


def _drifting(one: Clock) -> str:
    """Of a clock that doesn't keep its distance."""
    if math.isnan(one.drift_ppm):
        return ""
    return (
        f"; it drifts by {one.drift_ppm:+.0f} ppm against that one, so this holds in the middle, "
        f"and at the ends it is off by up to {one.worst_ns / 1e3:.0f} µs"
    )


def doubts(runs: list[Run], told: list[Clock]) -> Iterator[str]:
    """Why these traces may not belong together."""
    length_ns = step_ns(runs[0])
    for run, clock in zip(runs[1:], told[1:], strict=True):
        if not clock.matched or not length_ns:
            continue
        apart = abs(clock.offset_ns) / length_ns
        numbered = run.phases.numbered and runs[0].phases.numbered
        if clock.mispaired:
            yield (
                f"rank {run.rank} is {apart:.1f} steps from rank {told[0].rank} by the clock of "
                "their host, and the traces do not number their steps: one of them began later, or "
                "its clock is off. Nothing was moved, and who came late is not told; record with "
                "profiler.step() in the loop"
            )
        elif clock.residual_ns > length_ns / 4:
            yield (
                f"the ends of collectives that ranks {told[0].rank} and {run.rank} should share "
                f"scatter by {clock.residual_ns / 1e6:.1f} ms: these traces may be of different "
                "runs or steps, and what is told of one rank against another is then wrong"
            )
        elif apart > 1 and not numbered:
            far = f"{apart:.1f} steps" if apart < 1000 else told_us(abs(clock.offset_ns))
            yield (
                f"rank {run.rank} is {far} from rank {told[0].rank}, and the traces do not number "
                "their steps: either its clock is off, or they are of different steps"
            )
    yield from _unlike(runs)


def _unlike(runs: list[Run]) -> Iterator[str]:
    first = dict(zip(runs[0].numbers(), runs[0].collectives, strict=True))
    for run in runs[1:]:
        shared = [
            (key, first[key].collective, one.collective)
            for key, one in zip(run.numbers(), run.collectives, strict=True)
            if key in first
        ]
        unlike = [
            found
            for found in shared
            if (found[1].operation, found[1].dtype, found[1].bytes)
            != (found[2].operation, found[2].dtype, found[2].bytes)
        ]
        if unlike:
            (_, step, number), one, other = unlike[0]
            yield (
                f"{len(unlike)} of {len(shared)} collectives differ between ranks "
                f"{runs[0].rank} and {run.rank}, first number {number} of step {step} "
                f"({one.operation} of {one.bytes} bytes, {other.operation} of {other.bytes}): "
                "these traces may be of different runs or steps"
            )
