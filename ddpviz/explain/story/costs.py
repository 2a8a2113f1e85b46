"""What DDP costs a step, one thing at a time, in plain words; and what is not wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pandas as pd

from ddpviz import analysis
from ddpviz.analysis.units import format_bytes, format_duration
from ddpviz.events import Cause, Kind
from ddpviz.traces.importing import Imported
from ddpviz.traces.phases import COPIES_IN, COPY_OUT, SEARCH
from ddpviz.traces.runs import Run
from ddpviz.traces.shares import Share
from ddpviz.traces.skew import Skew

#: Below this share of a step a thing is not worth a change.
_LITTLE = 0.01
#: The first steps pay for first allocations and the rebuild.
_WARM = 2


@dataclasses.dataclass(frozen=True)
class Cost:
    """``ms``: of a step, the median. ``share``: of the step. ``change``: "" where there is none."""

    name: str
    ms: float
    share: float
    sentence: str
    change: str
    risk: str


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a rank's costs are told from; times in ms, medians over ``steps``."""

    run: Run
    steps: list[int]
    table: pd.DataFrame
    step_ms: float
    skews: list[Skew]
    share: Share
    imported: Imported

    def median(self, column: str) -> float:
        return float(self.table[column].median()) if len(self.table) else float("nan")


def facts(imported: Imported, run: Run, skews: list[Skew], share: Share, step: int | None) -> Facts:
    """Raises ValueError for a step that the rank doesn't have."""
    table = analysis.steps(imported.recording)
    table = table[table["rank"] == run.rank]
    if step is not None:
        if step not in set(table["step"]):
            known = sorted(set(table["step"]))
            raise ValueError(
                f"found no step {step} of rank {run.rank} in the trace, expected one from "
                f"{known[0]} to {known[-1]}"
                if known
                else "found no step in the trace"
            )
        table = table[table["step"] == step]
    elif len(table) > 2 * _WARM:
        table = table.iloc[_WARM:]
    steps = table["step"].tolist()
    return Facts(run, steps, table, float(table["step_ms"].median()), skews, share, imported)


def costs(here: Facts) -> list[Cost]:
    """All of them, the most expensive first."""
    found = [cost for make in _ALL for cost in make(here) if cost.ms > 0]
    return sorted(found, key=lambda cost: -cost.ms)


def _cost(
    here: Facts, name: str, ms: float, sentence: str, change: str = "", risk: str = ""
) -> Cost:
    share = ms / here.step_ms if here.step_ms else float("nan")
    percent = f" ({share:.0%} of the step)" if share >= _LITTLE else ""
    told = sentence.replace("{time}", f"{_ms(ms)}{percent}")
    return Cost(name, ms, share, told, change, risk)


def _ms(ms: float) -> str:
    return format_duration(ms * 1e6)


# --- one thing at a time -------------------------------------------------------------------------


def _waiting(here: Facts) -> Iterator[Cost]:
    waits_ms = _waits_ms(here)
    if not waits_ms > 0:
        return
    buckets = int(here.median("buckets"))
    why = ""
    late = max(
        (one for one in here.skews if one.name.startswith("bucket")),
        key=lambda one: one.spread_ns,
        default=None,
    )
    if buckets == 1:
        why = "; one bucket holds everything, so nothing is sent before backward has ended"
    elif late is not None and late.spread_ns / 1e6 > 0.3 * waits_ms:
        rank, times = late.last[0]
        why = (
            f"; ranks come to {late.name} {format_duration(late.spread_ns)} apart, rank {rank} "
            f"last in {times} of {late.times} steps"
        )
    yield _cost(
        here,
        "waiting for buckets",
        waits_ms,
        f"after its last gradient rank {here.run.rank} waits {{time}} for its buckets{why}",
        "a smaller `bucket_cap_mb` lets the last bucket go earlier; where ranks come apart, look "
        "at what the late one does before",
        "smaller buckets pay the fixed cost of a collective more often",
    )


def _buffers(here: Facts) -> Iterator[Cost]:
    table = analysis.buffers(here.imported.recording)
    table = table[(table["rank"] == here.run.rank) & table["step"].isin(here.steps)]
    fired = table[table["fired"]]
    if fired.empty:
        return
    ms = float(table.groupby("step")["sync_ms"].sum().median())
    often = (
        "on every step" if len(fired) >= len(table) else f"in {len(fired)} of {len(table)} forwards"
    )
    yield _cost(
        here,
        "broadcasting buffers",
        ms,
        f"{_moved(here)} are the module's buffers (as BatchNorm has them), {{time}} before the "
        f"forward can start, {often}",
        "`forward_sync_buffers=False` (`broadcast_buffers` before torch 2.13), or SyncBatchNorm "
        "with it",
        "ranks' running statistics then drift apart unless something else keeps them equal, and a "
        "checkpoint has those of the rank that wrote it",
    )


