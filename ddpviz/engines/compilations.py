"""What ranks are compiling at this moment, from what they record: they answer nothing meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ddpviz.events import Batch, Graph, Kind, Process


class Compilations:
    """Takes in batches as they come. ``told``: called when something has changed."""

    def __init__(self, told: Callable[[], None] = lambda: None):
        self._told = told
        self._lock = threading.Lock()
        self._open: dict[int, dict[int, Graph]] = {}
        self._counted: dict[int, int] = {}
        #: By rank the graph that is split, and how many of its subgraphs came.
        self._split: dict[int, tuple[int, int]] = {}
        self._begun_ns: dict[int, int] = {}

    def take(self, batch: Batch) -> None:
        """A batch of one rank."""
        notes = [note for note in batch.notes if isinstance(note, (Graph, Process))]
        kinds = batch.records["kind"]
        ended = batch.records["index"][kinds == Kind.GRAPH]
        whole = batch.records[kinds == Kind.COMPILE]
        if not notes and not len(ended) and not len(whole):
            return
        with self._lock:
            for note in notes:
                if isinstance(note, Process):  # the rank began again
                    self._open[batch.rank], self._counted[batch.rank] = {}, 0
                    self._begun_ns[batch.rank] = 0
                else:
                    self._counted[batch.rank] = self._counted.get(batch.rank, 0) + 1
                    if note.siblings:
                        parent, came = self._split.get(batch.rank, (-1, 0))
                        came = came + 1 if parent == note.parent else 1
                        self._split[batch.rank] = note.parent, came
                    if "fusion" not in note.role:  # there at once, not compiled by themselves
                        self._open.setdefault(batch.rank, {})[note.id] = note
            for index in ended:
                self._open.get(batch.rank, {}).pop(int(index), None)
            if len(whole):
                last = whole[-1]
                self._begun_ns[batch.rank] = 0 if last["end_ns"] else int(last["begin_ns"])
                if last["end_ns"]:
                    self._open.pop(batch.rank, None)
        self._told()

    def now(self) -> str:
        """What each rank compiles: "rank 0 compiles subgraph 2 of 5 (4 operations), 12 s"; "graph 3
        (forward of 9 operations)", as torch does not tell how many graphs are to come; "rank 0
        traces what is to be compiled, 2 s". "" where none does."""
        with self._lock:
            begun_ns = {rank: one for rank, one in sorted(self._begun_ns.items()) if one}
            told = [(rank, self._of(rank), begin_ns) for rank, begin_ns in begun_ns.items()]
        now_ns = time.time_ns()
        return "; ".join(
            f"rank {rank} {what}, {max(0, now_ns - begin_ns) / 1e9:.0f} s"
            for rank, what, begin_ns in told
        )

    def _of(self, rank: int) -> str:
        ones = list(self._open.get(rank, {}).values())
        if not ones:
            return "traces what is to be compiled"
        last = ones[-1]
        operations = f"{last.nodes} operation{'' if last.nodes == 1 else 's'}"
        if last.siblings:
            _, came = self._split[rank]
            return f"compiles subgraph {came} of {last.siblings} ({operations})"
        return f"compiles graph {self._counted[rank]} ({last.role} of {operations})"
