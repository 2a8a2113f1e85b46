"""Gradients that are not the mean, and parameters that are not finite."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from ddpviz.analysis.audit.case import Case, listed, on, times
from ddpviz.analysis.audit.findings import Finding, Severity
from ddpviz.analysis.audit.local_sgd import hook_at
from ddpviz.analysis.audit.moments import apart_by, differing, looked_at
from ddpviz.analysis.fingerprints import Moment
from ddpviz.events import Fingerprints, Projections

#: A hook whose result is further from what it was given than this is lossy on purpose.
_RESIDUAL = 0.05
#: How far from 1 a factor has to be.
_FACTOR = 0.02
#: A result that has less than this in common with the mean is not one; of so many numbers at least.
_UNLIKE, _ENOUGH = 0.2, 48


def gradients_differ(case: Case, found: list[Finding]) -> Iterator[Finding]:
    """Gradients that the optimizer steps with, byte for byte. ``found``: what is known already."""
    reduced = {_key(moment): moment for moment in case.moments("gradients")}
    applied = {_key(moment): moment for moment in case.moments("applied")}
    wrong: dict[tuple[int, str], tuple[Moment, dict[str, None], set[int], int]] = {}
    for key in sorted(reduced.keys() | applied.keys()):
        moment, late = _stepped_with(reduced.get(key), applied.get(key))
        names, ranks = differing(moment)
        names = _unexplained(moment, names, found)
        if not names:
            continue
        hook = str(case.configuration(min(moment.ranks), moment.module).get("comm_hook", ""))
        if hook_at(case, moment.module, moment.step):
            continue
        sort = "after" if late else "hook" if hook else "unknown"
        if key not in reduced:
            sort = "never"
        at = (moment.module, sort)
        first, known, who, many = wrong.get(at, (moment, {}, set(), 0))
        known.update(dict.fromkeys(names))
        who |= set(ranks)
        wrong[at] = first, known, who, many + 1
    for (module, sort), (first, known, who, many) in wrong.items():
        hook = str(case.configuration(min(first.ranks), module).get("comm_hook", ""))
        kind, what, cause, remedy, sure = _why(sort, hook)
        yield Finding(
            kind,
            Severity.WRONG_NUMBERS,
            f"gradients{case.of(module)} are not the same on all ranks {what}: {listed(known)}",
            first.step,
            tuple(sorted(who)),
            tuple(known),
            f"their fingerprints differ in {times(many, 'sampled step')} from step {first.step} on"
            f"{looked_at(case, module, first.step, 'gradients', 'applied')}; their norms by up to "
            f"{apart_by(case, first, known)[0]:.1g} of the norm there",
            cause,
            remedy,
            sure,
            "replicas",
            first.step,
            module,
        )


def _why(sort: str, hook: str) -> tuple[str, str, str, str, str]:
    if sort == "after":
        return (
            "gradients-changed",
            "when the optimizer steps, though the backward had made them so",
            "something changes them between backward and optimizer.step() by what only one rank "
            "knows: clipping by a norm of its own, a scale, noise",
            "compute what gradients are changed by from what all ranks have, or reduce it first",
            "certain",
        )
    if sort == "hook":
        return (
            "hook-not-averaging",
            f"after the comm hook {hook}",
            "the hook returns this rank's own numbers, or sums over some of the ranks only",
            "all-reduce the bucket in the hook, over DDP's process group, and return its future",
            "certain",
        )
    if sort == "never":
        return (
            "backward-unreduced",
            "when the optimizer steps, and no backward had reduced them",
            "they come from torch.autograd.grad or were written by hand, or no reduction was "
            "prepared for the backward",
            "call ddp(x) and loss.backward(), or average by hand what is computed otherwise",
            "certain",
        )
    return (
        "gradients-differ",
        "after the backward that reduced them",
        "ranks reduced different parameters together, or wrote into gradients or buckets during "
        "the backward (hooks on tensors or parameters)",
        "compare the models' parameters and hooks on these ranks",
        "certain",
    )


def _key(moment: Moment) -> tuple[int, int, int]:
    return moment.step, moment.module, moment.iteration


def _stepped_with(reduced: Moment | None, applied: Moment | None) -> tuple[Moment, bool]:
    """The gradients that were stepped with, and whether they parted after their reduction only.

    A rank that left them as they were says nothing more of them.
    """
    if applied is None:
        assert reduced is not None
        return reduced, False
    if reduced is None:
        return applied, False
    if differing(reduced)[0]:
        return reduced, False
    ranks: dict[int, Fingerprints] = {**reduced.ranks, **applied.ranks}
    return dataclasses.replace(applied, ranks=ranks), True


#: Findings that say why any gradient of a module is not the mean, and those that do for names.
_OF_ALL = (
    "mismatched-collectives",
    "bucket-incomplete",
    "static-graph-broken",
    "second-backward",
    "wrapper-bypassed",
    "no-sync-step",
    "backward-unreduced",
    "models-differ",
)
_OF_NAMES = ("parameter-replaced", "parameter-not-hooked")


def _unexplained(moment: Moment, names: tuple[str, ...], found: list[Finding]) -> tuple[str, ...]:
    for one in found:
        if one.module != moment.module or one.since_step > moment.step:
            continue
        if one.kind in _OF_ALL or (one.kind in _OF_NAMES and one.view == "countdown"):
            return ()
        if one.kind in _OF_NAMES:
            names = tuple(name for name in names if name not in one.names)
    return names


def hook_not_mean(case: Case) -> Iterator[Finding]:
    """A comm hook's result is the same on all ranks, and a multiple of the mean or something else.

    Told from products with fixed vectors: those of a mean are the mean of the ranks' own.
    """
    notes: dict[tuple[int, int, int], dict[str, dict[int, Projections]]] = {}
    for rank, note in case.notes(Projections):
        if note.module in case.divided:
            continue
        of_step = notes.setdefault((note.module, note.step, note.iteration), {})
        of_step.setdefault(note.what, {})[rank] = note
    by_module: dict[int, list[tuple[int, np.ndarray, np.ndarray]]] = {}
    for (module, step, _), both in sorted(notes.items()):
        local, reduced = both.get("local", {}), both.get("reduced", {})
        world = case.configuration(min(local, default=-1), module).get("world_size", len(local))
        if len(local) != world or set(local) != set(reduced) or world < 2:
            continue
        own = np.array([local[rank].values for rank in sorted(local)])
        got = np.array(reduced[min(reduced)].values)
        if own.shape[1] == len(got) and np.isfinite(own).all() and np.isfinite(got).all():
            by_module.setdefault(module, []).append((step, own.mean(0), got))
    for module, found in by_module.items():
        mean = np.concatenate([one[1] for one in found])
        got = np.concatenate([one[2] for one in found])
        if not mean.any() or len(mean) < 8:
            continue
        yield from _of_hook(case, module, found[0][0], mean, got)


def _of_hook(
    case: Case, module: int, since: int, mean: np.ndarray, got: np.ndarray
) -> Iterator[Finding]:
    ranks = tuple(sorted(case.modules.get(module, {})))
    hook = str(case.configuration(min(ranks), module).get("comm_hook", ""))
    world = int(case.configuration(min(ranks), module).get("world_size", len(ranks)))
    factor = float(got @ mean / (mean @ mean))
    size = float(np.linalg.norm(got))
    residual = float(np.linalg.norm(got - factor * mean)) / size if size else 1.0
    likeness = factor * float(np.linalg.norm(mean)) / size if size else 0.0
    whole = abs(factor / world - 1) < _FACTOR or abs(factor * world - 1) < _FACTOR
    if residual < _RESIDUAL and abs(factor - 1) > _FACTOR:
        how = f"{factor:.3g} times the mean of the ranks' gradients"
        cause = f"the hook multiplies gradients by {factor:.3g}"
        if abs(factor / world - 1) < _FACTOR:
            cause = (
                "the hook sums and does not divide by the world size: with a hook, DDP does not. "
                "Right where the loss is divided by the batch of all ranks instead"
            )
        elif abs(factor * world - 1) < _FACTOR:
            cause = "the hook divides by the world size twice"
        sure = "certain" if whole and factor < 1 else "likely"
    elif len(mean) >= _ENOUGH and abs(likeness) < _UNLIKE:
        how = "something else than the mean of the ranks' gradients"
        cause = "the hook returns another tensor than the one that it reduced"
        sure = "likely"
    else:
        return
    yield Finding(
        "hook-not-mean",
        Severity.WRONG_NUMBERS,
        f"the comm hook {hook}{case.of(module)} hands back {how}",
        since,
        ranks,
        (hook,),
        "buckets were compared as the hook got them on every rank and as the backward left them",
        cause,
        "divide by the world size once: before the all-reduce, or in the future's callback",
        sure,
        "finalize",
        since,
        module,
    )


def not_finite(case: Case) -> Iterator[Finding]:
    """Parameters that are NaN or infinite. Gradients may be: a scaler of them skips such a step."""
    first: dict[int, tuple[int, dict[str, None], set[int]]] = {}
    for moment in case.moments("parameters"):
        for rank, note in moment.ranks.items():
            names = [name for name, many in zip(moment.names, note.nonfinite, strict=False) if many]
            if names:
                step, known, ranks = first.setdefault(moment.module, (moment.step, {}, set()))
                known.update(dict.fromkeys(names))
                ranks.add(rank)
    for module, (step, known, ranks) in first.items():
        yield Finding(
            "not-finite",
            Severity.WRONG_NUMBERS,
            f"parameters{case.of(module)} are NaN or infinite on {on(ranks)}: {listed(known)}",
            step,
            tuple(sorted(ranks)),
            tuple(known),
            f"counted at the end of step {step}"
            f"{looked_at(case, module, step, 'parameters', so='finite')}",
            "a loss that overflows, a learning rate too high, a division by zero on one rank: the "
            "average carries it to all",
            "look at the gradients of the step before, and clip them or lower the learning rate",
            "certain",
            "replicas",
            step,
            module,
        )
