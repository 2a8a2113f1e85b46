"""Collectives as calls: launch and completion in one record, with the last rank to arrive."""

from __future__ import annotations

import dataclasses
import enum

import numpy as np

from ddpviz.analysis.ends import WAITED_IN, bounded
from ddpviz.analysis.naming import label_texts
from ddpviz.analysis.places import places
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import SHARED_ID, find, listed, pick, segments, stacked
from ddpviz.events import Cause, Clock, Flag, Kind


def calls(source: Source, step: int | None = None) -> np.ndarray:
    """One RECORD per collective of a rank: ``begin_ns`` its launch, ``end_ns`` its completion.

    With times of a device both are its stream's. ``end_ns`` is 0 where it never completed: the
    launch alone was recorded, or it failed. Where the training thread is known to have had it
    before its completion was recorded, it is that moment, and ``flags`` has DERIVED
    (:func:`ddpviz.analysis.ends.bounded`). In the order of rank and launch.
    """
    steps = listed(step)
    done = source.records(kinds=Kind.COLLECTIVE_DONE, steps=steps)
    launched = source.records(kinds=Kind.COLLECTIVE_LAUNCHED, steps=steps).copy()
    launched["end_ns"] = 0
    on_device = done[done["clock"] == Clock.CUDA]
    if len(on_device):  # its launch there is when the stream came to it, not when the host did
        launched = launched[~np.isin(_call_keys(launched), _call_keys(on_device))]
    both = stacked(done, launched)  # a completion repeats its launch: it comes first
    both["end_ns"][(both["flags"] & Flag.FAILED) != 0] = 0
    # Group and number alone would make one call of those of several groups that share an id.
    keys, begin_ns = _call_keys(both), both["begin_ns"]
    order = np.lexsort((begin_ns, keys))
    keys, begin_ns = keys[order], begin_ns[order]
    first = np.ones(len(order), bool)
    first[1:] = (keys[1:] != keys[:-1]) | (begin_ns[1:] != begin_ns[:-1])
    found = bounded(source, both[order[first]], source.records(kinds=tuple(WAITED_IN), steps=steps))
    in_order: np.ndarray = found[np.lexsort((found["sequence"], found["begin_ns"], found["rank"]))]
    return in_order


def of_buckets(records: np.ndarray) -> np.ndarray:
    """The calls that reduce a bucket whose launch order is known."""
    found: np.ndarray = records[(records["cause"] == Cause.BUCKET) & (records["index"] >= 0)]
    return found


def _call_keys(records: np.ndarray) -> np.ndarray:
    rank, group = records["rank"].astype(np.int64), records["group"].astype(np.int64)
    keys: np.ndarray = (rank << 40) | (group << 32) | records["sequence"].astype(np.uint32)
    return keys


class Unsplit(enum.IntEnum):
    """Why waiting for a rank and transfer cannot be told apart; 0 where they can."""

    SPLIT = 0
    UNMATCHED = 1
    SHARED = 2
    HOSTS = 3
    ENQUEUED = 4


#: The same in words, by number.
UNSPLIT = np.array(
    [
        "",
        "not every rank is known to have launched it",
        "its process group shares its id with others",
        "the ranks' hosts have no common clock",
        "on CUDA the host only enqueues it, so host clocks do not see when it runs",
    ],
    object,
)


@dataclasses.dataclass(frozen=True)
class Arrivals:
    """Per call, when the last rank of its group launched it, and which one that was.

    ``last_launched_ns``: 0 unless every rank of the group is known to have launched it (matched by
    group, sequence and kind of collective) on the same host. ``last_rank``: -1 where unknown; for
    a call that never completed, the lowest rank that has not launched it. ``clipped``: the last
    launch was recorded after this rank's completion, so it was cut there (the sender of a
    broadcast need not wait, and clocks can be apart). ``unsplit``: an :class:`Unsplit`.
    """

    last_launched_ns: np.ndarray
    last_rank: np.ndarray
    clipped: np.ndarray
    unsplit: np.ndarray

    def take(self, positions: np.ndarray) -> Arrivals:
        """The arrivals of some of the calls."""
        return Arrivals(*(getattr(self, f.name)[positions] for f in dataclasses.fields(self)))


