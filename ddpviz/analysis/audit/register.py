"""Every detector, and what each kind of finding needs of a recording to be told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ddpviz.analysis.audit import (
    backwards,
    buffers,
    failures,
    hangs,
    local_sgd,
    models,
    parameters,
    parted,
    parting,
    sequences,
    settings,
    speed,
    unhooked,
)
from ddpviz.analysis.audit.case import Case, on
from ddpviz.analysis.audit.findings import Finding, Unchecked
from ddpviz.analysis.communication import unseen_modules
from ddpviz.analysis.traced import from_trace, untold
from ddpviz.events import (
    Ended,
    Environment,
    Failure,
    Fingerprints,
    Kind,
    Process,
    Projections,
    Unavailable,
)

#: Causes first: what they explain is not told again.
ROOTS: tuple[Callable[[Case], Iterable[Finding]], ...] = (
    models.models_differ,
    models.configurations_differ,
    models.initial_state,
    backwards.buckets_incomplete,
    backwards.never_reduced,
    unhooked.nothing_reduced,
    backwards.ready_twice,
    backwards.static_graph_broken,
    backwards.static_graph_unknown,
    parted.parted,
    parameters.hook_not_mean,
    parameters.not_finite,
    buffers.overwritten,
    buffers.constant,
    buffers.stale_checkpoint,
    settings.unused_search,
    settings.gradient_layout,
    settings.debug_detail,
    settings.step_counts,
    sequences.backward_skipped,
    sequences.optimizer_skipped,
    hangs.mismatched,
    speed.bursts_without_overlap,
    speed.borders_disagree,
    speed.head_of_line,
    speed.exposed_communication,
    speed.straggler,
)
#: Told only where none of these says why.
SYMPTOMS: tuple[Callable[[Case, list[Finding]], Iterable[Finding]], ...] = (
    parameters.gradients_differ,
    parting.replicas_parted,
    failures.rank_failed,
    hangs.hang,
)

_ACROSS = (
    "models-differ",
    "configurations-differ",
    "step-counts",
    "backward-skipped",
    "optimizer-skipped",
    "straggler",
    "mismatched-collectives",
    "hang",
)
_SAMPLED = (
    "initial-state",
    "hook-not-averaging",
    "gradients-changed",
    "gradients-differ",
    "replicas-parted",
    "not-finite",
    "buffers-overwritten",
    "buffers-constant",
)
_HOOKED = ("hook-not-mean",)
_TIMED = ("bucket-incomplete", "head-of-line", "burst")
_ENVIRONMENT = ("debug-detail",)
_UNREDUCED = ("no-sync-step", "wrapper-bypassed", "second-backward", "backward-unreduced")
_PARTED = ("parameter-replaced", "parameter-not-hooked")
_ANY = (
    "static-graph-broken",
    *_UNREDUCED,
    "ready-twice",
    *_PARTED,
    "stale-buffers",
    "unused-search",
    "gradient-layout",
    "borders",
    "exposed-communication",
    "rank-failed",
)
#: What is told where none of these is: it follows from them.
_FOLLOWS = {
    "step-counts": ("backward-skipped",),
    "mismatched-collectives": ("models-differ",),
    "initial-state": ("models-differ",),
}
#: Every kind of finding there is.
KINDS = (*_ACROSS, *_SAMPLED, *_HOOKED, *_TIMED, *_ENVIRONMENT, *_ANY)


def detect(case: Case, known: Iterable[Finding] = ()) -> list[Finding]:
    """All findings, in no order. ``known``: of before; what they explain is not told again."""
    found = local_sgd.softened(case, [one for detector in ROOTS for one in detector(case)])
    for symptom in SYMPTOMS:
        found += list(symptom(case, [*known, *found]))
    kinds = {one.kind for one in (*known, *found)}
    return [one for one in found if not kinds & set(_FOLLOWS.get(one.kind, ()))]


def unchecked(case: Case) -> Iterator[Unchecked]:
    """Kinds that this recording has not what it takes to tell."""
    if len(case.ranks) < 2:
        yield from _because("only one rank was recorded", (*_ACROSS, *_SAMPLED, *_HOOKED))
        return
    if not case.source.notes(Fingerprints):
        why = untold(case.source, "what tensors hold") or (
            "no fingerprints were taken: session.fingerprints(…), attach(…, fingerprints=…)"
        )
        yield from _because(why, (*_SAMPLED, *_HOOKED))
    elif not case.source.notes(Projections) and _hooked(case):
        why = "what the comm hook was given and what it handed back was not recorded"
        yield from _because(why, _HOOKED)
    yield from _ends(case)
    if case.unnamed:
        why = f"not all notes of {on(case.unnamed)} are here"
        told = ("step-counts", "hang")
        yield from _because(why, [kind for kind in _ACROSS if kind not in told])
        yield from _because(why, (*_SAMPLED, *_HOOKED, *_PARTED, *_ENVIRONMENT))
    dropped = getattr(case.source, "dropped", 0)  # only a recording in memory has a bound
    if dropped:
        why = f"{dropped} older records are no longer in memory: of their steps nothing is known"
        yield from _because(why, (*_UNREDUCED, "bucket-incomplete", "backward-skipped"))
    levels = {note.level for note in case.source.notes(Process)}
    if levels == {"summary"}:
        yield from _because(
            "level summary records no times of gradients", ("head-of-line", "burst")
        )
    if not case.source.notes(Environment):
        yield from _because("the environment was not recorded", _ENVIRONMENT)
    for rank, module in sorted(case.unseen)[:1]:
        said = unseen_modules(case.source).get((rank, module), "")
        why = f"how rank {rank} reduces module {module} cannot be seen{said and f': {said}'}"
        yield from _because(why, ("bucket-incomplete", *_UNREDUCED))
    for note in case.source.notes(Unavailable):
        if note.what == "parameters":
            yield from _because(note.why, (*_PARTED, *_SAMPLED, *_HOOKED))
            break
    for note in case.source.notes(Unavailable):
        if note.what == "unused parameters":
            yield from _because(note.why, ("unused-search",))
            break
    unsplit = case.evidence.buckets["unsplit"]
    if len(unsplit) and all(unsplit):
        why = f"waiting for a rank and transferring are not told apart: {unsplit[0]}"
        yield from _because(why, ("straggler",))
    if len(case.source.records(kinds=Kind.STEP)) == 0:
        yield from _because("no step has ended", ("exposed-communication", "head-of-line"))


def _ends(case: Case) -> Iterator[Unchecked]:
    """What is not known of how ranks ended, and of ranks that were not recorded."""
    world = max((note.world_size for note in case.source.notes(Process)), default=0)
    others = sorted(set(range(world)) - set(case.ranks))
    if others:
        yield from _because(f"{on(others)} of {world} {_was(others)} not recorded", _ACROSS)
    elif case.cut:
        why = f"not all is here that was recorded of {on(case.cut)}"
        yield from _because(why, ("step-counts", "hang", "rank-failed"))
    elif not case.source.notes(Ended) and not case.source.notes(Failure):
        last = int(case.recorded_steps[-1]) if len(case.recorded_steps) else -1
        where = f" in step {last}" if last >= 0 else ""
        why = f"no rank's recording has an end: the job still runs, or all ranks were killed{where}"
        if from_trace(case.source):
            yield from _because("a trace does not say how its ranks ended", ("rank-failed", "hang"))
            return
        yield from _because(why, ("rank-failed",))


def _was(ranks: list[int]) -> str:
    return "was" if len(ranks) == 1 else "were"


def _because(why: str, kinds: Iterable[str]) -> Iterator[Unchecked]:
    for kind in kinds:
        yield Unchecked(kind, why)


def _hooked(case: Case) -> bool:
    return any(
        case.configuration(rank, module).get("comm_hook")
        for module, notes in case.modules.items()
        for rank in notes
    )
