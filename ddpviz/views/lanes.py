"""Where things stand in the figure: lanes, top to bottom, in pixels; which ranks are open."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from ddpviz.events import Kind
from ddpviz.views.source import StepSource
from ddpviz.views.text import shortened, size

#: More ranks than this are folded, but for the slowest, the fastest and the median.
MOST_OPEN_RANKS = 8

#: Room above the first lane for a label of exposed communication, and below the last.
_MARGIN_PX = 24.0
#: Lanes shrink from the first to the second pitch to keep the figure within this height.
_PITCH_PX = (21.0, 14.0)
_WANTED_HEIGHT_PX = 500.0
#: Pitch of a folded rank: just enough for its label.
_FOLDED_PX = 14.0
#: Gap above an open rank: a label of exposed communication stands in it.
_GAP_PX = 20.0

#: Share of its pitch that a lane fills.
_FILL = 0.72

#: Causes of collectives that have a picture of their own and need no mark.
DRAWN_CAUSES = frozenset({"bucket", "buffers"})


@dataclasses.dataclass(frozen=True)
class Lane:
    """A horizontal strip: label, middle and half height of what fills it, in px from the top.

    ``bucket``: the launch order of the bucket that it is of, -1 for another lane.
    """

    label: str
    middle: float
    half: float
    bucket: int = -1

    @property
    def top(self) -> float:
        return self.middle - self.half

    @property
    def bottom(self) -> float:
        return self.middle + self.half


@dataclasses.dataclass(frozen=True)
class Lanes:
    """All lanes of a step. ``other`` only for open ranks with collectives of their own cause,
    ``host`` only for those whose other times are a device's.

    ``open_ranks``: rank → why it is open ("slowest", …, or "" where every rank is).
    """

    compute: dict[int, Lane]
    other: dict[int, Lane]
    buckets: dict[tuple[int, int, int], Lane]  # by (rank, module, bucket)
    open_ranks: dict[int, str]
    height_px: float
    host: dict[int, Lane] = dataclasses.field(default_factory=dict)

    @property
    def all(self) -> list[Lane]:
        """Every lane from top to bottom."""
        ranks = [*self.host.values(), *self.compute.values(), *self.other.values()]
        return sorted([*ranks, *self.buckets.values()], key=lambda lane: lane.middle)


def choose_open(source: StepSource, wanted: list[int] | None = None) -> dict[int, str]:
    """Ranks to open and why. ``wanted`` overrules the choice; unknown ranks in it are ignored.

    A rank is slow if its gradients are final late: the others wait for it there, so the length of
    its step would not tell.
    """
    ranks = source.ranks
    if wanted is not None:
        return {rank: "" for rank in ranks if rank in wanted}
    if len(ranks) <= MOST_OPEN_RANKS:
        return dict.fromkeys(ranks, "")
    in_order = [rank for _, rank in sorted((_ready_ns(source, rank), rank) for rank in ranks)]
    chosen = {in_order[-1]: "slowest", in_order[0]: "fastest"}
    chosen.setdefault(in_order[len(in_order) // 2], "median")
    return chosen


def _ready_ns(source: StepSource, rank: int) -> int:
    """When the rank's last gradient was final; without a finalize, when its last record began."""
    of_rank = source.records[source.records["rank"] == rank]
    finalize = of_rank[of_rank["kind"] == Kind.FINALIZE]
    return int((finalize if len(finalize) else of_rank)["begin_ns"].max())


