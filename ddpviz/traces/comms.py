"""Collectives of a trace: each launch on the host joined with the run that it led to."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from ddpviz.traces.columns import Category, Trace, outermost
from ddpviz.traces.decoding import Args
from ddpviz.traces.pairing import paired

#: By their letters, the longer before what it contains.
_OPERATIONS = (
    "allreduce",
    "allgather",
    "reducescatter",
    "alltoall",
    "broadcast",
    "barrier",
    "gather",
    "scatter",
    "reduce",
    "send",
    "recv",
)
#: As profilers write dtypes: name and bytes of an element.
DTYPES = {
    "float": ("float32", 4),
    "double": ("float64", 8),
    "half": ("float16", 2),
    "c10::half": ("float16", 2),
    "bfloat16": ("bfloat16", 2),
    "c10::bfloat16": ("bfloat16", 2),
    "long": ("int64", 8),
    "long int": ("int64", 8),
    "int": ("int32", 4),
    "short": ("int16", 2),
    "byte": ("uint8", 1),
    "unsigned char": ("uint8", 1),
    "char": ("int8", 1),
    "signed char": ("int8", 1),
    "bool": ("bool", 1),
}
_ON_DEVICE = re.compile(r"^(n|r)ccl(dev)?kernel", re.IGNORECASE)
_NOT_SENT = ("wait", "coalesced", "startcoalescing", "endcoalescing", "init")


@dataclasses.dataclass(frozen=True)
class Collective:
    """``launch_ns``, ``thread``: of the host's call. ``begin_ns``, ``end_ns``: of the run, on the
    stream or on gloo's thread; 0 where the trace has none. ``bytes``: -1 where not known; then,
    or where not known either, ``dtype`` is "". ``elements``: -1 where not known."""

    position: int
    operation: str
    launch_ns: int
    launched_ns: int
    thread: int
    begin_ns: int
    end_ns: int
    elements: int
    dtype: str
    bytes: int
    group: str
    members: tuple[int, ...]


def is_kernel(name: str) -> bool:
    """Whether a kernel of this name communicates."""
    return _ON_DEVICE.match(name) is not None


def operation(name: str) -> str:
    """ "allreduce" of whatever a profiler calls it; "" of what is no collective."""
    letters = name.rpartition(":")[2].replace("_", "").lower()
    if is_kernel(name):
        letters = name.split("_", 2)[1].lower() if "_" in name else letters
        if letters == "sendrecv":
            return "alltoall"
    return next((known for known in _OPERATIONS if known in letters), "")


def collectives(trace: Trace) -> list[Collective]:
    """In the order of their launches."""
    launches = _launches(trace)
    runs = _runs(trace)
    matched = _matched(trace, launches, runs)
    found = []
    for launch in launches:
        position, told = launch
        run = matched.get(position)
        about = [one for one in (told, _details(trace, run), _details(trace, position)) if one]
        elements = next((n for n in map(_elements, about) if n >= 0), -1)
        dtype, size = next((d for d in map(_dtype, about) if d[0]), ("", 0))
        found.append(
            Collective(
                position=position,
                operation=operation(_name(trace, position)),
                launch_ns=int(trace.begin_ns[position]),
                launched_ns=int(trace.end_ns[position]),
                thread=int(trace.thread[position]),
                begin_ns=int(trace.begin_ns[run]) if run is not None else 0,
                end_ns=int(trace.end_ns[run]) if run is not None else 0,
                elements=elements,
                dtype=dtype,
                bytes=elements * size if elements >= 0 and size else -1,
                group=next((str(one.group) for one in about if one.group is not None), ""),
                members=next((m for m in map(_members, about) if m), ()),
            )
        )
    return sorted(found, key=lambda one: (one.launch_ns, one.position))


def _name(trace: Trace, position: int) -> str:
    name = trace.text(position)
    if name == "record_param_comms":
        told = trace.details.get(position)
        return str(told.collective) if told is not None else ""
    return name


def _launches(trace: Trace) -> list[tuple[int, Args | None]]:
    """Positions of the host's calls, with what the call under each tells of it."""
    # The dispatcher may pass an operation on to itself: one row inside the other.
    outer = outermost(trace, trace.named(_launches_one, Category.OPERATION))
    told = trace.named(lambda name: name == "record_param_comms")
    told = np.array([at for at in told.tolist() if _sends(trace.details.get(at))], np.int64)
    inside: dict[int, Args] = {}
    alone = []
    for at in told.tolist():
        above = outer[
            (trace.begin_ns[outer] <= trace.begin_ns[at])
            & (trace.end_ns[outer] >= trace.end_ns[at])
            & (trace.thread[outer] == trace.thread[at])
        ]
        if len(above):
            inside.setdefault(int(above[-1]), trace.details[at])
        else:
            alone.append(at)
    if not len(outer) and not alone:
        # Neither the dispatcher's nor NCCL's own rows: what ran is all there is.
        return [(at, None) for at in _runs(trace)]
    return [(at, inside.get(at)) for at in outer.tolist()] + [
        (at, trace.details[at]) for at in alone
    ]


