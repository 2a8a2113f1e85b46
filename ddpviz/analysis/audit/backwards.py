"""Backwards that did not reduce all they should, told from records alone."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterator

import numpy as np

from ddpviz.analysis.audit.case import Case, listed, on, plural, times
from ddpviz.analysis.audit.findings import Finding, Severity
from ddpviz.analysis.audit.moments import unaveraged
from ddpviz.analysis.calls import of_buckets
from ddpviz.analysis.tables import SHARED_ID, run_keys, split_run_keys
from ddpviz.events import Flag, Kind, Parted

_TWICE = re.compile(r"mark a variable ready only once")
_WHICH = re.compile(r"[Pp]arameter at index (\d+)")
_CHANGED = re.compile(r"training graph has changed")
#: With static_graph the first iteration's hooks say what its graph is, and in no_sync none run.
_NOT_EXPECTED = re.compile(r"expect_autograd_hooks_ INTERNAL ASSERT")
#: Of an error's text.
_MOST_CHARACTERS = 160


@dataclasses.dataclass(frozen=True)
class Incomplete:
    """Buckets of one module that never completed in a backward of one rank.

    ``missing``: names of parameters without a gradient at its end; empty where not recorded.
    """

    rank: int
    module: int
    iteration: int
    step: int
    time_ns: int
    buckets: tuple[int, ...]
    missing: tuple[str, ...]
    idle: tuple[str, ...]


def incomplete(case: Case) -> list[Incomplete]:
    """Of backwards that have ended, in the order of time."""
    source = case.source
    backward = source.records(kinds=Kind.BACKWARD)
    ended = backward[((backward["flags"] & Flag.FAILED) == 0) & (backward["module"] < SHARED_ID)]
    ready = source.records(kinds=Kind.GRAD_READY)
    finalized = set(run_keys(source.records(kinds=Kind.FINALIZE)).tolist())
    launched = of_buckets(case.evidence.calls)
    forward = source.records(kinds=Kind.FORWARD)
    quiet = set(run_keys(forward[(forward["flags"] & (Flag.NO_SYNC | Flag.NO_GRAD)) != 0]).tolist())
    last = dict(zip(run_keys(ended).tolist(), ended, strict=True))
    ready_keys, launched_keys = run_keys(ready), run_keys(launched)
    begun = set(ready_keys.tolist()) | set(launched_keys.tolist())
    plans = case.evidence.plans
    found = []
    for key in sorted(begun & last.keys() - finalized - quiet):
        rank, module, iteration = (int(one[0]) for one in split_run_keys(np.array([key])))
        if (rank, module) in case.unseen:
            continue
        plan = int(plans.at(np.array([key]))[0])
        if plan < 0:
            continue
        start, stop = plans.parameter_start[plan], plans.parameter_start[plan + 1]
        bucket_of, names = plans.parameter_bucket[start:stop], plans.parameter_names[start:stop]
        there = np.zeros(len(bucket_of), bool)
        mine = ready["index"][ready_keys == key]
        there[mine[(mine >= 0) & (mine < len(there))]] = True
        absent = (bucket_of >= 0) & ~there if len(mine) else np.zeros(len(there), bool)
        sent = {int(one) for one in launched["index"][launched_keys == key]}
        buckets = sorted({int(one) for one in bucket_of[absent]}) or [
            one for one in range(int(plans.buckets(np.array([plan]))[0])) if one not in sent
        ]
        if not buckets:
            continue
        row = last[key]
        found.append(
            Incomplete(
                rank,
                module,
                iteration,
                case.since(rank, int(row["step"]), int(row["begin_ns"])),
                int(row["end_ns"]),
                tuple(buckets),
                tuple(str(name) for name in names[absent]),
                _idle(case, rank, module),
            )
        )
    return sorted(found, key=lambda one: (one.time_ns, one.rank))


def _idle(case: Case, rank: int, module: int) -> tuple[str, ...]:
    notes = [note for note in case.source.notes(Parted, rank=rank) if note.module == module]
    return notes[-1].idle if notes else ()


def replaced(case: Case, rank: int, module: int, step: int) -> frozenset[str]:
    """Names under which a module had another tensor by a step than DDP had hooked: the buckets
    wait for those, which is told once."""
    return frozenset(
        name
        for note in case.source.notes(Parted, rank=rank)
        if note.module == module and note.step <= step
        for name in note.replaced
    )


def buckets_incomplete(case: Case) -> Iterator[Finding]:
    """One finding per module and set of parameters that were missing."""
    groups: dict[tuple[int, tuple[str, ...]], list[Incomplete]] = {}
    for one in incomplete(case):
        gone = replaced(case, one.rank, one.module, one.step)
        missing = tuple(name for name in one.missing if name not in gone)
        if missing or not gone:
            groups.setdefault((one.module, missing), []).append(one)
    for (module, missing), found in groups.items():
        first = found[0]
        ranks = tuple(sorted({one.rank for one in found}))
        static = bool(case.configuration(first.rank, module, first.time_ns).get("static_graph"))
        waits = listed(f"bucket {one}" for one in first.buckets)
        named = listed(missing) if missing else "some of its parameters"
        frozen = [name for name in missing if name in first.idle]
        if frozen:
            cause = (
                f"{listed(frozen)} {plural(frozen, 'was', 'were')} frozen, or taken out of the "
                "model, after DDP had wrapped it"
            )
            remedy = "wrap the model anew after freezing or removing parameters"
        elif static:
            cause = "the graph is not the same in every iteration, which static_graph=True promises"
            remedy = "leave static_graph off, and pass find_unused_parameters=True"
        else:
            cause = (
                f"{plural(missing, 'this parameter', 'these parameters')} took no part in the "
                "loss: a branch that was not taken, an output that the loss does not use, a layer "
                "that is never called"
            )
            remedy = (
                "pass find_unused_parameters=True, or make the loss depend on every parameter, or "
                "freeze what is not trained before wrapping"
            )
        yield Finding(
            "static-graph-broken" if static and not frozen else "bucket-incomplete",
            Severity.WRONG_NUMBERS,
            f"{waits}{case.of(module)} never completed on {on(ranks)}: no gradient came for "
            f"{named}, so this backward {_left(case, module, ranks)}",
            first.step,
            ranks,
            missing or tuple(f"bucket {one}" for one in first.buckets),
            f"the backward of step {first.step} ended without a reduction, with gradients missing "
            f"for {times(len(missing), 'parameter')}"
            if missing
            else f"the backward of step {first.step} ended without a reduction",
            cause,
            remedy,
            "certain",
            "countdown",
            first.step,
            module,
        )


def _left(case: Case, module: int, ranks: tuple[int, ...]) -> str:
    """What became of the gradients: where some ranks go on, the others wait for them."""
    if set(ranks) >= set(case.modules.get(module, {})):
        return "left every rank its own gradients"
    own, whom = ("its", "it") if len(ranks) == 1 else ("their", "them")
    waits = f"the others wait for {whom} in that bucket's all-reduce"
    return f"left {on(ranks)} {own} own gradients, while {waits}"


def never_reduced(case: Case) -> Iterator[Finding]:
    """An optimizer stepped with gradients that no backward had reduced."""
    records = case.source.records(kinds=Kind.UNREDUCED)
    records = records[np.argsort(records["begin_ns"], kind="stable")]
    if not len(records):
        return
    broken = {(one.rank, one.module, one.iteration) for one in incomplete(case)}
    finalize = case.source.records(kinds=Kind.FINALIZE)
    groups: dict[tuple[str, int], list[np.void]] = {}
    for row in records:
        if (int(row["rank"]), int(row["module"]), int(row["iteration"])) in broken:
            continue
        mine = int(row["rank"]), int(row["module"])
        if case.averaged_by_hand(*mine, int(row["begin_ns"]), int(row["end_ns"])):
            continue
        sort = _sort(row, finalize)
        place = int(row["rank"]), int(row["module"]), int(row["step"])
        if sort == "backward-unreduced" and replaced(case, *place):
            continue
        groups.setdefault((sort, int(row["module"])), []).append(row)
    for (kind, module), rows in groups.items():
        first = rows[0]
        since = case.since(int(first["rank"]), int(first["step"]), int(first["begin_ns"]))
        ranks = tuple(sorted({int(row["rank"]) for row in rows}))
        optimizer = case.source.label(int(first["rank"]), int(first["label"])) or "an optimizer"
        what, cause, remedy = _TOLD[kind]
        yield Finding(
            kind,
            Severity.WRONG_NUMBERS,
            f"{optimizer} stepped{case.of(module)} with gradients that were not averaged on "
            f"{on(ranks)}: {what}",
            since,
            ranks,
            unaveraged(case, module, since, ranks),
            f"{times(int(first['index']), 'backward')} before the step left gradients and reduced "
            f"none; so in {times(_most(rows), 'step')}",
            cause,
            remedy,
            "certain",
            "forward_graph",
            since,
            module,
        )


def _most(rows: list[np.void]) -> int:
    """How many there are of the rank that has most."""
    return max(collections.Counter(int(row["rank"]) for row in rows).values())


#: What is said of each kind: what happened, its usual cause, what to do.
_TOLD = {
    "no-sync-step": (
        "the forward before it was in no_sync, so nothing was sent",
        "no_sync around the last backward before the optimizer's step: the forward decides, and "
        "the last micro-batch must be outside",
        "leave the last forward and backward before optimizer.step() out of no_sync",
    ),
    "wrapper-bypassed": (
        "no forward went through DDP",
        "the wrapped model was called itself (ddp.module(x), or a method of it), so DDP prepared "
        "no reduction",
        "call the DDP module: ddp(x)",
    ),
    "second-backward": (
        "a second backward came after the one that reduced, and added to the averages",
        "one reduction is prepared per forward, and the first backward uses it up: a second loss "
        "with its own backward, or two forwards before two backwards",
        "add the losses and call backward once, or put each forward and its backward together, all "
        "but the last of them in no_sync",
    ),
    "backward-unreduced": (
        "its backward ended without a reduction",
        "the Reducer was not prepared for this backward",
        "call ddp(x) with gradients enabled before each backward that is to be averaged",
    ),
}


def _sort(row: np.void, finalize: np.ndarray) -> str:
    if row["flags"] & Flag.NO_SYNC:
        return "no-sync-step"
    if row["sequence"] == 0:
        return "wrapper-bypassed"
    same = (finalize["rank"] == row["rank"]) & (finalize["module"] == row["module"])
    before = finalize[same & (finalize["iteration"] == row["iteration"])]
    return "second-backward" if len(before) else "backward-unreduced"


def ready_twice(case: Case) -> Iterator[Finding]:
    """DDP refused a second gradient of a parameter in one backward."""
    for one in _raised(case, _TWICE):
        yield Finding(
            "ready-twice",
            Severity.FAILURE,
            f"{listed(one.names) or 'a parameter'}{case.of(one.module)} "
            f"{plural(one.names or ('',), 'was', 'were')} marked ready twice in one backward on "
            f"{on(one.ranks)}",
            one.since,
            one.ranks,
            one.names,
            f"it ended with: {one.text}",
            "its gradient came by two paths: activation checkpointing with use_reentrant=True that "
            "runs a layer twice, or a layer that several forwards share before one backward",
            "use checkpoint(…, use_reentrant=False), or static_graph=True where the graph is the "
            "same in every iteration",
            "certain",
            "countdown",
            one.since,
            one.module,
        )


def static_graph_unknown(case: Case) -> Iterator[Finding]:
    """The first iteration was in no_sync, so the Reducer knows no graph."""
    for one in _raised(case, _NOT_EXPECTED):
        yield Finding(
            "static-graph-broken",
            Severity.FAILURE,
            f"a backward{case.of(one.module)} failed in the Reducer on {on(one.ranks)}: with "
            "static_graph=True the first iteration must not be in no_sync",
            one.since,
            one.ranks,
            case.reduced(one.ranks[0], one.module),
            f"the backward ended with: {one.text}",
            "gradient accumulation that begins with no_sync: the Reducer learns the graph in the "
            "first iteration, and in no_sync it looks at none",
            "run the first forward and backward out of no_sync, or leave static_graph off",
            "certain",
            "timeline",
            one.since,
            one.module,
        )


def static_graph_broken(case: Case) -> Iterator[Finding]:
    """The Reducer found another graph than in the first iteration."""
    for one in _raised(case, _CHANGED):
        yield Finding(
            "static-graph-broken",
            Severity.FAILURE,
            f"the graph{case.of(one.module)} changed on {on(one.ranks)}, though static_graph=True "
            "promises that it does not",
            one.since,
            one.ranks,
            one.names,
            f"the backward ended with: {one.text}",
            "a branch that depends on the data, or a parameter that takes part in some iterations",
            "leave static_graph off, and pass find_unused_parameters=True",
            "certain",
            "countdown",
            one.since,
            one.module,
        )


@dataclasses.dataclass(frozen=True)
class _Raised:
    """An error of one sort that forwards or backwards of a module ended with, on some ranks.

    ``names``: of the parameters that its text tells.
    """

    module: int
    since: int
    ranks: tuple[int, ...]
    names: tuple[str, ...]
    text: str


def _raised(case: Case, pattern: re.Pattern[str]) -> list[_Raised]:
    """The first of each rank, together by module."""
    records = case.source.records(kinds=(Kind.BACKWARD, Kind.FORWARD))
    records = records[(records["flags"] & Flag.FAILED) != 0]
    found: dict[int, dict[int, tuple[int, tuple[str, ...], str]]] = {}
    for row in records[np.argsort(records["begin_ns"], kind="stable")]:
        rank, module = int(row["rank"]), int(row["module"])
        text = case.source.label(rank, int(row["label"]))
        if pattern.search(text):
            since = case.since(rank, int(row["step"]), int(row["begin_ns"]))
            told = since, _named(case, rank, module, text), text
            found.setdefault(module, {}).setdefault(rank, told)
    return [
        _Raised(
            module,
            min(since for since, _, _ in by_rank.values()),
            tuple(sorted(by_rank)),
            tuple(dict.fromkeys(name for _, names, _ in by_rank.values() for name in names)),
            f"{next(iter(by_rank.values()))[2][:_MOST_CHARACTERS]}…",
        )
        for module, by_rank in found.items()
    ]


def _named(case: Case, rank: int, module: int, text: str) -> tuple[str, ...]:
    which = _WHICH.search(text)
    return (case.parameter(rank, module, int(which[1])),) if which else ()
