"""Fingerprints of all ranks, side by side. Their moments: see :class:`events.Fingerprints`."""

from __future__ import annotations

import dataclasses

from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import SHARED_ID
from ddpviz.events import Fingerprints, Module


@dataclasses.dataclass(frozen=True)
class Moment:
    """One ``what`` of one step and iteration of a module; its note by rank.

    ``names``: of the tensors, in the notes' order.
    """

    step: int
    iteration: int
    module: int
    what: str
    names: tuple[str, ...]
    ranks: dict[int, Fingerprints]


def moments(source: Source, *whats: str) -> list[Moment]:
    """In the order of steps, modules, and iterations; none of modules that share an id."""
    found: dict[tuple[int, int, int, str], dict[int, Fingerprints]] = {}
    for rank in source.ranks:
        for note in source.notes(Fingerprints, rank=rank):
            if note.what in whats and note.module < SHARED_ID:
                key = note.step, note.module, note.iteration, note.what
                found.setdefault(key, {})[rank] = note
    names = {(note.id): note for rank in source.ranks for note in source.notes(Module, rank=rank)}
    return [
        Moment(step, iteration, module, what, _names(names.get(module), what, by_rank), by_rank)
        for (step, module, iteration, what), by_rank in sorted(
            found.items(), key=lambda item: (*item[0][:3], whats.index(item[0][3]))
        )
    ]


def _names(module: Module | None, what: str, by_rank: dict[int, Fingerprints]) -> tuple[str, ...]:
    tensors = () if module is None else module.buffers if "buffer" in what else module.parameters
    known = tuple(tensor.name for tensor in tensors)
    many = max(len(note.hashes) for note in by_rank.values())
    kind = "buffer" if "buffer" in what else "parameter"
    return known + tuple(f"{kind} {index}" for index in range(len(known), many))
