"""Do all ranks have the same model, in the same state, under the same configuration?"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from ddpviz.analysis.audit.case import Case, apart, listed, on
from ddpviz.analysis.audit.findings import Finding, Severity
from ddpviz.analysis.audit.moments import differing
from ddpviz.analysis.configurations import sync_flag
from ddpviz.events import Configuration, Module, Plan, Tensor

_Described = tuple[str, tuple[int, ...], str]


def models_differ(case: Case) -> Iterator[Finding]:
    """Names, shapes, dtypes, order, ignored sets: as the constructor of each rank found them."""
    for module, notes in case.modules.items():
        if len(notes) < 2 or module in case.divided:
            continue
        hows: list[str] = []
        every: dict[str, None] = {}
        different: set[int] = set()
        for part in ("parameters", "buffers", "ignored"):
            values = {rank: _described(note, part) for rank, note in notes.items()}
            if ranks := apart(values):
                how, names = _difference(values, part)
                hows.append(how)
                every.update(dict.fromkeys(names))
                different |= set(ranks)
        if not hows:
            continue
        yield Finding(
            "models-differ",
            Severity.WRONG_NUMBERS,
            f"the model{case.of(module)} is not the same on all ranks: {'; '.join(hows)}",
            -1,
            tuple(sorted(different)),
            tuple(every),
            f"DDP's constructor found them so on {on(notes)}; it compares the number of "
            "parameters and their shapes, not their names or dtypes, and no buffers, and reduces "
            "them by position",
            "the model is built differently by rank: a set or a dictionary in another order, a "
            "layer or a frozen parameter that depends on the rank",
            "build the same model on every rank, in the same order, before wrapping it",
            "certain",
            "construction",
            -1,
            module,
        )


def _described(note: Module, part: str) -> tuple[Hashable, ...]:
    if part == "ignored":
        return note.ignored
    tensors: tuple[Tensor, ...] = getattr(note, part)
    return tuple((one.name, one.shape, one.dtype) for one in tensors)


def _difference(values: dict[int, tuple[Hashable, ...]], part: str) -> tuple[str, tuple[str, ...]]:
    first, other = next((a, b) for a in values for b in values if a < b and values[a] != values[b])
    mine, theirs = values[first], values[other]
    what = {"ignored": "what DDP is told to ignore"}.get(part, part)
    alone = [
        *(one for one in mine if one not in theirs),
        *(one for one in theirs if one not in mine),
    ]
    names = tuple(dict.fromkeys(_name(one) for one in alone))
    if not alone:
        moved = [a for a, b in zip(mine, theirs, strict=False) if a != b]
        names = tuple(_name(one) for one in moved)
        return f"rank {other} registers its {what} in another order than rank {first}", names
    if part == "ignored":
        return f"{what} differs between {on((first, other))}: {listed(names)}", names
    here, there = ({_name(one): one for one in of} for of in (mine, theirs))
    both = [name for name in names if name in here and name in there]
    if both:
        name = both[0]
        return (
            f"{part} {listed(both)} differ: {name} is {_shaped(here[name])} on rank {first} and "
            f"{_shaped(there[name])} on rank {other}",
            names,
        )
    return (
        f"{what} differ between {on((first, other))}: only one of them has {listed(names)}",
        names,
    )


def _name(one: Hashable) -> str:
    return str(one[0]) if isinstance(one, tuple) else str(one)


def _shaped(one: Hashable) -> str:
    assert isinstance(one, tuple)
    return f"{one[2]} {list(one[1])}"


def configurations_differ(case: Case) -> Iterator[Finding]:
    """The same version of a module's configuration on all ranks that have one."""
    found: dict[tuple[int, int], dict[int, dict[str, object]]] = {}
    for rank, note in case.notes(Configuration):
        if note.module in case.divided:
            continue
        found.setdefault((note.module, note.version), {})[rank] = note.values
    told = set()
    for (module, _), values in sorted(found.items()):
        for name in sorted({name for one in values.values() for name in one}):
            of_ranks = {rank: repr(one.get(name)) for rank, one in values.items()}
            ranks = apart(of_ranks)
            if not ranks or (module, name) in told:
                continue
            told.add((module, name))
            said = ", ".join(f"{value} on rank {rank}" for rank, value in of_ranks.items())
            yield Finding(
                "configurations-differ",
                Severity.FAILURE,
                f"DDP{case.of(module)} is configured differently by rank: {name} is {said}",
                -1,
                ranks,
                (name,),
                "each rank's DDP module says so of itself",
                "an argument that depends on the rank, or a hook that is registered on some ranks "
                "only: collectives then differ in number, order or size",
                "give every rank the same arguments and the same hooks",
                "certain",
                "plan",
                None,
                module,
            )


def initial_state(case: Case) -> Iterator[Finding]:
    """Parameters, and buffers that nothing will ever make equal, as recording began."""
    for moment in case.moments("initial parameters", "initial buffers"):
        names, ranks = differing(moment)
        if not names:
            continue
        buffers = moment.what == "initial buffers"
        if buffers and not _stays(case, moment.module, min(moment.ranks)):
            continue
        what = "buffers" if buffers else "parameters"
        yield Finding(
            "initial-state",
            Severity.WRONG_NUMBERS,
            f"ranks began with different {what}{case.of(moment.module)}: {listed(names)}",
            -1,
            ranks,
            names,
            "their fingerprints differ before the first recorded step",
            "init_sync=False, a checkpoint that not all ranks load, weights that were changed on "
            "some ranks after wrapping",
            "let DDP send the state of rank 0 (init_sync=True), or load the same checkpoint on "
            "every rank before wrapping",
            "certain",
            "replicas",
            None,
            moment.module,
        )


def _stays(case: Case, module: int, rank: int) -> bool:
    """Whether buffers that differ as a module is built are never sent: they drift in training."""
    values = case.configuration(rank, module, 0)
    built = any(
        note.module == module and note.reason == "construction"
        for note in case.source.notes(Plan, rank=rank)
    )
    return built and not values.get(sync_flag(values), True)
