"""Notes as JSON, and back; what is read from a file is checked."""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from ddpviz.events.compile_notes import (
    Argument,
    Compiled,
    Graph,
    GraphBreak,
    Part,
    Recompile,
    Split,
)
from ddpviz.events.notes import (
    Bucket,
    Buffers,
    Configuration,
    DeviceClock,
    Ended,
    Environment,
    Failure,
    Fingerprints,
    Frame,
    Group,
    Label,
    Module,
    Parted,
    Plan,
    Process,
    Projections,
    StackLine,
    Stall,
    StateRead,
    Strides,
    Tensor,
    Unavailable,
    Unused,
    Walk,
)

Note: TypeAlias = (
    Label
    | Process
    | Group
    | Module
    | Plan
    | Configuration
    | Failure
    | Unavailable
    | Unused
    | Buffers
    | Fingerprints
    | Parted
    | Strides
    | Projections
    | Environment
    | StateRead
    | Walk
    | Compiled
    | Graph
    | Split
    | GraphBreak
    | Recompile
    | Stall
    | DeviceClock
    | Ended
)
_NOTES: dict[str, Any] = {cls.__name__.lower(): cls for cls in get_args(Note)}
_NESTED: dict[str, dict[Any, Any]] = {
    "parameters": {Module: Tensor},
    "buffers": {Module: Tensor},
    "frozen": {Module: Tensor},
    "delayed": {Module: Tensor},
    "buckets": {Plan: Bucket},
    "frames": {Walk: Frame},
    "arguments": {Graph: Argument},
    "parts": {Split: Part},
    "stack": {Stall: StackLine},
}


def note_to_json(note: Note) -> dict[str, Any]:
    """A note as a JSON-ready dict; ``"note"`` names its type."""
    return {"note": type(note).__name__.lower(), **dataclasses.asdict(note)}


def note_from_json(data: dict[str, Any]) -> Note:
    """The inverse of :func:`note_to_json`. Unknown fields of newer versions are left out.

    Raises ValueError for a note type or layout this version does not know.
    """
    cls = _NOTES.get(str(data.get("note")))
    if cls is None:
        raise ValueError(
            f"found a note of type {data.get('note')!r}, expected one of {sorted(_NOTES)}"
        )
    values = {}
    try:
        for field in dataclasses.fields(cls):
            if field.name not in data and field.default is not dataclasses.MISSING:
                values[field.name] = field.default  # of a version before that had it
                continue
            value = data[field.name]
            nested = _NESTED.get(field.name, {}).get(cls)
            if nested is not None:
                names = [f.name for f in dataclasses.fields(nested)]
                value = tuple(
                    nested(**{name: _tupled(item[name]) for name in names}) for item in value
                )
            values[field.name] = _tupled(value)
        for name, type_ in _types(cls).items():
            if not _fits(values[name], type_):
                raise ValueError(f"a {cls.__name__} note has {_short(values[name])} as its {name}")
        note: Note = cls(**values)
        return note
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"a note of type {data.get('note')!r} lacks or misshapes {error}"
        ) from None


@functools.cache
def _types(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _fits(value: Any, type_: Any) -> bool:
    """Whether a value read from a file is of an annotated type; a float may be a whole number."""
    origin, arguments = get_origin(type_), get_args(type_)
    if type_ is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(one, arguments[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict)
    if dataclasses.is_dataclass(type_):
        return isinstance(value, type_) and all(  # type: ignore[arg-type]
            _fits(getattr(value, name), inner)
            for name, inner in _types(type_).items()  # type: ignore[arg-type]
        )
    if type_ is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if type_ is int:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and -(2**63) <= value < 2**63
    return isinstance(value, type_)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _tupled(value: Any) -> Any:
    return tuple(_tupled(item) for item in value) if isinstance(value, list) else value
