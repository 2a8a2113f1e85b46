"""Replicas that part though nothing else says why: by how much, and whether that is meant to be."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ddpviz.analysis.audit.case import Case, listed
from ddpviz.analysis.audit.findings import Finding, Severity
from ddpviz.analysis.audit.local_sgd import averagings, hook_at
from ddpviz.analysis.audit.moments import apart_by, differing, looked_at
from ddpviz.analysis.fingerprints import Moment

KIND = "replicas-parted"
#: The first moment that differs, names, who stands apart, the last moment that differs.
_Stretch = tuple[Moment, dict[str, None], set[int], Moment]
#: Findings that say why the parameters of a module part, whatever their severity.
EXPLAINING = (
    "no-sync-step",
    "wrapper-bypassed",
    "backward-unreduced",
    "optimizer-skipped",
)


def replicas_parted(case: Case, found: list[Finding]) -> Iterator[Finding]:
    """Parameters that differ, or differed for a while, though nothing above says why."""
    wrong: dict[int, _Stretch] = {}
    mended: dict[int, tuple[_Stretch, Moment]] = {}
    for moment in case.moments("parameters"):
        names, ranks = differing(moment)
        if not names:
            # A rank that is not (yet) heard of may be the one that stands apart.
            if moment.module in wrong and _all_here(wrong[moment.module][0], moment):
                mended[moment.module] = wrong.pop(moment.module), moment
            continue
        first, known, who, _ = wrong.get(moment.module, (moment, {}, set(), moment))
        known.update(dict.fromkeys(names))
        wrong[moment.module] = first, known, who | set(ranks), moment
    for module, (stretch, again) in mended.items():
        if module not in wrong:
            yield from _equal_again(case, found, stretch, again)
    yield from _known_equal_again(case, found, {*wrong, *mended})
    for module, (first, known, who, last) in wrong.items():
        if any(one.module == module and one.since_step <= first.step for one in _roots(found)):
            continue
        hook = hook_at(case, module, first.step)
        if hook and averagings(case, module, first.step).count:
            continue
        apart, rounding = apart_by(case, last, known)
        names = tuple(name for name in last.names if name in known)
        yield _told(case, first, last, names, tuple(sorted(who)), hook, apart, rounding)


def _all_here(before: Moment, now: Moment) -> bool:
    return set(before.ranks) <= set(now.ranks)


def _equal_again(
    case: Case, found: list[Finding], stretch: _Stretch, again: Moment
) -> Iterator[Finding]:
    """Parameters that differed for a while. Local SGD means them to, between two averagings."""
    first, known, who, last = stretch
    module = first.module
    meant = hook_at(case, module, first.step) or averagings(case, module, first.step).count
    if meant or any(one.module == module and one.kind != KIND for one in _roots(found)):
        return
    until = f"step {first.step}"
    if last.step > first.step:
        until = f"steps {first.step} to {last.step}"
    names = tuple(name for name in last.names if name in known)
    before = looked_at(case, module, first.step, first.what)
    yield _mended(case, module, first.step, f"{until}{before}", tuple(sorted(who)), names, again)


def _known_equal_again(
    case: Case, found: list[Finding], here: Collection[int]
) -> Iterator[Finding]:
    """Of what was found before this source, which has none of the moments that differed."""
    for one in found:
        if one.kind != KIND or one.severity is Severity.NOTE or one.module in here:
            continue
        members = set(case.modules.get(one.module, {}))
        again = next(
            (
                moment
                for moment in case.moments("parameters")
                if moment.module == one.module
                and moment.step > one.since_step
                and members <= set(moment.ranks)
            ),
            None,
        )
        if again is not None and len(members) > 1:
            since = one.since_step
            until = f"step {since} and maybe later"
            yield _mended(case, one.module, since, until, one.ranks, one.names, again)


def _mended(
    case: Case,
    module: int,
    since: int,
    until: str,
    ranks: tuple[int, ...],
    names: tuple[str, ...],
    again: Moment,
) -> Finding:
    return Finding(
        KIND,
        Severity.NOTE,
        f"parameters{case.of(module)} were not the same on all ranks at the end of {until}, and "
        f"are again at the end of step {again.step}: {listed(names)}",
        since,
        ranks,
        names,
        f"their fingerprints differ at the end of {until}, and no longer in step {again.step}",
        "weights were written on some ranks only, and later on all alike: a broadcast, a "
        "checkpoint that every rank loads, an average that the program takes",
        "make weights equal before the first step that uses them: gradients of the steps between "
        "were averaged over different models",
        "certain",
        "replicas",
        since,
        module,
    )


def _roots(found: list[Finding]) -> list[Finding]:
    return [
        one for one in found if one.severity is Severity.WRONG_NUMBERS or one.kind in EXPLAINING
    ]


def _told(
    case: Case,
    first: Moment,
    last: Moment,
    names: tuple[str, ...],
    ranks: tuple[int, ...],
    hook: str,
    apart: float,
    rounding: bool,
) -> Finding:
    module = first.module
    by = (
        f"their norms differ by {apart:.1g} of the norm at most, which is of the order of rounding"
        if rounding
        else f"their norms differ by up to {apart:.1g} of the norm"
    )
    since = f"from the end of step {first.step} on{looked_at(case, module, first.step, first.what)}"
    what = f"parameters{case.of(module)} are not the same on all ranks: {listed(names)}"
    severity, sure = Severity.WRONG_NUMBERS, "certain"
    if hook:
        severity, sure = Severity.NOTE, "possible"
        cause = (
            f"the comm hook {hook} averages gradients among some of the ranks only, so replicas "
            "part until the program averages parameters; no all-reduce of its own that is as large "
            "as they are came since"
        )
        remedy = (
            "average parameters now and then (PostLocalSGDOptimizer with a PeriodicModelAverager), "
            "and before saving"
        )
    elif rounding:
        what = f"{what}, by the order of rounding"
        cause = (
            "each rank computes the same number in another way: a change of its own that it undoes "
            "(w + e - e), a sum in another order, a kernel that depends on the rank"
        )
        remedy = (
            "keep a copy of the weights and put that back instead of subtracting, and compute on "
            "every rank alike; rounding adds up in long runs"
        )
    else:
        cause = (
            "weights were written on some ranks only (a checkpoint, an initialisation), or the "
            "optimizer's state or its learning rate depends on the rank"
        )
        remedy = (
            "load and change weights on every rank alike, and give every rank the same optimizer"
        )
    return Finding(
        KIND,
        severity,
        what,
        first.step,
        ranks,
        names,
        f"their fingerprints differ {since}{_gradients(case, module, first.step)}; at the end of "
        f"step {last.step} {by}",
        cause,
        remedy,
        sure,
        "replicas",
        first.step,
        module,
    )


def _gradients(case: Case, module: int, step: int) -> str:
    """What is known of gradients that were sampled up to a step."""
    moments = [
        one
        for one in case.moments("gradients", "applied")
        if one.module == module and one.step <= step and len(one.ranks) > 1
    ]
    if not moments or any(differing(one)[0] for one in moments):
        return ""
    return ", though the gradients that were sampled until then did not"
