"""What detectors look at: a recording, read once, with the same module on all ranks together."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from ddpviz.analysis.communication import unseen_modules
from ddpviz.analysis.configurations import configured
from ddpviz.analysis.evidence import Evidence, gather
from ddpviz.analysis.fingerprints import Moment, moments
from ddpviz.analysis.places import places
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import SHARED_ID, among
from ddpviz.events import Cause, Compiled, Flag, Kind, Module, Parted, Unavailable

_Note = TypeVar("_Note")
#: Collectives that DDP sends in the process group of its module.
_OF_MODULE = (Cause.VERIFY, Cause.INITIAL_STATE, Cause.BUFFERS, Cause.BUCKET)
#: Names in a sentence; the rest is counted.
_MOST_NAMES = 4


class Case:
    """Of one source. Everything is read when it is asked for first."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.ranks = source.ranks
        self._moments: dict[tuple[str, ...], list[Moment]] = {}
        self._records: dict[Kind, np.ndarray] = {}

    @functools.cached_property
    def evidence(self) -> Evidence:
        return gather(self.source)

    @functools.cached_property
    def modules(self) -> dict[int, dict[int, Module]]:
        """By id and rank; none of modules that share an id."""
        found: dict[int, dict[int, Module]] = {}
        for rank in self.ranks:
            for note in self.source.notes(Module, rank=rank):
                if note.id < SHARED_ID:
                    found.setdefault(note.id, {})[rank] = note
        return found

    @functools.cached_property
    def steps(self) -> np.ndarray:
        """STEP records that have ended."""
        found = self.source.records(kinds=Kind.STEP)
        return found[found["end_ns"] > 0]

    def records(self, kind: Kind, rank: int) -> np.ndarray:
        """A rank's records of a kind."""
        if kind not in self._records:
            self._records[kind] = self.source.records(kinds=kind)
        known = self._records[kind]
        found: np.ndarray = known[known["rank"] == rank]
        return found

    @functools.cached_property
    def recorded_steps(self) -> np.ndarray:
        """Steps of which anything was recorded, in order."""
        steps = np.unique(self.source.records()["step"])
        found: np.ndarray = steps[steps >= 0]
        return found

    @functools.cached_property
    def joined(self) -> bool:
        """Whether Join was used, so that ranks may have different numbers of steps."""
        found: np.ndarray = self.evidence.calls["cause"] == Cause.JOIN
        return bool(found.any())

    @functools.cached_property
    def cut(self) -> set[int]:
        """Ranks of which not all that was recorded is here: nothing follows from how they end."""
        lost = ("records", "notes")
        return {rank for rank, note in self.notes(Unavailable) if note.what in lost}

    @functools.cached_property
    def unnamed(self) -> set[int]:
        """Ranks of which names, plans, fingerprints or configurations are lost."""
        return {rank for rank, note in self.notes(Unavailable) if note.what == "notes"}

    @functools.cached_property
    def unseen(self) -> set[tuple[int, int]]:
        """(rank, module) whose reductions cannot be seen, or are not the C++ Reducer's."""
        python = {
            (rank, note.module)
            for rank in self.ranks
            for note in self.source.notes(Compiled, rank=rank)
            if note.reducer == "Python"
        }
        return set(unseen_modules(self.source)) | python

    @functools.cached_property
    def divided(self) -> frozenset[int]:
        """Ids under which ranks have modules of different process groups, as stages of a pipeline
        or experts: these are no replicas of each other, and are not compared."""
        calls = self.evidence.calls
        own = among(calls["cause"], *_OF_MODULE) & ((calls["flags"] & Flag.FROM_HOOK) == 0)
        calls = calls[own & (calls["module"] < SHARED_ID)]
        cluster = places(self.source).cluster[calls["rank"], calls["group"]]
        used: dict[int, set[int]] = {}
        for module, one in zip(calls["module"].tolist(), cluster.tolist(), strict=True):
            used.setdefault(module, set()).add(one)
        return frozenset(module for module, clusters in used.items() if len(clusters) > 1)

    def moments(self, *whats: str) -> list[Moment]:
        """See :func:`ddpviz.analysis.fingerprints.moments`; none of modules that are divided."""
        if whats not in self._moments:
            known = moments(self.source, *whats)
            self._moments[whats] = [one for one in known if one.module not in self.divided]
        return self._moments[whats]

    def notes(self, kind: type[_Note]) -> list[tuple[int, _Note]]:
        """With the rank of each."""
        return [(rank, note) for rank in self.ranks for note in self.source.notes(kind, rank=rank)]

    def configuration(self, rank: int, module: int, time_ns: int | None = None) -> dict[str, Any]:
        """In force at a time; the last one where none is given."""
        when = np.iinfo(np.int64).max if time_ns is None else time_ns
        return self._configured[rank].at(module, int(when)) if rank in self._configured else {}

    @functools.cached_property
    def _configured(self) -> dict[int, Any]:
        return {rank: configured(self.source, rank) for rank in self.ranks}

    def averaged_by_hand(self, rank: int, module: int, since_ns: int, until_ns: int) -> bool:
        """Whether the program's own collectives in this time have about as many bytes as the
        module's gradients: no_sync, and one collective of one's own."""
        note = self.modules.get(module, {}).get(rank)
        calls = self.evidence.calls
        own = calls[(calls["rank"] == rank) & (calls["cause"] == Cause.USER)]
        own = own[(own["begin_ns"] >= since_ns) & (own["begin_ns"] <= until_ns)]
        whole = sum(one.bytes for one in note.parameters) if note is not None else 0
        return whole > 0 and 2 * int(own["bytes"].sum()) >= whole

    def parameter(self, rank: int, module: int, index: int) -> str:
        """Its name."""
        note = self.modules.get(module, {}).get(rank)
        known = () if note is None else note.parameters
        return known[index].name if 0 <= index < len(known) else f"parameter {index}"

    def reduced(self, rank: int, module: int) -> tuple[str, ...]:
        """Names of the parameters whose gradients DDP reduces, without those that were frozen or
        taken out since."""
        note = self.modules.get(module, {}).get(rank)
        parted = [one for one in self.source.notes(Parted, rank=rank) if one.module == module]
        idle = set(parted[-1].idle) if parted else set()
        known = () if note is None else note.parameters
        return tuple(one.name for one in known if one.name not in idle)

    def buckets(self, module: int, step: int) -> tuple[str, ...]:
        """ "bucket 0", "bucket 1": of the module's plan in a step, or of its last one."""
        rows = self.evidence.buckets
        rows = rows[rows["module"] == module]
        here = rows[rows["step"] == step]
        rows = here if len(here) else rows[rows["step"] == rows["step"].max(initial=-1)]
        return tuple(f"bucket {one}" for one in np.unique(rows["bucket"]).tolist())

    def of(self, module: int) -> str:
        """ " of Net" where there are several modules, else ""."""
        if len(self.modules) < 2 or module not in self.modules:
            return ""
        return f" of {next(iter(self.modules[module].values())).name}"

    def since(self, rank: int, step: int, time_ns: int) -> int:
        """The step of a record; outside of any the one that would have come next on its rank."""
        if step >= 0:
            return step
        mine = self.steps[(self.steps["rank"] == rank) & (self.steps["end_ns"] <= time_ns)]
        return int(mine["step"].max()) + 1 if len(mine) else 0


def listed(names: Iterable[str]) -> str:
    """ "a, b, c, d and 3 more"."""
    known = list(names)
    shown = ", ".join(known[:_MOST_NAMES])
    return shown if len(known) <= _MOST_NAMES else f"{shown} and {len(known) - _MOST_NAMES} more"


def plural(names: Collection[str], one: str, several: str) -> str:
    """The word for as many."""
    return one if len(names) == 1 else several


def on(ranks: Iterable[int]) -> str:
    """ "rank 1", "ranks 0, 2"."""
    known = sorted(ranks)
    return f"rank{'s' if len(known) > 1 else ''} {', '.join(map(str, known))}"


def times(number: int, what: str) -> str:
    """ "1 step", "3 steps"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def apart(values: Mapping[int, Hashable]) -> tuple[int, ...]:
    """Ranks whose value is not that of most; all of them where no value has a majority. Empty
    where all are equal."""
    counts = Counter(values.values())
    if len(counts) < 2:
        return ()
    most, many = counts.most_common(1)[0]
    if many * 2 <= len(values):
        return tuple(sorted(values))
    return tuple(sorted(rank for rank, value in values.items() if value != most))