def _launches_one(name: str) -> bool:
    if name.startswith("_c10d_functional::"):
        return "wait" not in name and operation(name) != ""
    return name.startswith("c10d::") and operation(name) != ""


def _sends(told: Args | None) -> bool:
    if told is None or not isinstance(told.collective, str):
        return False
    letters = told.collective.replace("_", "").lower()
    return not letters.startswith(_NOT_SENT) and operation(letters) != ""


def _runs(trace: Trace) -> list[int]:
    on_device = trace.named(is_kernel, Category.KERNEL)
    on_host = trace.named(lambda name: name.startswith("gloo:"))
    if len(on_device) or len(on_host):
        return sorted([*on_device.tolist(), *on_host.tolist()])
    return []


def _matched(
    trace: Trace, launches: list[tuple[int, Args | None]], runs: list[int]
) -> dict[int, int]:
    """Launch → run: by the id that both carry, else in order among those of the same kind."""
    by_id: dict[Any, int] = {}
    for run in runs:
        told = _details(trace, run)
        if told is not None and isinstance(told.external, int) and is_kernel(trace.text(run)):
            by_id.setdefault(told.external, run)
    matched: dict[int, int] = {}
    taken, ran = set(), set(runs)
    for position, told in launches:
        same = position if position in ran else by_id.get(told.external) if told else None
        if same is not None and same not in taken:
            matched[position] = same
            taken.add(same)
    rest = [run for run in runs if run not in taken]
    host = not any(is_kernel(trace.text(run)) for run in rest)
    left = [position for position, _ in launches if position not in matched]

    def kind_of(position: int) -> tuple[str, int]:
        return operation(_name(trace, position)), _size(trace, position)

    return matched | paired(trace, left, rest, kind_of, host)


def _size(trace: Trace, position: int) -> int:
    told = _details(trace, position)
    return -1 if told is None or told.elements is not None else _elements(told)


def _details(trace: Trace, position: int | None) -> Args | None:
    return None if position is None else trace.details.get(position)


def _elements(told: Args) -> int:
    if isinstance(told.elements, int) and 0 <= told.elements < 2**48:
        return told.elements
    if isinstance(told.dims, list) and told.dims:
        return elements_of(told.dims[0])
    return -1


def elements_of(dims: Any) -> int:
    """Elements of a tensor's shape or of a list of shapes; -1 for what is neither."""
    if not isinstance(dims, list) or not dims:
        return -1
    if all(isinstance(one, int) and 0 <= one < 2**40 for one in dims):
        return min(math.prod(dims), 2**48)
    if all(isinstance(one, list) for one in dims):
        sizes = [elements_of(one) for one in dims]
        return sum(sizes) if min(sizes) >= 0 else -1
    return -1


def dtype_of(told: Args) -> tuple[str, int]:
    """Name and bytes of an element of what an event is about; ("", 0) where not known."""
    return _dtype(told)


def _dtype(told: Args) -> tuple[str, int]:
    said = told.dtype
    if said is None and isinstance(told.types, list) and told.types:
        said = told.types[0]
    return DTYPES.get(said.lower(), ("", 0)) if isinstance(said, str) else ("", 0)


def _members(told: Args) -> tuple[int, ...]:
    said = told.members
    if isinstance(said, str):
        said = [int(one) for one in re.findall(r"\d{1,6}", said)] if "..." not in said else []
    if isinstance(said, list) and all(isinstance(one, int) and 0 <= one < 65_536 for one in said):
        return tuple(sorted(set(said)))
    return ()


def total(values: Iterable[int]) -> int:
    """Their sum, -1 where one is not known."""
    listed = list(values)
    return -1 if any(value < 0 for value in listed) else sum(listed)
