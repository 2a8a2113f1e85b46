"""A module that is not what its Reducer was built for: parameters replaced, added, unfrozen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ddpviz.analysis.audit import backwards
from ddpviz.analysis.audit.case import Case, listed, on, plural
from ddpviz.analysis.audit.findings import Finding, Severity
from ddpviz.events import Parted


def parted(case: Case) -> Iterator[Finding]:
    """Parameters replaced after wrapping, and those that never were the Reducer's."""
    told: dict[tuple[str, int, tuple[str, ...]], list[tuple[int, Parted]]] = {}
    for rank, note in _settled(case):
        added = tuple(name for name in note.added if not _in_place_of(name, note.replaced))
        for sort, names in (("replaced", note.replaced), ("added", added)):
            if names:
                told.setdefault((sort, note.module, names), []).append((rank, note))
    latest: dict[tuple[str, int], set[str]] = {}
    for (sort, module, names), found in sorted(told.items(), key=lambda item: item[1][0][1].step):
        new = [name for name in names if name not in latest.get((sort, module), set())]
        if not new:
            continue
        latest.setdefault((sort, module), set()).update(new)
        ranks = tuple(sorted({rank for rank, _ in found}))
        first = min(note.step for _, note in found)
        since, view = max(first, 0), "replicas"
        its, is_, was = (plural(new, *words) for words in _WORDS)
        if sort == "replaced":
            kind = "parameter-replaced"
            what = (
                f"{listed(new)}{case.of(module)} {is_} on {on(ranks)} than {was} that DDP hooked: "
                f"{its} never reduced"
            )
            if _waits(case, module, new):
                what += (
                    f", nor is any other: a bucket waits for the old {plural(new, 'one', 'ones')}"
                )
                view = "countdown"
            cause = (
                f"{plural(new, 'it was', 'they were')} assigned anew after wrapping "
                "(module.weight = nn.Parameter(…), model.head = nn.Linear(…))"
            )
            remedy = "change it in place (module.weight.data.copy_(…)), or wrap the model anew"
        else:
            kind = "parameter-not-hooked"
            what = (
                f"{listed(new)}{case.of(module)} {plural(new, 'wants', 'want')} a gradient on "
                f"{on(ranks)}, and DDP knows nothing of {plural(new, 'it', 'them')}: {its} never "
                "reduced"
            )
            cause = "a layer was added, or a frozen parameter was made trainable, after wrapping"
            remedy = "change the model first, and wrap it then"
        when = "as recording began" if first < 0 else f"after the backward of step {since}"
        yield Finding(
            kind,
            Severity.WRONG_NUMBERS,
            what,
            since,
            ranks,
            tuple(new),
            f"looked up by name {when}, {plural(new, 'it is', 'they are')} not among the Reducer's "
            "parameters",
            cause,
            remedy,
            "certain",
            view,
            since,
            module,
        )


#: For one parameter and for several.
_WORDS = (
    ("its gradient is", "their gradients are"),
    ("is another tensor", "are other tensors"),
    ("the one", "those"),
)


def _settled(case: Case) -> Iterator[tuple[int, Parted]]:
    """Notes by rank; of how a module was as it was attached what the first backward left so."""
    for rank in case.ranks:
        notes = case.source.notes(Parted, rank=rank)
        for at, note in enumerate(notes):
            after = next((one for one in notes[at + 1 :] if one.module == note.module), None)
            if note.step < 0 and after is not None:
                replaced = tuple(name for name in note.replaced if name in after.replaced)
                added = tuple(name for name in note.added if name in after.added)
                note = dataclasses.replace(note, replaced=replaced, added=added)
            yield rank, note


def _in_place_of(name: str, replaced: tuple[str, ...]) -> bool:
    """Whether it belongs to what took the place of a module."""
    paths = {one.rpartition(".")[0] for one in replaced} - {""}
    return any(name.startswith(f"{path}.") for path in paths)


def _waits(case: Case, module: int, names: list[str]) -> bool:
    """Whether backwards ended without a reduction because of these parameters."""
    return any(
        one.module == module and (not one.missing or not set(names).isdisjoint(one.missing))
        for one in backwards.incomplete(case)
    )
