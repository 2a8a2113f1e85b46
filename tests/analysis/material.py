"""Records and notes of ranks made by hand, in milliseconds since one epoch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ddpviz.events import (
    NO_GROUP,
    NO_MODULE,
    RECORD,
    Bucket,
    Cause,
    Flag,
    Group,
    Kind,
    Module,
    Plan,
    Process,
    Tensor,
)

EPOCH_NS = 1_700_000_000_000_000_000


def at_ns(ms: float) -> int:
    return EPOCH_NS + round(ms * 1e6)


class MemorySource:
    """What a recording is to analysis: the smallest thing that satisfies ``Source``."""

    def __init__(self, ranks: Iterable[int] = (0, 1)) -> None:
        self._ranks = list(ranks)
        self._rows: list[np.ndarray] = []
        self._notes: list[tuple[int, Any]] = []
        self._labels: dict[tuple[int, int], str] = {}

    @property
    def ranks(self) -> list[int]:
        return self._ranks

    def records(self, kinds: Any = None, ranks: Any = None, steps: Any = None) -> np.ndarray:
        rows = np.concatenate([*self._rows, np.zeros(0, RECORD)])
        for name, wanted in (("kind", kinds), ("rank", ranks), ("step", steps)):
            if wanted is not None:
                rows = rows[np.isin(rows[name], np.ravel([*np.atleast_1d(wanted)]))]
        return rows

    def notes(self, kind: type[Any], /, rank: int | None = None) -> list[Any]:
        return [n for of, n in self._notes if isinstance(n, kind) and rank in (None, of)]

    def label(self, rank: int, id: int, /) -> str:
        return self._labels.get((rank, id), "")

    # --- writing ---------------------------------------------------------------------------------

    def note(self, rank: int, *notes: Any) -> None:
        self._notes += [(rank, note) for note in notes]

    def add(
        self, kind: Kind, rank: int, begin_ms: float, end_ms: float | None, **fields: Any
    ) -> None:
        """One record; ``end_ms`` None means that its end is unknown."""
        row = np.zeros(1, RECORD)
        row["iteration"] = row["index"] = row["sequence"] = -1
        row["module"], row["group"] = NO_MODULE, NO_GROUP
        row["kind"], row["rank"], row["begin_ns"] = kind, rank, at_ns(begin_ms)
        row["end_ns"] = 0 if end_ms is None else at_ns(end_ms)
        for name, value in fields.items():
            row[name] = value
        self._rows.append(row)

    def call(
        self,
        rank: int,
        sequence: int,
        launched_ms: float,
        done_ms: float | None,
        cause: Cause = Cause.BUCKET,
        op: str = "allreduce float32",
        **fields: Any,
    ) -> None:
        """A collective's launch and, unless ``done_ms`` is None, its completion.

        On CUDA the flag ENQUEUED stands on the completion only.
        """
        texts = [text for (of, _), text in self._labels.items() if of == rank]
        if op not in texts:
            # Ids differ between ranks, as they do where ranks meet operations in another order.
            self._labels[rank, len(texts) + 1 + 100 * rank] = op
        label = next(i for (of, i), text in self._labels.items() if (of, text) == (rank, op))
        given = {
            "sequence": sequence, "cause": cause, "label": label, "group": 0, "module": 0,
            "step": 0, "iteration": 0, **fields,
        }  # fmt: skip
        flags = given.get("flags", 0) & ~Flag.ENQUEUED
        launch = {**given, "flags": flags}
        self.add(Kind.COLLECTIVE_LAUNCHED, rank, launched_ms, launched_ms, **launch)
        if done_ms is not None:
            self.add(Kind.COLLECTIVE_DONE, rank, launched_ms, done_ms, **given)


NAMES = ("conv.weight", "conv.bias", "head.weight", "head.bias")


def described(
    ranks: Iterable[int] = (0, 1), world_size: int | None = None, hosts: tuple[str, ...] = ("a",)
) -> MemorySource:
    """Ranks of one group with one module: one bucket at first, two from iteration 1 on.

    ``hosts``: names, for one rank after the other and again from the first.
    """
    source = MemorySource(ranks)
    tensors = tuple(Tensor(name, (25,), "float32", 100) for name in NAMES)
    members = tuple(range(world_size or len(source.ranks)))
    for rank in source.ranks:
        source.note(
            rank,
            Process(
                rank,
                len(members),
                1,
                hosts[rank % len(hosts)],
                "2.13.0",
                "3.11",
                "cpu",
                EPOCH_NS,
                "default",
            ),
            Group(0, "default", "gloo", members),
            Module(0, "Net", tensors, (), ()),
            Plan(0, 0, 0, EPOCH_NS, "construction", (Bucket((3, 2, 1, 0), 400, None),)),
            Plan(
                0, 1, 1, EPOCH_NS, "rebuild", (Bucket((3, 2), 200, 150), Bucket((1, 0), 200, 150))
            ),
        )
    return source


def step(
    source: MemorySource,
    rank: int,
    begin_ms: float,
    ready_ms: dict[int, float],
    launched_ms: list[float],
    done_ms: list[float | None],
    finalize_ms: tuple[float, float] | None,
    number: int = 1,
    sequence: int = 10,
    buffers_ms: tuple[float, float] | None = None,
    end_ms: float | None = None,
    flags: int = 0,
) -> None:
    """A step of one forward and one backward; sequences count from ``sequence``.

    Forward takes the 10 ms after ``begin_ms``; the step ends ``end_ms``, or never.
    ``flags``: of the buckets' collectives.
    """
    common = {"step": number, "iteration": number, "module": 0}
    forward_end_ms = begin_ms + 10
    if buffers_ms is not None:
        source.add(Kind.BUFFER_SYNC, rank, *buffers_ms, bytes=72, index=2, **common)
    source.add(Kind.FORWARD, rank, begin_ms, forward_end_ms, **common)
    source.add(Kind.PREPARE_FOR_BACKWARD, rank, forward_end_ms - 1, forward_end_ms - 1, **common)
    for parameter, ms in ready_ms.items():
        source.add(Kind.GRAD_READY, rank, ms, ms, index=parameter, bytes=100, **common)
    for bucket, (launched, done) in enumerate(zip(launched_ms, done_ms, strict=True)):
        source.call(
            rank, sequence + bucket, launched, done, index=bucket, bytes=200,
            step=number, iteration=number, flags=flags,
        )  # fmt: skip
    if finalize_ms is not None:
        source.add(Kind.FINALIZE, rank, *finalize_ms, index=len(launched_ms), **common)
        source.add(Kind.BACKWARD, rank, forward_end_ms, finalize_ms[1], **common)
    if end_ms is not None:
        source.add(Kind.OPTIMIZER, rank, end_ms - 1, end_ms, step=number)
        source.add(Kind.STEP, rank, begin_ms, end_ms, step=number, index=number)


def hanging(hosts: tuple[str, ...] = ("a",), flags: int = 0) -> MemorySource:
    """Step 1, in which rank 1 never launches bucket 1."""
    source = described(hosts=hosts)
    ready = {3: 20.0, 2: 21.0, 1: 22.0, 0: 23.0}
    step(source, 0, 0, ready, [21, 23], [24, None], None, flags=flags)
    step(source, 1, 0, {}, [21], [24], None, flags=flags)
    return source


def construct(
    source: MemorySource,
    rank: int,
    begin_ms: float,
    end_ms: float | None,
    module: int = 0,
    sequence: int = 0,
    done: bool = True,
) -> None:
    """A constructor that verifies shapes 1 ms after its begin; it returns at ``end_ms``, or never.

    ``done``: whether its collective completed, after another 1 ms.
    """
    outside = {"step": -1, "iteration": -1}
    source.call(
        rank, sequence, begin_ms + 1, begin_ms + 2 if done else None, Cause.VERIFY,
        "allgather int64", module=module, **outside,
    )  # fmt: skip
    if done:
        source.add(
            Kind.CONSTRUCTION_VERIFY, rank, begin_ms + 0.5, begin_ms + 2.5, module=module, step=-1
        )
    if end_ms is not None:
        source.add(Kind.CONSTRUCTION, rank, begin_ms, end_ms, module=module, step=-1)
