"""Which tensors differ by rank at a moment of a sampled step, since when, and by how much."""

from __future__ import annotations

from collections.abc import Iterable

from ddpviz.analysis.audit.case import Case, apart
from ddpviz.analysis.fingerprints import Moment
from ddpviz.events import Module

#: How far apart two numbers next to each other are, relative to them; float32's for other dtypes.
_EPSILON = {"float64": 2.2e-16, "float32": 1.2e-7, "float16": 9.8e-4, "bfloat16": 7.8e-3}
#: Norms that are closer than so many of these are equal but for rounding.
_ROUNDING = 8


def differing(moment: Moment) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Names whose bytes are not the same on all ranks, and who stands apart."""
    names, who = [], set()
    if len({note.hashes for note in moment.ranks.values()}) < 2:
        return (), ()
    for position, name in enumerate(moment.names):
        standing = apart(
            {
                rank: note.hashes[position] if position < len(note.hashes) else ""
                for rank, note in moment.ranks.items()
            }
        )
        if standing:
            names.append(name)
            who |= set(standing)
    return tuple(names), tuple(sorted(who))


def looked_at(case: Case, module: int, step: int, *whats: str, so: str = "equal") -> str:
    """ " (equal when last looked at, in step 5)": what is known of the steps before the first one
    that shows something; "" where the step before was sampled, or there is none. ``so``: what it
    was there."""
    before = [
        one.step for one in case.moments(*whats) if one.module == module and 0 <= one.step < step
    ]
    if before:
        last = before[-1]
        return "" if last == step - 1 else f" ({so} when last looked at, in step {last})"
    first = int(case.recorded_steps[0]) if len(case.recorded_steps) else step
    return f" (in none of the {step - first} before were they looked at)" if step > first else ""


def apart_by(case: Case, moment: Moment, names: Iterable[str]) -> tuple[float, bool]:
    """By how much norms of these tensors differ between ranks, relative to the larger one: the
    largest of all, and whether each is of the order of rounding. Tensors that differ may have
    equal norms, so it is a lower bound of how far apart they are."""
    most, rounding = 0.0, True
    known = set(names)
    for position, name in enumerate(moment.names):
        if name not in known:
            continue
        norms = [
            note.norms[position] if position < len(note.norms) else None
            for note in moment.ranks.values()
        ]
        here = 1.0
        there = [norm for norm in norms if norm is not None]
        if len(there) == len(norms):
            largest = max(there)
            here = (largest - min(there)) / largest if largest > 0 else 0.0
        most = max(most, here)
        rounding &= here <= _ROUNDING * _epsilon(case, moment.module, position)
    return most, rounding


def _epsilon(case: Case, module: int, position: int) -> float:
    note: Module | None = next(iter(case.modules.get(module, {}).values()), None)
    dtype = note.parameters[position].dtype if note and position < len(note.parameters) else ""
    return _EPSILON.get(dtype.removeprefix("torch."), _EPSILON["float32"])


def unaveraged(case: Case, module: int, step: int, ranks: Iterable[int]) -> tuple[str, ...]:
    """Names of the gradients that differ as an optimizer steps with them, where they were sampled
    in that step; else of all that DDP should have reduced."""
    names: dict[str, None] = {}
    for moment in case.moments("gradients", "applied"):
        if moment.module == module and moment.step == step:
            names.update(dict.fromkeys(differing(moment)[0]))
    return tuple(names) or case.reduced(min(ranks), module)


def first_apart(case: Case, module: int) -> Moment | None:
    """The first moment from which on the module's parameters were never equal again."""
    found = None
    for moment in case.moments("parameters"):
        if moment.module != module or len(moment.ranks) < 2:
            continue
        found = (found or moment) if differing(moment)[0] else None
    return found


def steps_equal(case: Case, module: int, first: int) -> list[int]:
    """Sampled steps from ``first`` on at whose end the parameters were equal on all ranks."""
    return [
        moment.step
        for moment in case.moments("parameters")
        if moment.module == module
        and moment.step >= first
        and len(moment.ranks) > 1
        and not differing(moment)[0]
    ]
