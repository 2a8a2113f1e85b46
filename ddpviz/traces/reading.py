"""Files of one run to traces, one per rank: who is who, and what must not be read silently."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddpviz.traces import flight, opening
from ddpviz.traces.columns import Trace, columns
from ddpviz.traces.decoding import NoEvents, decode
from ddpviz.traces.errors import MOST_RANKS, NoRank, TraceError
from ddpviz.traces.exported import Exported
from ddpviz.traces.flight import Dump

_RANK_IN_NAME = re.compile(r"rank[-_. ]?(\d{1,5})(?!\d)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class RankTrace:
    """One rank's trace. ``world_size``: 0 where the file doesn't say."""

    rank: int
    world_size: int
    trace: Trace


def files_of(path: Path) -> list[Path]:
    """The files that a directory may have traces in, by name; of a file itself."""
    if not path.is_dir():
        return [path]
    found = sorted(
        entry for entry in path.iterdir() if entry.is_file() and opening.may_be_trace(entry)
    )
    if not found:
        raise TraceError(
            f"found no file ending in {', '.join(opening.ENDINGS[:3])} in {path}, expected "
            "profiler traces or a recording: check the path"
        )
    return found


def read_file(path: Path) -> Trace | Dump | Exported:
    """Raises :class:`TraceError`."""
    data = opening.contents(path)
    if opening.is_pickle(data):
        return flight.from_pickle(path, data)
    text = opening.without_mark(data)
    try:
        decoded = decode(path, text)
    except NoEvents:
        dump = flight.from_json(path, text)
        if dump is None:
            raise
        return dump
    if isinstance(decoded.exported, dict):
        events = itertools.chain.from_iterable(block for block, _ in decoded.blocks())
        return Exported(path, decoded.exported, events)
    return columns(path, decoded, _distributed(decoded.distributed))


def rank_of_dump(dump: Dump, given: int | None = None) -> int:
    """As given, else as the file's name says: a dump itself doesn't say it."""
    named = _RANK_IN_NAME.search(dump.path.name)
    if given is None and named is None:
        raise TraceError(
            f"found no rank in the name of the flight recorder's dump {dump.path}: rename it to "
            "say so, as in dump.rank0.pickle"
        )
    return given if given is not None else int(named[1]) if named else 0


def rank_of(trace: Trace, given: int | None = None) -> RankTrace:
    """Who recorded it: as the content says, else as given, else as the file's name does. Raises
    :class:`TraceError` where what is given is not what the content says."""
    world_size = _number(trace.distributed.get("world_size"), 1) or 0
    rank = _number(trace.distributed.get("rank"), 0)
    if given is not None and rank not in (None, given):
        raise TraceError(
            f"found rank {rank} in the distributedInfo of {trace.path}, expected the rank={given} "
            "that was given: leave it out, it is for a trace that does not say"
        )
    rank = given if rank is None else rank
    if rank is None:
        named = _RANK_IN_NAME.search(trace.path.name)
        if named is None:
            raise NoRank(
                f"found no rank in {trace.path}, neither in its distributedInfo nor in its name: "
                "rename it to say so, as in trace.rank0.json, or give its rank: "
                "ddpviz.load(…, rank=0), or --rank 0"
            )
        rank = int(named[1])
    if rank > MOST_RANKS:
        raise TraceError(f"found rank {rank} in {trace.path}, expected at most {MOST_RANKS}")
    if world_size > MOST_RANKS + 1:
        raise TraceError(
            f"found a world size of {world_size} in {trace.path}, expected at most "
            f"{MOST_RANKS + 1}: check its distributedInfo"
        )
    return RankTrace(rank, world_size, trace)


def refuse_doubles(found: Sequence[tuple[int, Path]]) -> None:
    """Raises :class:`TraceError` where two files say that they are of the same rank."""
    by_rank: dict[int, list[Path]] = {}
    for rank, path in found:
        by_rank.setdefault(rank, []).append(path)
    for rank, paths in by_rank.items():
        if len(paths) == 1:
            continue
        names = [_RANK_IN_NAME.search(path.name) for path in paths]
        differ = len({match[1] for match in names if match}) == len(paths)
        if len(paths) == len(found) and len(paths) > 2:
            said = f"found rank {rank} in all of {len(paths)} files"
        else:
            said = f"found rank {rank} in {paths[0]} and in {paths[1]}"
        said += ", as their distributedInfo says though their names do not" if differ else ""
        raise TraceError(
            f"{said}, expected one file per rank: give one of them, or those of the same steps "
            "on different ranks"
        )


def remarks_on(found: Iterable[RankTrace]) -> list[str]:
    """What a reader of these traces should know, a sentence each."""
    remarks = []
    ranks = sorted(one.rank for one in found)
    sizes = {one.world_size for one in found if one.world_size}
    if len(sizes) > 1:
        remarks.append(f"the traces name different world sizes: {', '.join(map(str, sizes))}")
    for one in found:
        if one.trace.left_out:
            remarks.append(
                f"{one.trace.left_out} events of {one.trace.path.name} could not be read and are "
                "left out"
            )
        named = _RANK_IN_NAME.search(one.trace.path.name)
        if named and int(named[1]) != one.rank:
            inside = _number(one.trace.distributed.get("rank"), 0) is not None
            remarks.append(
                f"{one.trace.path.name} is of rank {one.rank}, as "
                f"{'it says inside' if inside else 'was given'}, though its name says "
                f"{int(named[1])}"
            )
        if one.world_size and one.rank >= one.world_size:
            remarks.append(
                f"{one.trace.path.name} is of rank {one.rank} of {one.world_size}, which there "
                "cannot be"
            )
    size = max(sizes, default=0)
    if size > len(ranks):
        there = ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
        remarks.append(
            f"traces of {len(ranks)} of {size} ranks are here ({there}): who of all arrived last, "
            "and how long the others were waited for, cannot be told; what is told of waiting is "
            "among these"
        )
    return remarks


def _distributed(value: Any) -> dict[str, Any]:
    """The file's distributedInfo, which some versions write as a string of JSON."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _number(value: Any, least: int) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 9:
        value = int(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e9:
        value = int(value)
    return value if isinstance(value, int) and least <= value < 2**31 else None
