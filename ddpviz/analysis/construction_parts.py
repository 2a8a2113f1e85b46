"""The construction of a DDP module in its six steps: time, collectives, and what was decided."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd

from ddpviz.analysis.calls import calls
from ddpviz.analysis.configurations import configured, sync_flag
from ddpviz.analysis.constructions import Construction, constructions
from ddpviz.analysis.naming import label_texts
from ddpviz.analysis.plan_reasons import why
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import table
from ddpviz.analysis.units import format_bytes
from ddpviz.events import Cause, Configuration, Flag, Group, Kind, Module, Plan

_SCHEMA = {
    "construction": "int64",
    "rank": "int64",
    "module": "int64",
    "step": "int64",
    "part": "str",
    "begin_ns": "Int64",
    "time_ms": "float64",
    "collectives": "int64",
    "bytes": "int64",
    "detail": "str",
    "derived": "str",
}


@dataclasses.dataclass(frozen=True)
class _Part:
    name: str
    step: int
    kind: Kind
    cause: Cause | None = None


_PARTS = (
    _Part("group", 1, Kind.CONSTRUCTION_GROUP),
    _Part("collect", 2, Kind.CONSTRUCTION_COLLECT),
    _Part("caps", 3, Kind.CONSTRUCTION_CAPS),
    _Part("verify", 4, Kind.CONSTRUCTION_VERIFY, Cause.VERIFY),
    _Part("sync", 4, Kind.CONSTRUCTION_SYNC, Cause.INITIAL_STATE),
    _Part("reducer", 5, Kind.CONSTRUCTION_REDUCER),
    _Part("options", 6, Kind.CONSTRUCTION_OPTIONS),
)


def construction(source: Source) -> pd.DataFrame:
    """One row per rank and part of each construction of a DDP module that was recorded.

    ``construction``: -1, -2, … in the order of time, as in ``finding``; ``step``: of the six that
    ``DistributedDataParallel.__init__`` takes, the fourth in two parts; ``part``: "group",
    "collect" (the Reducer's list of parameters, which is made after "caps"), "caps", "verify",
    "sync", "reducer", "options". ``time_ms``: NaN where the part did
    not run, or is not known to have ended (``begin_ns`` <NA>). ``collectives``, ``bytes``: issued
    in it. ``detail``: what was found or decided, in words. ``derived``: the columns that are no
    difference of two measured marks: "group" and "options" have no function of their own, so they
    are what is left before and after the others.
    """
    found = calls(source, -1)
    outside = source.records(kinds=[part.kind for part in _PARTS], steps=[-1])
    rows: list[dict[str, Any]] = []
    for one in constructions(source):
        mine, sent = outside[one.holds(outside)], found[one.holds(found)]
        for rank in sorted(one.windows):
            rows += _of_rank(source, one, rank, mine[mine["rank"] == rank], sent)
    return table(_SCHEMA, {name: [row[name] for row in rows] for name in _SCHEMA})


def _of_rank(
    source: Source, one: Construction, rank: int, records: np.ndarray, sent: np.ndarray
) -> list[dict[str, Any]]:
    sent = sent[sent["rank"] == rank]
    ids = np.concatenate([records["module"], sent["module"]])
    module = int(ids[0]) if len(ids) else -1
    groups = set(sent["group"].tolist())
    fourth = [part.kind for part in _PARTS if part.cause is not None]
    silent = rank in one.finished and not np.isin(records["kind"], fourth).any()
    about = _About(source, rank, module, groups, silent)
    rows = []
    for part in _PARTS:
        span = records[records["kind"] == part.kind]
        issued = sent[sent["cause"] == part.cause] if part.cause is not None else sent[:0]
        begin_ns = int(span["begin_ns"][0]) if len(span) else 0
        derived = bool(len(span)) and bool(span["flags"][0] & Flag.DERIVED)
        rows.append(
            {
                "construction": one.step,
                "rank": rank,
                "module": module,
                "step": part.step,
                "part": part.name,
                "begin_ns": begin_ns,
                "time_ms": (int(span["end_ns"][0]) - begin_ns) / 1e6 if begin_ns else np.nan,
                "collectives": len(issued),
                "bytes": int(issued["bytes"].sum()),
                "detail": about.told(part, bool(len(span)), issued),
                "derived": "begin_ns,time_ms" if derived else "",
            }
        )
    return rows


class _About:
    """What the notes say of a module on a rank."""

    def __init__(
        self, source: Source, rank: int, module: int, groups: set[int], silent: bool
    ) -> None:
        """``silent``: the constructor returned and had sent nothing."""
        self._source, self._silent = source, silent
        notes = [note for note in source.notes(Module, rank=rank) if note.id == module]
        self._module = notes[0] if notes else None
        plans = [note for note in source.notes(Plan, rank=rank) if note.module == module]
        self._plan = min(plans, key=lambda note: note.version) if plans else None
        of_module = [n for n in source.notes(Configuration, rank=rank) if n.module == module]
        self._values = configured(source, rank).at(module, 0) if of_module else {}
        self._groups = [note for note in source.notes(Group, rank=rank) if note.id in groups]

    def told(self, part: _Part, ran: bool, issued: np.ndarray) -> str:
        if part.name in ("verify", "sync"):
            if not ran and not len(issued):
                return "skipped, as init_sync=False" if self._silent else "it did not run"
            named = self._sync_of(issued) if part.name == "sync" else ""
            return "; ".join(filter(None, (self._sent(issued), named)))
        if part.name == "group":
            return self._group()
        if part.name == "collect":
            return self._collected()
        if part.name == "caps":
            return self._caps()
        if part.name == "reducer":
            return self._reducer()
        return self._options()

    def _group(self) -> str:
        return ", ".join(
            f"{len(group.ranks)} rank{'' if len(group.ranks) == 1 else 's'}, {group.backend}"
            for group in self._groups
        )

    def _collected(self) -> str:
        if self._module is None:
            return ""
        told = []
        for what, tensors in (
            ("parameter", self._module.parameters),
            ("buffer", self._module.buffers),
        ):
            many = "" if len(tensors) == 1 else "s"
            nbytes = format_bytes(sum(tensor.bytes for tensor in tensors))
            told.append(f"{len(tensors)} {what}{many}, {nbytes}")
        if self._module.delayed:
            put_off = _some([tensor.name for tensor in self._module.delayed])
            told.append(f"in no bucket, but reduced by a hook of their own: {put_off}")
        ignored = ", ".join(self._module.ignored)
        return "; ".join(told) + (f"; ignored: {ignored}" if ignored else "")

    def _caps(self) -> str:
        caps = self._values.get("per_bucket_bytes_caps")
        if caps:
            return f"bucket_cap_mb_list: {', '.join(format_bytes(cap) for cap in caps)}"
        cap, first = (
            self._values.get(name) for name in ("bucket_bytes_cap", "first_bucket_bytes_cap")
        )
        if cap is None or first is None:
            return ""
        if first == cap:
            return f"{format_bytes(cap)} for every bucket, as bucket_cap_mb was given"
        return f"{format_bytes(cap)}, the default, and {format_bytes(first)} for the first bucket"

    def _sent(self, issued: np.ndarray) -> str:
        texts, position = label_texts(self._source, issued)
        return ", ".join(
            f"{texts[at]} {format_bytes(nbytes)}"
            for at, nbytes in zip(position.tolist(), issued["bytes"].tolist(), strict=True)
        )

    def _sync_of(self, issued: np.ndarray) -> str:
        """Which tensors these are: those of the module whose bytes, dtype by dtype, add up to what
        was sent. "" where none do."""
        if self._module is None or not len(issued):
            return ""
        texts, position = label_texts(self._source, issued)
        sent: dict[str, int] = {}
        for at, nbytes in zip(position.tolist(), issued["bytes"].tolist(), strict=True):
            dtype = texts[at].partition(" ")[2]
            sent[dtype] = sent.get(dtype, 0) + nbytes
        one = self._module
        parameters = (*one.parameters, *one.frozen, *one.delayed)
        for buffers in (self._module.buffers, ()):
            held: dict[str, int] = {}
            for tensor in (*parameters, *buffers):
                held[tensor.dtype] = held.get(tensor.dtype, 0) + tensor.bytes
            if {dtype: nbytes for dtype, nbytes in held.items() if nbytes} == sent:
                kinds = {
                    "parameters": self._module.parameters,
                    "frozen parameters": self._module.frozen,
                    "parameters reduced by a hook": self._module.delayed,
                    "buffers": buffers,
                }
                named = [
                    f"{what} {_some([tensor.name for tensor in tensors])}"
                    for what, tensors in kinds.items()
                    if tensors
                ]
                missing = "" if buffers or not self._module.buffers else "; buffers were not sent"
                return ", ".join(named) + missing
        return ""

    def _reducer(self) -> str:
        if self._plan is None or self._plan.reason != "construction":
            return ""
        many = len(self._plan.buckets)
        return f"{many} bucket{'' if many == 1 else 's'}: {why(self._plan, self._values)}"

    def _options(self) -> str:
        names = ("static_graph", "find_unused_parameters", "gradient_as_bucket_view")
        others = ("batched_grad_copy", "skip_all_reduce_unused_params")
        told = [name for name in (*names, *others) if self._values.get(name)]
        if mixed := self._values.get("mixed_precision"):
            told.append(f"mixed_precision ({mixed})")
        flag = sync_flag(self._values)
        if self._values.get(flag) is False:
            told.append(f"{flag} off")
        return ", ".join(told) or (f"none of {', '.join(names)}" if self._values else "")


def _some(names: list[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
