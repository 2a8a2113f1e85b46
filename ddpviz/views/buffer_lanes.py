"""The conditions of the buffers' sync over the last steps, a lane each. No Bokeh."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from ddpviz.analysis.fingerprints import moments
from ddpviz.analysis.source import Source
from ddpviz.views.columns import Row
from ddpviz.views.lane_canvas import Lane, Stack, bar
from ddpviz.views.live_steps import Bins
from ddpviz.views.sampled import sampled
from ddpviz.views.text import names

#: How many of a step's forwards a condition holds in.
UNKNOWN, NONE, SOME, ALL = range(4)
_KINDS = {NONE: "fails", SOME: "some", ALL: "holds"}
_IN = {NONE: "in no forward", SOME: "in some forwards", ALL: "in every forward"}
#: Column → lane, and what it says.
_CONDITIONS = {
    "has_buffers": ("has buffers", "the module has buffers"),
    "sync_on": ("switch on", "the sync of buffers is switched on"),
    "sync_due": ("sync due", "a sync is due: the forward before had gradients, and no no_sync"),
    "no hook": ("no hook", "no buffer hook takes the broadcast's place"),
}


def add_lanes(
    stack: Stack, history: pd.DataFrame, source: Source, steps: np.ndarray, bins: Bins
) -> list[Row]:
    """Adds the lanes to ``stack``, and returns their bars. ``history``: forwards of the steps;
    ``bins``: which of the steps share a place.

    A condition of which nothing is known has no lane.
    """
    history = history[np.isin(history["step"].to_numpy(), steps)]
    of_step = bins.of(history["step"].to_numpy(np.int64))
    fired = _states(history["fired"].to_numpy(np.int8), of_step, len(bins.first))
    found = _runs(
        stack.add("fired"),
        bins,
        fired,
        {ALL: "buffers", SOME: "some", NONE: "fails"},
        _saying("buffers were synchronized"),
        _reasons(history, of_step, np.ones(len(history), bool)),
    )
    for column, (name, what) in _CONDITIONS.items():
        values = _truths(history, column)
        states = _states(values, of_step, len(bins.first))
        if (states > UNKNOWN).any():
            why = _reasons(history, of_step, values == 0)
            found += _runs(stack.add(name), bins, states, _KINDS, _saying(what), why)
    return found + _values(stack, history, source, steps, bins)


def _saying(what: str) -> Callable[[int], str]:
    return lambda state: f"{what}: {_IN[state]}"


def _equality(state: int) -> str:
    told = {
        ALL: "equal on all ranks",
        SOME: "equal on all ranks in some forwards, and different in others: they drifted",
        NONE: "different between ranks: they drifted",
    }
    return f"before the sync buffers were {told[state]}"


def _truths(history: pd.DataFrame, column: str) -> np.ndarray:
    """1, 0, or -1 where it is not known."""
    if column != "no hook":
        known: np.ndarray = history[column].to_numpy(np.int8, na_value=-1)
        return known
    hook = history["hook"].to_numpy()
    return np.where(hook == "", -1, np.where(hook == "none", 1, 0)).astype(np.int8)


def _states(values: np.ndarray, of_step: np.ndarray, steps: int) -> np.ndarray:
    """By step in how many of its forwards it holds."""
    holds = np.bincount(of_step[values == 1], minlength=steps) > 0
    fails = np.bincount(of_step[values == 0], minlength=steps) > 0
    return np.select([holds & fails, holds, fails], [SOME, ALL, NONE], UNKNOWN)


def _reasons(history: pd.DataFrame, of_step: np.ndarray, chosen: np.ndarray) -> dict[int, str]:
    """By position of a step the reason of its last forward that is chosen."""
    why = history["why"].to_numpy(object)
    return dict(zip(of_step[chosen].tolist(), why[chosen].tolist(), strict=True))


def _values(
    stack: Stack, history: pd.DataFrame, source: Source, steps: np.ndarray, bins: Bins
) -> list[Row]:
    """Lanes of what the buffers held: only where that is known."""
    found: list[Row] = []
    of_step = bins.of(history["step"].to_numpy(np.int64))
    equal = np.full(len(bins.first), UNKNOWN)
    for moment in moments(sampled(source, len(steps)), "buffers before"):
        if moment.step in steps and len(moment.ranks) > 1:
            at = int(bins.of(np.array([moment.step]))[0])
            same = len({note.hashes for note in moment.ranks.values()}) == 1
            now = ALL if same else NONE
            equal[at] = now if equal[at] in (UNKNOWN, now) else SOME
    if (equal > UNKNOWN).any():
        kinds = {ALL: "holds", SOME: "drift", NONE: "drift"}
        found += _runs(stack.add("equal before"), bins, equal, kinds, _equality, {})
    reassigned = history["reassigned"].to_numpy(object)
    values = np.array([0 if tensors else 1 for tensors in reassigned], np.int8)
    if (values == 0).any():
        told = {
            int(at): names(list(tensors))
            for at, tensors in zip(of_step, reassigned, strict=True)
            if tensors
        }
        states = _states(values, of_step, len(bins.first))
        says = _saying("every buffer is the tensor that it was at the sync before")
        found += _runs(stack.add("same tensors"), bins, states, _KINDS, says, told)
    return found


def _runs(
    lane: Lane,
    bins: Bins,
    states: np.ndarray,
    kinds: dict[int, str],
    head: Callable[[int], str],
    details: dict[int, str],
) -> list[Row]:
    """A bar for each run of neighbours with the same state."""
    many = len(bins.first)
    keys = (
        states.astype(np.int64) << 32
        | np.unique(
            np.array([details.get(at, "") for at in range(many)], str), return_inverse=True
        )[1]
    )
    apart = bins.first[1:] != bins.last[:-1] + 1
    breaks = np.flatnonzero((np.diff(keys) != 0) | apart) + 1
    found = []
    for begin, end in zip([0, *breaks.tolist()], [*breaks.tolist(), many], strict=True):
        state, first, last = int(states[begin]), int(bins.first[begin]), int(bins.last[end - 1])
        if state not in kinds:
            continue
        row = bar(
            lane,
            kinds[state],
            first - 0.45,
            last + 0.45,
            head=head(state),
            time=f"step {first}" if first == last else f"steps {first} to {last}",
            detail=details.get(begin, ""),
        )
        found.append({**row, "step": first})
    return found
