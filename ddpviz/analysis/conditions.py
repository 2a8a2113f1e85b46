"""Why a forward synchronized the module's buffers, or did not: the four conditions and the rest.

DDP does so where the module has buffers, the switch is on (``forward_sync_buffers``), and a sync
is due: ``require_forward_param_sync`` was left True by the forward before, which it is by one with
gradients and not in ``no_sync``. A hook registered by ``_register_buffer_comm_hook`` takes the
place of the broadcast, before or after the module (``DDP._check_sync_bufs_pre_fwd``, ``_post_fwd``
and ``will_sync_module_buffers``; torch 2.6 to 2.13).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpviz.analysis.configurations import configured, sync_flag
from ddpviz.analysis.source import Source, whole_of
from ddpviz.analysis.tables import SHARED_ID, find, pick, run_keys
from ddpviz.events import Buffers, Cause, Flag, Kind, Module

#: The columns, and their dtypes.
CONDITIONS = {
    "has_buffers": "boolean",
    "sync_on": "boolean",
    "sync_due": "boolean",
    "hook": "str",
    "why": "str",
    "authoritative_rank": "Int64",
    "of_threshold": "float64",
    "reassigned": "object",
}
_UNKNOWN = "not known: this was recorded without what decides about it"


def conditions(
    source: Source, forward: np.ndarray, fired: np.ndarray, sent_bytes: np.ndarray
) -> dict[str, Any]:
    """The columns of :data:`CONDITIONS` for FORWARD records. Of each: whether it synchronized, and
    what it broadcast.

    ``has_buffers``, ``sync_on``, ``sync_due``: <NA> where unknown; ``hook``: "none", "pre_forward"
    or "post_forward", "" where unknown; ``why``: a sentence. ``authoritative_rank``: whose buffers
    all got, as ranks of the group count: 0, under Join the highest that has not joined; <NA> where
    nothing fired or a hook did it. ``of_threshold``: all buffers' bytes ÷ the size from which on
    DDP begins another broadcast (250 MiB, of one dtype and device); NaN where unknown.
    ``reassigned``: names of buffers that are other tensor objects than at the sync before.
    """
    count = len(forward)
    has, on, due = (np.full(count, -1, np.int8) for _ in range(3))
    hook, module_name, flag = (np.full(count, "", object) for _ in range(3))
    share, python = np.full(count, np.nan), np.zeros(count, bool)
    ranks, modules = forward["rank"].astype(np.int64), forward["module"].astype(np.int64)
    owners = (ranks << 8) | modules
    for owner in np.unique(owners).tolist():
        rank, module = owner >> 8, owner & 0xFF
        if module >= SHARED_ID:
            continue
        rows = np.flatnonzero(owners == owner)
        described = [note for note in source.notes(Module, rank=rank) if note.id == module]
        values, at = configured(source, rank).positions(module, forward["begin_ns"][rows])
        on[rows] = np.array([_truth(one.get(sync_flag(one))) for one in values], np.int8)[at]
        python[rows] = np.array([bool(one.get("python_reducer")) for one in values])[at]
        hook[rows] = np.array([one.get("buffer_hook", "") for one in values], object)[at]
        flag[rows] = np.array([sync_flag(one) for one in values], object)[at]
        threshold = np.array([one.get("broadcast_bucket_size", 0) for one in values], float)[at]
        if described:
            known = sum(buffer.bytes for buffer in described[-1].buffers)
            nbytes = np.where(sent_bytes[rows] > 0, sent_bytes[rows], known).astype(float)
            has[rows] = bool(described[-1].buffers)
            module_name[rows] = described[-1].name
            share[rows] = np.divide(
                nbytes, threshold, out=np.full(len(rows), np.nan), where=threshold > 0
            )
        due[rows] = (forward["flags"][rows] & Flag.SYNC_DUE) != 0
    due[(hook == "") & ~fired] = -1  # a recording from before the flag was written
    for decided in (has, on, due):
        decided[fired] = 1
    return {
        "has_buffers": has,
        "sync_on": on,
        "sync_due": due,
        "hook": hook,
        "why": _why(source, forward, fired, python, has, on, due, hook, module_name, flag),
        "authoritative_rank": _authoritative_ranks(source, forward, fired & (hook == "none")),
        "of_threshold": share,
        "reassigned": _reassigned(source, forward),
    }


def _truth(value: Any) -> int:
    return -1 if value is None else int(bool(value))


def _why(
    source: Source,
    forward: np.ndarray,
    fired: np.ndarray,
    python: np.ndarray,
    has: np.ndarray,
    on: np.ndarray,
    due: np.ndarray,
    hook: np.ndarray,
    module: np.ndarray,
    flag: np.ndarray,
) -> np.ndarray:
    where = np.where(hook == "post_forward", "after", "before").astype(object)
    hooked = (hook == "pre_forward") | (hook == "post_forward")
    return np.select(
        [fired & hooked, fired, has == 0, python, on == 0, due == 0, due == 1],
        [
            "it fired, and a buffer hook took the place of the broadcast, " + where + " the module",
            "it fired: " + module + " has buffers, " + flag + " is on, and a sync was due",
            module + " has no buffers",
            "python_reducer reduces, and DDP does nothing of its own before such a forward",
            flag + " is off",
            "none was due: " + _before(source, forward, due == 0),
            "all conditions held, and yet it was not seen",
        ],
        _UNKNOWN,
    )


def _before(source: Source, forward: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """What the forward before did, of those that are asked for."""
    wanted = run_keys(forward) - 1
    flags = _flags_of(forward, wanted)
    unknown = asked & (flags < 0)
    if unknown.any():  # it was in the step before, or between the two
        steps = {-1, *(forward["step"][unknown].astype(np.int64) - 1).tolist()}
        earlier = whole_of(source).records(kinds=Kind.FORWARD, steps=sorted(steps))
        flags[unknown] = _flags_of(earlier, wanted[unknown])
    flags = np.maximum(flags, 0)
    return np.select(
        [(flags & Flag.NO_GRAD) != 0, (flags & Flag.NO_SYNC) != 0],
        [
            np.full(len(forward), "the forward before it was without gradients", object),
            np.full(len(forward), "the forward before it was in no_sync", object),
        ],
        "the forward before it was without gradients, or in no_sync",
    )


def _flags_of(forward: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Flags of the forwards of these runs, -1 of those that are not there."""
    keys = run_keys(forward)
    order = np.lexsort((forward["begin_ns"], keys))
    return pick(forward["flags"][order].astype(np.int64), find(keys[order], wanted), -1)


def _authoritative_ranks(source: Source, forward: np.ndarray, sent: np.ndarray) -> np.ndarray:
    found = np.where(sent, 0, -1)
    chosen = source.records(kinds=Kind.COMMON_RANK)
    chosen = chosen[chosen["cause"] == Cause.BUFFERS]
    chosen = chosen[np.argsort(run_keys(chosen), kind="stable")]
    # A rank that has joined chooses again and again in its last iteration: the first is the one.
    keys, first = np.unique(run_keys(chosen), return_index=True)
    at = find(keys, run_keys(forward))
    return np.where(sent & (at >= 0), pick(chosen["index"][first], at, -1), found)


def _reassigned(source: Source, forward: np.ndarray) -> np.ndarray:
    names = np.empty(len(forward), object)
    names[:] = [()] * len(forward)
    ranks = np.unique(forward["rank"]).tolist()
    notes = {
        (rank, note.module, note.iteration): note.reassigned
        for rank in ranks
        for note in source.notes(Buffers, rank=rank)
        if note.module < SHARED_ID
    }
    if notes:
        columns = (forward[name].tolist() for name in ("rank", "module", "iteration"))
        for row, key in enumerate(zip(*columns, strict=True)):
            names[row] = notes.get(key, ())
    return names
