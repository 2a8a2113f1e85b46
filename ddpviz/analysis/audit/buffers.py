"""Buffers: what their broadcast overwrites, what it sends for nothing, what a checkpoint lacks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddpviz.analysis.audit.case import Case, listed, on, times
from ddpviz.analysis.audit.findings import Finding, Severity
from ddpviz.analysis.audit.moments import looked_at
from ddpviz.analysis.buffer_values import buffer_values
from ddpviz.analysis.configurations import sync_flag
from ddpviz.analysis.units import format_bytes
from ddpviz.events import Flag, Kind, StateRead

#: Of BatchNorm: each rank's own statistics drift between two syncs, and that is meant to be.
_DRIFTING = ("running_mean", "running_var", "num_batches_tracked")
#: Sampled syncs that must have left a buffer as it was, and the bytes that are worth a word.
_SYNCS, _WORTH_BYTES = 3, 256 * 1024


def _drifts(name: str) -> bool:
    return name.rpartition(".")[2] in _DRIFTING


def overwritten(case: Case) -> Iterator[Finding]:
    """What a rank had put into a buffer of its own is lost in the next forward."""
    table = buffer_values(case.source)
    lost = table[(table["differed"] == True) & (table["overwritten"] == True)]  # noqa: E712
    lost = lost[np.array([not _drifts(name) for name in lost["name"]], bool)]
    for module, rows in lost.groupby("module"):
        first = rows.sort_values("step").iloc[0]
        names, ranks = tuple(dict.fromkeys(rows["name"])), tuple(sorted(set(rows["rank"])))
        since = int(first["step"])
        yield Finding(
            "buffers-overwritten",
            Severity.WRONG_NUMBERS,
            f"{listed(names)}{case.of(int(module))} differed by rank, and the sync of buffers "
            f"overwrote what {on(ranks)} had",
            since,
            ranks,
            names,
            f"fingerprints before and after the sync differ in "
            f"{times(len(set(rows['step'])), 'sampled step')}"
            f"{looked_at(case, int(module), since, 'buffers before')}",
            "state that each rank updates from its own data (a queue, a counter, a moving average) "
            "is a buffer, and DDP sends rank 0's before each forward",
            "reduce it yourself, or keep it out of the buffers, or pass "
            "forward_sync_buffers=False (broadcast_buffers=False before torch 2.13)",
            "likely",
            "buffers",
            since,
            int(module),
        )


def constant(case: Case) -> Iterator[Finding]:
    """Buffers that never change are sent before every forward."""
    table = buffer_values(case.source)
    table = table[table["unchanged"].notna()]
    for module, rows in table.groupby("module"):
        notes = case.modules.get(int(module), {})
        if not notes:
            continue
        sizes = {one.name: one.bytes for one in next(iter(notes.values())).buffers}
        changed = set(rows["name"][(rows["overwritten"] == True)])  # noqa: E712
        same = rows.groupby("name")["unchanged"].max()
        names = tuple(name for name in sizes if same.get(name, 0) >= _SYNCS and name not in changed)
        nbytes = sum(sizes[name] for name in names)
        if nbytes < _WORTH_BYTES:
            continue
        since, many = int(rows["step"].min()), int(same[list(names)].min()) + 1
        yield Finding(
            "buffers-constant",
            Severity.SLOW,
            f"{format_bytes(nbytes)} of buffers{case.of(int(module))} that never change are sent "
            f"before every forward: {listed(names)}",
            since,
            tuple(sorted(notes)),
            names,
            f"their bytes were the same in {times(many, 'sampled sync')}; "
            f"all buffers have {format_bytes(sum(sizes.values()))}",
            "a table (positions, a mask) is registered as a buffer, and DDP sends all buffers",
            "keep constants as plain attributes, name them to "
            "DDP._set_params_and_buffers_to_ignore_for_model, or switch the sync off",
            "certain",
            "buffers",
            since,
            int(module),
        )


def stale_checkpoint(case: Case) -> Iterator[Finding]:
    """Another rank than 0 was asked for its state while its buffers were its own."""
    reads = case.notes(StateRead)
    by_rank_0 = {(note.module, note.step) for rank, note in reads if rank == 0}
    forward = case.source.records(kinds=Kind.FORWARD)
    told = set()
    for rank, note in reads:
        if rank == 0 or (note.module, note.step) in by_rank_0 or (rank, note.module) in told:
            continue
        names = _stale(case, rank, note, forward)
        if not names or 0 not in case.ranks:
            continue
        told.add((rank, note.module))
        yield Finding(
            "stale-buffers",
            Severity.WRONG_NUMBERS,
            f"state_dict(){case.of(note.module)} was taken on rank {rank} alone, whose buffers are "
            f"its own since the last forward: {listed(names)}",
            note.step,
            (rank,),
            names,
            "the last forward before it trained, and DDP makes buffers equal only before the next "
            "one; rank 0, whose buffers count, was not asked",
            "a checkpoint that is saved by another rank than 0",
            "save on rank 0",
            "likely",
            "buffers",
            note.step,
            note.module,
        )


def _stale(case: Case, rank: int, note: StateRead, forward: np.ndarray) -> tuple[str, ...]:
    mine = forward[(forward["rank"] == rank) & (forward["module"] == note.module)]
    mine = mine[mine["begin_ns"] <= note.time_ns]
    values = case.configuration(rank, note.module, note.time_ns)
    if not len(mine) or not values.get(sync_flag(values), True):
        return ()
    if mine[np.argmax(mine["begin_ns"])]["flags"] & Flag.NO_GRAD:
        return ()
    module = case.modules.get(note.module, {}).get(rank)
    return () if module is None else tuple(b.name for b in module.buffers if _drifts(b.name))