def place(source: StepSource, open_ranks: dict[int, str]) -> Lanes:
    """Lanes of all ranks: the compute lane, other collectives, one lane per bucket."""
    others, hosts = _with_other(source), _with_host(source)
    open_lanes = {
        rank: [
            *(["host"] if rank in hosts else []),
            "compute",
            *(["other"] if rank in others else []),
        ]
        for rank in open_ranks
    }
    labels = _bucket_labels(source, open_ranks)
    pitch = _pitch(
        lanes=sum(len(open_lanes[rank]) + len(labels[rank]) for rank in open_ranks),
        taken_px=_GAP_PX * len(open_ranks) + _FOLDED_PX * (len(source.ranks) - len(open_ranks)),
    )
    compute: dict[int, Lane] = {}
    other: dict[int, Lane] = {}
    host: dict[int, Lane] = {}
    buckets: dict[tuple[int, int, int], Lane] = {}
    y = _MARGIN_PX - _GAP_PX
    previous_open = True
    for rank in source.ranks:
        if rank not in open_ranks:
            y += _GAP_PX if previous_open else 0.0
            compute[rank] = Lane(f"rank {rank}", y + _FOLDED_PX / 2, _FOLDED_PX * _FILL / 2)
            y += _FOLDED_PX
            previous_open = False
            continue
        y += _GAP_PX
        previous_open = True
        why = f" ({open_ranks[rank]})" if open_ranks[rank] else ""
        for what in open_lanes[rank]:
            middle, half = y + pitch / 2, pitch * _FILL / 2
            if what == "compute":
                compute[rank] = Lane(f"rank {rank}{why}  compute", middle, half)
            elif what == "host":
                host[rank] = Lane("host", middle, half)
            else:
                other[rank] = Lane("other collectives", middle, half)
            y += pitch
        for key, label in labels[rank].items():
            buckets[key] = Lane(label, y + pitch / 2, pitch * _FILL / 2, key[2])
            y += pitch
    return Lanes(compute, other, buckets, open_ranks, y + _MARGIN_PX / 3, host)


def _pitch(lanes: int, taken_px: float) -> float:
    """Height of one open lane in px, such that all lanes together have the wanted height."""
    largest, smallest = _PITCH_PX
    room = _WANTED_HEIGHT_PX - 2 * _MARGIN_PX - taken_px
    return min(largest, max(smallest, room / max(lanes, 1)))


def _with_host(source: StepSource) -> set[int]:
    """Ranks whose spans have a device's times: the host's are beside them."""
    return set(source.records["rank"][source.records["kind"] == Kind.HOST].tolist())


def _with_other(source: StepSource) -> set[int]:
    """Ranks with a rebuild, or collectives that have no picture of their own."""
    found = source.records["rank"][source.records["kind"] == Kind.REBUILD].tolist()
    table = source.collectives
    causes = zip(table["rank"].tolist(), table["cause"].tolist(), strict=True)
    return {*found, *(rank for rank, cause in causes if cause not in DRAWN_CAUSES)}


def _bucket_labels(
    source: StepSource, ranks: Collection[int]
) -> dict[int, dict[tuple[int, int, int], str]]:
    """Per rank the key of each bucket lane, in launch order per module, and its label."""
    largest: dict[tuple[int, int, int], int] = {}
    table = source.buckets
    fields = (table[name].tolist() for name in ("rank", "module", "bucket", "bytes"))
    for rank, module, bucket, size_bytes in zip(*fields, strict=True):
        key = (rank, module, bucket)
        largest[key] = max(largest.get(key, 0), size_bytes)
    modules: dict[int, list[int]] = {}
    for rank, module in sorted({(rank, module) for rank, module, _ in largest}):
        modules.setdefault(rank, []).append(module)
    labels: dict[int, dict[tuple[int, int, int], str]] = {rank: {} for rank in ranks}
    for key in sorted(largest):
        rank, module, bucket = key
        if rank in labels:
            prefix = _module_prefix(source, rank, module, modules[rank])
            known = f"  {size(largest[key])}" if largest[key] else ""
            labels[rank][key] = f"{prefix}bucket {bucket}{known}"
    return labels


def _module_prefix(source: StepSource, rank: int, module: int, modules: list[int]) -> str:
    """What tells the buckets of several modules apart: the name, numbered where names repeat."""
    if len(modules) == 1:
        return ""
    names = {
        other: source.modules[rank, other].name if (rank, other) in source.modules else "module"
        for other in modules
    }
    same = [other for other in modules if names[other] == names[module]]
    number = f" {same.index(module)}" if len(same) > 1 else ""
    return f"{shortened(names[module])}{number}  "
