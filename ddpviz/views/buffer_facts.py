"""What there is to say of the buffers in one step, in sentences. No Bokeh."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ddpviz.analysis import buffer_values, replicas
from ddpviz.analysis.source import Source
from ddpviz.events import Configuration
from ddpviz.views.columns import Row, as_rows
from ddpviz.views.sampled import HOW_TO, sampled
from ddpviz.views.text import count, duration, names, sent_size, size

#: Forwards of a step that are told one by one.
_MOST_FORWARDS = 4
#: Sampled steps that values are followed over.
_SAMPLES = 6
#: Ranks whose drift is told, those furthest off.
_MOST_RANKS = 8
_ANSWERS = {1: "yes", 0: "no", -1: "not known"}


def buffer_facts(
    source: Source, step: int, forwards: list[Row], sent: list[Row]
) -> tuple[str, ...]:
    """``forwards``: rows of :func:`ddpviz.analysis.buffers.decided_rows` of the step, ``sent``:
    those of :func:`ddpviz.analysis.buffer_dtypes.buffer_dtype_rows`."""
    return (
        *_forwards(forwards),
        *_dtypes(sent),
        *_volume(source, forwards),
        *_authority(source, forwards),
        *_reassigned(forwards),
        *_values(source, step, forwards),
    )


def _forwards(forwards: list[Row]) -> list[str]:
    """Of the first rank, and of another where it differs."""
    first = min((row["rank"] for row in forwards), default=0)
    told = []
    mine = [row for row in forwards if row["rank"] == first]
    for place, row in enumerate(mine[:_MOST_FORWARDS]):
        which = f"forward {place + 1} of {len(mine)}" if len(mine) > 1 else "the forward"
        told.append(f"{which}: {row['why']} ({_conditions(row)})")
    if len(mine) > _MOST_FORWARDS:
        told.append(f"and {count(len(mine) - _MOST_FORWARDS, 'more forward')}")
    fired = {row["iteration"]: row["fired"] for row in mine}
    others = [
        row["rank"] for row in forwards if fired.get(row["iteration"], row["fired"]) != row["fired"]
    ]
    if others:
        told.append(f"not so on rank {names([str(rank) for rank in dict.fromkeys(others)])}")
    return told


def _conditions(row: Row) -> str:
    names = {"buffers": "has_buffers", "switched on": "sync_on", "due": "sync_due"}
    told = [f"{name}: {_ANSWERS[row[column]]}" for name, column in names.items()]
    return ", ".join([*told, f"hook: {row['hook'] or 'not known'}"])


def _dtypes(sent: list[Row]) -> list[str]:
    """One for each dtype: what the first rank sent, how long it took, how long it waited for it."""
    first = min((row["rank"] for row in sent), default=0)
    found: dict[tuple[str, str], list[Row]] = {}
    for row in sent:
        if row["rank"] == first:
            key = row["dtype"] or "unknown dtype", row["op"] or "collective"
            found.setdefault(key, []).append(row)
    return [
        f"{dtype}: {count(sum(row['collectives'] for row in rows), op)}, "
        f"{sent_size(sum(row['bytes'] for row in rows))}, {_waited(rows)} on rank {first}"
        for (dtype, op), rows in found.items()
    ]


def _waited(rows: list[Row]) -> str:
    took_ms, waited_ms = (sum(row[name] for row in rows) for name in ("time_ms", "waited_ms"))
    if math.isnan(took_ms):
        return "its time is not known"
    if math.isnan(waited_ms):
        return f"{duration(took_ms)}, how much of it on the critical path is not known,"
    return f"{duration(took_ms)}, {duration(waited_ms)} of it on the critical path"


def _volume(source: Source, forwards: list[Row]) -> list[str]:
    shares = [row["of_threshold"] for row in forwards if not math.isnan(row["of_threshold"])]
    values = [note.values for note in source.notes(Configuration)]
    limits = [one["broadcast_bucket_size"] for one in values if one.get("broadcast_bucket_size")]
    if not shares or not limits or not max(shares):
        return []
    share, limit = max(shares), limits[-1]
    told = f"all buffers are {size(share * limit)}, {_percent(share)} of the {size(limit)}"
    return [f"{told} from which on DDP sends another broadcast of the same dtype"]


def _percent(share: float) -> str:
    if share >= 0.1:
        return f"{share:.0%}"
    return f"{100 * share:.2g} %" if share >= 1e-5 else "less than 0.001 %"


def _authority(source: Source, forwards: list[Row]) -> list[str]:
    """Who, in each process group: a forward's row counts ranks within it."""
    groups = {
        (rank, note.module): tuple(note.values.get("ranks", ()))
        for rank in source.ranks
        for note in source.notes(Configuration, rank=rank)
    }
    found: dict[tuple[int, ...], set[int]] = {}
    for row in forwards:
        if (chosen := row["authoritative_rank"]) >= 0:
            found.setdefault(groups.get((row["rank"], row["module"]), ()), set()).add(chosen)
    if not found:
        return []
    last = any(chosen > 0 for ranks in found.values() for chosen in ranks)
    joined = ", under Join the highest that has not joined" if last else ""
    if len(found) == 1:
        ((group, ranks),) = found.items()
        told = _global(group, ranks)
        are = "ranks {} are authoritative" if len(ranks) > 1 else "rank {} is authoritative"
        return [f"{are.format(told)}{joined}: its buffers overwrote those of all others"]
    each = [
        f"rank {_global(group, ranks)} among {', '.join(map(str, group)) or 'all'}"
        for group, ranks in sorted(found.items())
    ]
    return [f"in its process group each is authoritative{joined}: {names(each)}"]