def _moved(here: Facts) -> str:
    """ "2 broadcasts (0.203 MiB of float32, 424 B of int64)"."""
    sent = [one for one in here.run.collectives if one.cause == Cause.BUFFERS]
    last = [one.collective for one in sent if one.iteration == sent[-1].iteration]
    if any(one.bytes < 0 for one in last):
        return f"{len(last)} broadcasts"
    sizes = ", ".join(f"{format_bytes(one.bytes)} of {one.dtype}" for one in last)
    return f"{len(last)} broadcasts ({sizes})"


def _copies(here: Facts) -> Iterator[Cost]:
    where = "kernels" if here.run.on_device else "operations"
    for name, rows, sentence in (
        ("copying gradients in", COPIES_IN, "copying gradients into their buckets"),
        ("copying gradients back", (COPY_OUT,), "copying reduced gradients back out of them"),
    ):
        ms, count = _copy_ms(here, rows), _copy_count(here, rows)
        if ms > 0:
            yield _cost(
                here,
                name,
                ms,
                f"{sentence} takes {{time}}, in {count:.0f} {where}",
                "`gradient_as_bucket_view=True` makes gradients views of their buckets",
                "`detach_()` on a gradient then raises; what holds on to gradients over steps sees "
                "them overwritten",
            )


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


def _waits_ms(here: Facts) -> float:
    """From the last gradient to the last bucket's end, the median of a step."""
    recording = here.imported.recording
    found = recording.records(kinds=Kind.FINALIZE, ranks=here.run.rank, steps=here.steps)
    done = recording.records(kinds=Kind.COLLECTIVE_DONE, ranks=here.run.rank, steps=here.steps)
    done = done[done["cause"] == Cause.BUCKET]
    waits: dict[int, float] = dict.fromkeys(here.steps, 0.0)
    for record in found:
        mine = done[done["iteration"] == record["iteration"]]
        last_ns = int(mine["end_ns"].max(initial=0))
        waits[int(record["step"])] += max(last_ns - int(record["begin_ns"]), 0) / 1e6
    return float(np.median(list(waits.values()))) if waits else 0.0


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
    between_ms = float((here.table["period_ms"] - here.table["step_ms"]).median())
    if between_ms > 0.03 * here.step_ms:
        yield _cost(
            here,
            "between steps",
            between_ms,
            "{time} go by between the optimizer's end and the next forward: loading data, logging, "
            "or what else the loop does; the other ranks wait for it at their first collective",
            "load batches ahead (`num_workers`, `pin_memory`)",
            "none to DDP",
        )


_ALL = (_waiting, _buffers, _copies, _unused, _idle, _between)


# --- what is not wrong ---------------------------------------------------------------------------


def fine(here: Facts, found: list[Cost]) -> list[str]:
    """Sentences on what needs no change."""
    known = {cost.name: cost for cost in found}
    told = list(_communication(here, known))
    buffers = known.get("broadcasting buffers")
    if buffers is None and here.run.phases.iterations:
        told.append("no buffers are broadcast before a forward")
    elif buffers is not None:
        told.append(
            "the broadcasts before each forward are expected: they are DDP's sync of buffers, not "
            "a collective that somebody added"
        )
    copies = sum(cost.ms for name, cost in known.items() if name.startswith("copying"))
    if here.step_ms and 0 < copies < _LITTLE * here.step_ms:
        told.append(f"copying gradients is cheap: {_ms(copies)} a step")
    if "searching unused parameters" not in known and here.run.phases.iterations:
        told.append("no time goes into a search for unused parameters")
    return told


def _communication(here: Facts, known: dict[str, Cost]) -> Iterator[str]:
    waits = known.get("waiting for buckets")
    if here.table["buckets"].sum() and (waits is None or waits.share < 0.05):
        yield "little time goes into waiting for buckets after backward"
    if here.share.overlap > 0.9:
        yield f"{here.share.overlap:.0%} of all communication runs while something computes"
    table = analysis.buckets(here.imported.recording)
    mine = table[(table["rank"] == here.run.rank) & table["step"].isin(here.steps)]
    line = mine["head_of_line_ms"].dropna()
    if len(line) and mine["bucket"].max() > 0 and line.max() < 0.1:
        yield "buckets go out in the order in which they fill: none waits for an earlier one"
    if len(here.run.layouts) == 1 and len(here.steps) > 1:
        plan = here.run.layouts[0]
        buckets = "1 bucket" if len(plan.sizes) == 1 else f"{len(plan.sizes)} buckets"
        yield f"the bucket plan is the same in all steps: {buckets}"
    worst = max((one.spread_ns for one in here.skews), default=None)
    if worst is not None and worst / 1e6 < 0.02 * here.step_ms:
        yield f"ranks come to their collectives within {format_duration(worst)} of each other"
