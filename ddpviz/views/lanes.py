"""Where things stand in the figure: lanes, top to bottom, in pixels; which ranks are open."""

from __future__ import annotations

import dataclasses

import numpy as np

from ddpviz.events import Kind
from ddpviz.views.source import StepSource
from ddpviz.views.text import shortened, size

#: More ranks than this are folded, but for the slowest, the fastest and the median.
MOST_OPEN_RANKS = 8

#: Room above the first lane for a label of exposed communication, and below the last.
_MARGIN_PX = 24.0
#: Lanes shrink from the first to the second pitch to keep the figure within this height.
_PITCH_PX = (28.0, 14.0)
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
    """A horizontal strip: label, middle and half height of what fills it, in px from the top."""

    label: str
    middle: float
    half: float

    @property
    def top(self) -> float:
        return self.middle - self.half

    @property
    def bottom(self) -> float:
        return self.middle + self.half


@dataclasses.dataclass(frozen=True)
class Lanes:
    """All lanes of a step. ``other`` only for open ranks with collectives of their own cause.

    ``open_ranks``: rank → why it is open ("slowest", …, or "" where every rank is).
    """

    compute: dict[int, Lane]
    other: dict[int, Lane]
    buckets: dict[tuple[int, int, int], Lane]  # by (rank, module, bucket)
    open_ranks: dict[int, str]
    height_px: float

    @property
    def all(self) -> list[Lane]:
        """Every lane from top to bottom."""
        lanes = [*self.compute.values(), *self.other.values(), *self.buckets.values()]
        return sorted(lanes, key=lambda lane: lane.middle)


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
    open_lanes = {
        rank: ["compute", *(["other"] if _has_other(source, rank) else [])] for rank in open_ranks
    }
    labels = {rank: _bucket_labels(source, rank) for rank in open_ranks}
    pitch = _pitch(
        lanes=sum(len(open_lanes[rank]) + len(labels[rank]) for rank in open_ranks),
        taken_px=_GAP_PX * len(open_ranks) + _FOLDED_PX * (len(source.ranks) - len(open_ranks)),
    )
    compute: dict[int, Lane] = {}
    other: dict[int, Lane] = {}
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
            else:
                other[rank] = Lane("other collectives", middle, half)
            y += pitch
        for key, label in labels[rank].items():
            buckets[key] = Lane(label, y + pitch / 2, pitch * _FILL / 2)
            y += pitch
    return Lanes(compute, other, buckets, open_ranks, y + _MARGIN_PX / 3)


def _pitch(lanes: int, taken_px: float) -> float:
    """Height of one open lane in px, such that all lanes together have the wanted height."""
    largest, smallest = _PITCH_PX
    room = _WANTED_HEIGHT_PX - 2 * _MARGIN_PX - taken_px
    return min(largest, max(smallest, room / max(lanes, 1)))


def _has_other(source: StepSource, rank: int) -> bool:
    of_rank = source.records[source.records["rank"] == rank]
    if (of_rank["kind"] == Kind.REBUILD).any():
        return True
    table = source.collectives
    if table.empty:
        return False
    return bool(((table["rank"] == rank) & ~table["cause"].isin(DRAWN_CAUSES)).any())


def _bucket_labels(source: StepSource, rank: int) -> dict[tuple[int, int, int], str]:
    """Key of each bucket lane of a rank, in launch order per module, and its label."""
    table = source.buckets
    if table.empty:
        return {}
    of_rank = table[table["rank"] == rank]
    largest = of_rank.groupby(["module", "bucket"])["bytes"].max()
    modules = np.unique(of_rank["module"]).tolist()
    prefixes = {module: _module_prefix(source, rank, module, modules) for module in modules}
    labels = {}
    for (module, bucket), size_bytes in largest.items():
        label = f"{prefixes[int(module)]}bucket {bucket}  {size(size_bytes)}"
        labels[(rank, int(module), int(bucket))] = label
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
