"""Every collective's number in its group, its launch and its end, and which ones are open."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ddpviz import events
from ddpviz.events import NO_GROUP, NO_MODULE, Cause, Flag, Kind
from ddpviz.probe import backward, nccl_flight

if TYPE_CHECKING:
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState


# Plain numbers: an enum's own operators and hash are Python, and cost as much as a record.
_BUCKET = int(Cause.BUCKET)
_PYTHON_REDUCER = int(Cause.PYTHON_REDUCER)
_OF_BACKWARD = (_BUCKET, int(Cause.USED_MAP), _PYTHON_REDUCER)
_LAUNCHED, _DONE = int(Kind.COLLECTIVE_LAUNCHED), int(Kind.COLLECTIVE_DONE)
_DELAYED, _FAILED = int(Flag.DELAYED), int(Flag.FAILED)


class Collectives:
    """Of one recorder. Groups get ids in the order they are first used."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder
        # By the group's id(): its own id, its next sequence number, the group, kept alive, and
        # whether it is gloo's, which completes on the host whatever its tensors are on.
        self._groups: dict[int, tuple[int, Callable[[], int], Any, bool]] = {}
        self._operations: dict[tuple[str, torch.dtype | None], int] = {}
        self._open: dict[tuple[int, int], tuple[str, int, int, int, int, int]] = {}
        self._lock = threading.Lock()

    def launched(
        self,
        state: ModuleState | None,
        inner: Any,
        name: str,
        dtype: torch.dtype | None,
        nbytes: int,
        cause: int,
        flags: int,
        begin_ns: int,
        ended: int,
    ) -> tuple[Callable[[Any], None], Callable[[int | None], None]]:
        """A collective starts. Returns what its future calls when it is done, and what to call
        instead, with flags, where it has none (None: its end is not seen). ``ended``: flags of
        an end that the future tells.
        """
        recorder = self._recorder
        found = self._groups.get(id(inner)) or self._new_group(inner)
        group, sequence = found[0], found[1]()
        step, iteration, index, module = recorder.steps.current, -1, -1, NO_MODULE
        if state is not None:
            iteration, module = state.iteration, state.id
            if cause in _OF_BACKWARD:
                iteration = state.backward_iteration
            if cause == _BUCKET:
                index = self._bucket_launched(state, nbytes, flags, begin_ns)
                if state.delayed:
                    flags |= _DELAYED
            elif cause == _PYTHON_REDUCER:
                index, state.launched_buckets = state.launched_buckets, state.launched_buckets + 1
        label = self._operations.get((name, dtype)) or self._operation(name, dtype)
        key = (group, sequence)
        running, write, rank = self._open, recorder.write_rows, recorder.rank
        now = time.time_ns if found[3] and ended else recorder.now
        launch_ns = int(begin_ns)
        running[key] = (name, sequence, cause, index, step, launch_ns)
        write(
            (launch_ns, launch_ns, nbytes, step, iteration, index, sequence, label, rank, flags,
             _LAUNCHED, cause, module, group, 0)
        )  # fmt: skip

        def completed(future: Any) -> None:
            end_ns, extra = now(), ended
            try:
                future.value()
            except Exception:
                extra |= _FAILED
            row = (
                begin_ns, end_ns, nbytes, step, iteration, index, sequence, label, rank,
                flags | extra, _DONE, cause, module, group, 0,
            )  # fmt: skip
            if type(end_ns) is not int and recorder.device_times is not None:
                recorder.device_times.defer(row, lambda: running.pop(key, None))
                return
            running.pop(key, None)
            write(row)

        def unwatched(extra: int | None) -> None:
            running.pop(key, None)
            if extra is not None:
                write(
                    (launch_ns, time.time_ns(), nbytes, step, iteration, index, sequence, label,
                     rank, flags | extra, _DONE, cause, module, group, 0)
                )  # fmt: skip

        return completed, unwatched

    def _operation(self, name: str, dtype: torch.dtype | None) -> int:
        text = name if dtype is None else f"{name} {str(dtype).removeprefix('torch.')}"
        label = self._operations[name, dtype] = self._recorder.label(text)
        return label

    def _bucket_launched(self, state: ModuleState, nbytes: int, flags: int, begin_ns: int) -> int:
        if flags and flags & Flag.INFERRED:
            return -1
        if flags and flags & Flag.FROM_HOOK:
            local = self._recorder.local
            if local.hook_bucket < 0 and local.early_hook is not None:
                return local.early_hook[1]
            return local.hook_bucket
        return backward.bucket_launched(self._recorder, state, begin_ns, nbytes)

    def _new_group(self, inner: Any) -> tuple[int, Callable[[], int], Any, bool]:
        try:
            first = int(inner._get_sequence_number_for_group())
        except Exception:  # a backend that does not count: count from here
            first = 0
        with self._lock:  # two threads may launch first on one group
            if id(inner) in self._groups:
                return self._groups[id(inner)]
            group = min(len(self._groups), NO_GROUP - 1)  # one byte; the last id is shared
            described = _describe_group(group, inner)
            count = itertools.count(first).__next__
            found = self._groups[id(inner)] = (group, count, inner, described.backend == "gloo")
        self._recorder.note(described)
        return found

    @property
    def current(self) -> str:
        """What this rank is in right now, for a person; empty outside any collective."""
        for name, sequence, cause, index, step, _ in list(self._open.values()):
            return f"{name} {sequence} ({_describe(cause, index)}), step {step}"
        return ""

    @property
    def oldest(self) -> tuple[int, int, int]:
        """(group, sequence, launch) of the collective that is open longest; the launch is 0 where
        none is."""
        for (group, sequence), (*_, begin_ns) in list(self._open.items()):
            return group, sequence, begin_ns
        return NO_GROUP, -1, 0

    def on_device(self, group: int, sequence: int) -> str:
        """What NCCL says of a collective that is open, "" where it says nothing."""
        name = self._open.get((group, sequence), ("",))[0]
        for known, _, inner, _ in list(self._groups.values()):
            if known == group and name:
                group_name = str(getattr(inner, "group_name", ""))
                return nccl_flight.state_of(group_name, sequence, name)
        return ""

    @property
    def pending(self) -> bool:
        """Whether any collective was launched and is not done."""
        return bool(self._open)


def _describe(cause: int, index: int) -> str:
    if cause == Cause.BUCKET:
        return f"bucket {index}"
    return Cause(cause).name.lower().replace("_", " ")


def _describe_group(group: int, inner: Any) -> events.Group:
    try:
        ranks = tuple(dist.get_process_group_ranks(inner))
        backend = str(dist.get_backend(inner))
    except Exception:  # a group that c10d does not list
        ranks, backend = tuple(range(inner.size())), inner.name()
    try:
        name = str(inner.group_name)
    except RuntimeError:
        name = f"group {group}"
    return events.Group(group, name, backend, ranks)