def arrivals(source: Source, asked: np.ndarray, pool: np.ndarray, whole: bool) -> Arrivals:
    """Who arrived last at each call of ``asked``.

    ``pool``: calls of all ranks to match with; where it does not do and is not the ``whole``
    recording, that is read (ranks may count their steps differently).
    """
    found, complete = _match(source, asked, pool)
    if not whole and not complete.all():
        found, _ = _match(source, asked, calls(source))
    return found


def _match(source: Source, asked: np.ndarray, pool: np.ndarray) -> tuple[Arrivals, np.ndarray]:
    """Arrivals, and whether more calls could not change them."""
    place = places(source)
    codes: dict[str, int] = {"": 0}
    keys, code = place.keys(pool), _operations(source, pool, codes)
    order = np.lexsort((pool["begin_ns"], keys))
    order = order[keys[order] >= 0]
    matched = pool[order]
    unique, first, last = segments(keys[order])
    wanted = place.keys(asked)
    at = find(unique, wanted)

    same = (last - first + 1) == place.sizes[place.clusters_of(unique)]
    if len(unique):
        # An operation whose label was lost (0) may be any.
        highest = np.maximum.reduceat(code[order], first)
        lowest = np.minimum.reduceat(np.where(code == 0, len(codes), code)[order], first)
        same &= (highest == 0) | (highest == lowest)
    complete = pick(same, at, False)
    one_host = place.one_host[place.clusters_of(wanted)]
    enqueued = (asked["flags"] & Flag.ENQUEUED) != 0
    comparable = complete & one_host
    last_ns = np.where(comparable, pick(matched["begin_ns"][last], at, 0), 0)
    last_rank = np.where(comparable, pick(matched["rank"][last].astype(np.int64), at, -1), -1)
    clipped = comparable & ~enqueued & (asked["end_ns"] > 0) & (last_ns > asked["end_ns"])
    last_ns = np.where(clipped, asked["end_ns"], last_ns)
    unsplit = np.select(
        [enqueued, asked["group"] >= SHARED_ID, ~complete, ~one_host],
        [Unsplit.ENQUEUED, Unsplit.SHARED, Unsplit.UNMATCHED, Unsplit.HOSTS],
        Unsplit.SPLIT,
    )

    unsettled = ~complete & (wanted >= 0) & place.all_recorded[place.clusters_of(wanted)]
    hanging = unsettled & (asked["end_ns"] == 0)
    if hanging.any():
        exact = wanted[hanging] | (_operations(source, asked[hanging], codes) << 32)
        last_rank[hanging] = _absent(source, place.members, exact, keys | (code << 32), pool)
    return Arrivals(last_ns, last_rank, clipped, unsplit), ~unsettled


def _absent(
    source: Source, members: np.ndarray, wanted: np.ndarray, keys: np.ndarray, pool: np.ndarray
) -> np.ndarray:
    """The lowest recorded rank of the group that has not launched the wanted call; -1 if none.

    ``wanted``, ``keys``: with the operation in bits 32 to 47.
    """
    unique, inverse = np.unique(wanted, return_inverse=True)
    of_any_operation = unique & ~(0xFFFF << 32)
    found = np.full(len(unique), -1, np.int64)
    for position, rank in reversed(list(enumerate(source.ranks))):
        here = keys[pool["rank"] == rank]
        present = np.isin(unique, here) | np.isin(of_any_operation, here)
        found[members[unique >> 48, position] & ~present] = rank
    return found[inverse]


def _operations(source: Source, calls: np.ndarray, codes: dict[str, int]) -> np.ndarray:
    """A number per call that is the same on all ranks for the same operation and dtype.

    ``codes``: by text, new ones are added.
    """
    texts, position = label_texts(source, calls)
    return np.array([codes.setdefault(text, len(codes)) for text in texts], np.int64)[position]
