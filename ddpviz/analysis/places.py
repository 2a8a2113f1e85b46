"""Which process groups of different ranks are the same group."""

from __future__ import annotations

import dataclasses

import numpy as np

from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import SHARED_ID, segments
from ddpviz.events import Group, Kind, Process

_Instance = tuple[int, int]  # rank, group id of that rank


@dataclasses.dataclass(frozen=True)
class Places:
    """A *cluster* is one process group as all its ranks name it.

    ``cluster``: int32 (highest rank + 1, 256), cluster of a rank's group id, -1 if not described
    or an id that several groups share. ``sizes``: ranks in the group; ``all_recorded``: whether
    each of them is in the recording; ``one_host``: whether those that are ran on one host, as far
    as is known; ``members``: bool (clusters, recorded ranks), ranks whose own description of the
    group is there. One row of padding keeps position -1 valid.
    """

    cluster: np.ndarray
    sizes: np.ndarray
    all_recorded: np.ndarray
    one_host: np.ndarray
    members: np.ndarray

    def keys(self, calls: np.ndarray) -> np.ndarray:
        """One int64 per call, equal on all ranks of the same collective; -1 where unmatchable."""
        cluster = self.cluster[calls["rank"], calls["group"]].astype(np.int64)
        return np.where(cluster >= 0, (cluster << 48) | calls["sequence"].astype(np.uint32), -1)

    def clusters_of(self, keys: np.ndarray) -> np.ndarray:
        """The cluster of each key; -1 where there is none."""
        return keys >> 48


def places(source: Source) -> Places:
    """Matches the groups of all ranks by name and members.

    A name that a rank uses more than once (a group made again after a restart) is told apart by
    time: ranks of one group use it at overlapping times.
    """
    named: dict[tuple[str, tuple[int, ...]], list[_Instance]] = {}
    ranks = source.ranks
    for rank in ranks:
        for group in source.notes(Group, rank=rank):
            found = named.setdefault((group.name, group.ranks), [])
            if group.id < SHARED_ID and (rank, group.id) not in found:
                found.append((rank, group.id))
    spans: dict[_Instance, tuple[int, int]] | None = None
    cluster = np.full((max(ranks, default=-1) + 1, 256), -1, np.int32)
    groups: list[tuple[int, ...]] = []
    describing: list[list[int]] = []
    for (_, group_ranks), instances in named.items():
        if len({rank for rank, _ in instances}) == len(instances):
            together = [instances]
        else:
            spans = _spans(source) if spans is None else spans
            together = _by_time(instances, spans)
        for same in together:
            for rank, group_id in same:
                cluster[rank, group_id] = len(groups)
            groups.append(group_ranks)
            describing.append([rank for rank, _ in same])
    return Places(
        cluster,
        np.array([*(len(group) for group in groups), 0], np.int64),
        np.array([*(set(group) <= set(ranks) for group in groups), False], bool),
        _one_host(source, groups),
        np.array([np.isin(ranks, there) for there in [*describing, []]], bool),
    )


def _one_host(source: Source, groups: list[tuple[int, ...]]) -> np.ndarray:
    """A rank that began again elsewhere counts with all its hosts."""
    hosts: dict[int, set[str]] = {}
    for process in source.notes(Process):
        hosts.setdefault(process.rank, set()).add(process.hostname)
    several = [len(set().union(*(hosts.get(rank, set()) for rank in g))) > 1 for g in groups]
    return ~np.array([*several, False], bool)


def _spans(source: Source) -> dict[_Instance, tuple[int, int]]:
    """First and last time at which each rank used each of its groups."""
    records = source.records(kinds=(Kind.COLLECTIVE_LAUNCHED, Kind.COLLECTIVE_DONE))
    keys = (records["rank"].astype(np.int64) << 8) | records["group"]
    order = np.argsort(keys, kind="stable")
    unique, first, _ = segments(keys[order])
    if not len(unique):
        return {}
    begins = np.minimum.reduceat(records["begin_ns"][order], first)
    ends = np.maximum.reduceat(np.maximum(records["begin_ns"], records["end_ns"])[order], first)
    return {
        (key >> 8, key & 0xFF): (begin, end)
        for key, begin, end in zip(unique.tolist(), begins.tolist(), ends.tolist(), strict=True)
    }


def _by_time(
    instances: list[_Instance], spans: dict[_Instance, tuple[int, int]]
) -> list[list[_Instance]]:
    together: list[list[_Instance]] = []
    until_ns = 0
    for instance in sorted((i for i in instances if i in spans), key=lambda i: spans[i]):
        begin_ns, end_ns = spans[instance]
        taken = together and any(rank == instance[0] for rank, _ in together[-1])
        if not together or taken or begin_ns > until_ns:
            together.append([])
            until_ns = 0
        together[-1].append(instance)
        until_ns = max(until_ns, end_ns)
    return together