def _global(group: tuple[int, ...], ranks: set[int]) -> str:
    return names([str(group[rank] if rank < len(group) else rank) for rank in sorted(ranks)])


def _reassigned(forwards: list[Row]) -> list[str]:
    found = list(dict.fromkeys(name for row in forwards for name in row["reassigned"]))
    if not found:
        return []
    return [f"reassigned, so other tensor objects than at the sync before: {names(found)}"]


def _values(source: Source, step: int, forwards: list[Row]) -> list[str]:
    """Drift, from the last fingerprints up to the step."""
    if all(row["has_buffers"] == 0 for row in forwards):
        return []
    recent = sampled(source, _SAMPLES, step)
    if not recent.steps:
        return [f"whether buffers drift is not known: {HOW_TO}"]
    told = []
    table = as_rows(buffer_values(recent))
    if any(row["hook"] in ("pre_forward", "post_forward") for row in forwards):
        told.append("what a buffer hook does to the values is done after the backward only")
    elif table:
        last = table[-1]["step"], table[-1]["iteration"]
        rows = [row for row in table if (row["step"], row["iteration"]) == last]
        told += _drift(rows, last[0]) + _for_nothing(rows)
    ends = [row for row in as_rows(replicas(recent)) if row["what"] == "buffers"]
    if ends and ends[-1]["names"]:
        ranks = names([str(rank) for rank in ends[-1]["different_ranks"]])
        told.append(
            f"after step {ends[-1]['step']} state_dict() differs on rank {ranks}: "
            f"{names(list(ends[-1]['names']), 4)}"
        )
    return told


def _drift(rows: list[Row], step: int) -> list[str]:
    if all(row["differed"] is None for row in rows):
        alone = len({row["rank"] for row in rows}) < 2
        why = "one rank alone was recorded" if alone else "there are no fingerprints from before it"
        return [
            f"whether ranks had the same buffers before the sync in step {step} is not known: {why}"
        ]
    differed = _once(row for row in rows if row["differed"] is True)
    if not differed:
        return [f"before the sync in step {step} all ranks had the same buffers"]
    named = names([name for _, name in differed], 4)
    told = f"before the sync in step {step} {count(len(differed), 'buffer')} differed: {named}"
    known = [
        row
        for row in rows
        if (row["module"], row["name"]) in differed and not math.isnan(row["drift"])
    ]
    if known:
        most = max(known, key=lambda row: abs(row["drift"]))
        of = most["module"], most["name"]
        by_rank = {row["rank"]: row for row in known if (row["module"], row["name"]) == of}
        shown = sorted(sorted(by_rank, key=lambda r: -abs(by_rank[r]["drift"]))[:_MOST_RANKS])
        said = _digits([*(by_rank[rank]["norm_before"] for rank in shown), most["norm_after"]])
        norms = ", ".join(f"{text} on rank {rank}" for text, rank in zip(said, shown, strict=False))
        more = f" and {len(by_rank) - len(shown)} more" if len(by_rank) > len(shown) else ""
        told += (
            f"; furthest had drifted {most['name']}, its norm {norms}{more}, and "
            f"{said[-1]} after the sync"
        )
    return [told]


def _digits(norms: list[float]) -> list[str]:
    """As many digits as tell those apart that differ."""
    told: list[str] = []
    for digits in range(4, 17):
        told = [f"{norm:.{digits}g}" for norm in norms]
        if len(set(told)) == len(set(norms)):
            break
    return told


def _once(rows: Iterable[Row]) -> list[tuple[int, str]]:
    """Module and name of the tensors, each once."""
    return list(dict.fromkeys((row["module"], row["name"]) for row in rows))


def _for_nothing(rows: list[Row]) -> list[str]:
    """Buffers that were sent again and again with the same bytes, and changed nothing anywhere."""
    found: dict[tuple[int, str], int] = {}
    for row in rows:
        times: int = row["unchanged"] or 0
        key = row["module"], row["name"]
        found[key] = min(found.get(key, times), times)
    sent = [name for (_, name), times in found.items() if times]
    if not sent:
        return []
    least = min(times for times in found.values() if times)
    many = count(least, "sampled sync")
    at_least = "at least " if len(set(found.values()) - {0}) > 1 else ""
    return [f"sent for nothing, unchanged since {at_least}{many}: {names(sent, 4)}"]
