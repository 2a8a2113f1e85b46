"""Fingerprints of all ranks, side by side. Their moments: see :class:`events.Fingerprints`."""

from __future__ import annotations

import dataclasses

from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import SHARED_ID
from ddpviz.events import Configuration, Fingerprints, Module, Parted


@dataclasses.dataclass(frozen=True)
class Moment:
    """One ``what`` of one step and iteration of a module; its note by rank.

    ``names``: of the tensors, in the notes' order. ``group``: the ranks of the module's process
    group, () for all that there are: only these are replicas of each other.
    """

    step: int
    iteration: int
    module: int
    what: str
    names: tuple[str, ...]
    ranks: dict[int, Fingerprints]
    group: tuple[int, ...] = ()


def moments(source: Source, *whats: str) -> list[Moment]:
    """In the order of steps, modules, iterations, and process groups; none of modules that share an
    id."""
    found: dict[tuple[int, int, int, tuple[int, ...], str], dict[int, Fingerprints]] = {}
    for rank in source.ranks:
        groups = {
            note.module: tuple(note.values.get("ranks", ()))
            for note in source.notes(Configuration, rank=rank)
        }
        for note in source.notes(Fingerprints, rank=rank):
            if note.what in whats and note.module < SHARED_ID:
                group = groups.get(note.module, ())
                key = note.step, note.module, note.iteration, group, note.what
                found.setdefault(key, {})[rank] = note
    names = {(note.id): note for rank in source.ranks for note in source.notes(Module, rank=rank)}
    return [
        Moment(
            step,
            iteration,
            module,
            what,
            _names(source, names.get(module), what, by_rank),
            by_rank,
            group,
        )
        for (step, module, iteration, group, what), by_rank in sorted(
            found.items(), key=lambda item: (*item[0][:4], whats.index(item[0][4]))
        )
    ]


def _names(
    source: Source, module: Module | None, what: str, by_rank: dict[int, Fingerprints]
) -> tuple[str, ...]:
    tensors = () if module is None else module.buffers if "buffer" in what else module.parameters
    known = tuple(tensor.name for tensor in tensors)
    rank, longest = max(by_rank.items(), key=lambda item: len(item[1].hashes))
    many = len(longest.hashes)
    if module is not None and "buffer" not in what and many > len(known):
        known += _added(source, rank, longest)
    kind = "buffer" if "buffer" in what else "parameter"
    return known + tuple(f"{kind} {index}" for index in range(len(known), many))


def _added(source: Source, rank: int, note: Fingerprints) -> tuple[str, ...]:
    """Parameters that the module's Reducer did not have then, which come after its own."""
    parted = [
        one
        for one in source.notes(Parted, rank=rank)
        if one.module == note.module and one.time_ns <= note.time_ns
    ]
    return parted[-1].added if parted else ()
