"""``ddpviz.attach``: record a training job of your own, under any launcher.

Composes the probe (inside the training process) with a writer of recordings.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist

from ddpviz.events import LEVELS
from ddpviz.on_signal import OnSignal
from ddpviz.probe.recorder import Recorder, check_free, check_module
from ddpviz.probe.schedule import Schedule, schedule
from ddpviz.probe.stall import STALL_S, check_limit, stack_of
from ddpviz.recording import RankWriter, Recording, load, ring_path

#: The newest records are enough to tell who waits: of a long run not all is read.
_ENOUGH_RECORDS = 200_000


class Attachment:
    """A running recording of this process; a context manager. ``close`` detaches, idempotent."""

    def __init__(self, recorder: Recorder, recording: Recording | None, out: Path | None):
        self.recorder = recorder
        #: The records in memory, where no ``out`` was given.
        self.recording = recording
        self.out = out
        self._on_signal = OnSignal(self._told)
        self._pid = os.getpid()
        if out is not None and recorder.rank == 0 and recorder.world_size > 1:
            # Before close, so that it comes after it; it holds nothing of this.
            atexit.register(_at_exit, out, recorder.world_size, self._pid)
        atexit.register(self._end)

    def step(self) -> AbstractContextManager[int]:
        """Mark one training step; without it a step ends at ``optimizer.step()``."""
        return self.recorder.step()

    def close(self) -> None:
        """Detach: every process group goes back, nothing stays patched, all is written."""
        if os.getpid() != self._pid:  # a forked child ends: the recording is its parent's
            return
        atexit.unregister(self._end)
        try:
            self._on_signal.close()
        finally:
            self.recorder.close()

    def _end(self) -> None:
        """The process ends: by an exception that nothing caught, or well."""
        error = _uncaught()
        ours = os.getpid() == self._pid and not self.recorder.closed
        if ours and error is not None and not _exits_well(error):
            self.recorder.failed(error)
        self.close()
        if ours and self.recording is not None and self.recorder.rank == 0:
            from ddpviz.at_exit import tell_alone

            tell_alone(self.recording, self.recorder.world_size)

    def _told(self) -> str:
        """What SIGUSR1 prints: of all ranks whose records are here."""
        from ddpviz.analysis.waiting import told, waiting
        from ddpviz.analysis.waiting.own_code import own_line

        self.recorder.stalls.look(at_once=True)
        self.recorder.flush()
        recording = self.recording or load(self.out or "", bound=_ENOUGH_RECORDS)
        if text := told(waiting(recording, time.time_ns())):
            return text
        at = own_line(stack_of(self.recorder.stalls.thread))
        where = f"it is at {at.file}:{at.line} in {at.function}" if at else "its thread has ended"
        return f"rank {self.recorder.rank} is in no collective, and no other rank waits: {where}"

    def fingerprint(self) -> None:
        """Sample the next step, whatever the schedule. To be called on every rank."""
        self.recorder.fingerprint_next_step()

    def __repr__(self) -> str:
        where = "in memory" if self.out is None else f"to {self.out}"
        state = "closed" if self.recorder.closed else "recording"
        return f"<Attachment: {state}, {where}, level {self.recorder.level}>"

    def __enter__(self) -> Attachment:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is not None and not _exits_well(error):
                self.recorder.failed(error)
        finally:
            self.close()


def attach(
    modules: Any,
    out: str | Path | None = None,
    *,
    level: str = "default",
    fingerprints: int | Schedule = 0,
    stall_s: float = STALL_S,
) -> Attachment:
    """Record a DistributedDataParallel module (or several) from now on, also a compiled one.

    ``out``: a directory, the same on every rank of a host, new or empty of this rank's files;
    None keeps the records in memory (``attachment.recording``). ``level``: "default", or "summary"
    without the parts of a forward and without when each gradient was ready, or "detail" with when
    it was there on a GPU, for a Python call each. ``fingerprints``: in
    every so many steps (0: in none) hash parameters, gradients and buffers, so that
    ``recording.replicas()`` tells whether they are equal on all ranks, and ``recording.audit()``
    what is wrong; that reads each of them, and on CUDA the host waits for it. A
    :class:`ddpviz.Schedule` samples the first few steps, too; ``attachment.fingerprint()`` the next
    one. ``stall_s``: a rank that is in one collective, or silent, for
    so many seconds notes in which and at which line, for ``recording.waiting()``; 0 for never.
    SIGUSR1 prints what everyone waits for, as far as the records are in ``out``. When the process
    ends, rank 0 prints what an audit finds there, or why it was not done; of a healthy run nothing.
    One that a signal ends, as torchrun ends the others of a rank that failed, prints nothing:
    ``ddpviz audit`` tells it afterwards.
    Without ``out``, and without :meth:`Attachment.close` before, that is what rank 0 can tell of
    its own newest steps.
    Call it on every rank, with the same arguments, between two steps; DDP modules built while
    attached are recorded as well.

    Raises TypeError for anything but DDP modules, ValueError for an unknown level, how often or how
    long, RuntimeError where this process is being recorded already, FileExistsError where ``out``
    holds this rank's recording: only ranks that torchrun has restarted go on there, their steps
    after those of before. Whatever goes wrong, no file of this rank is left in ``out`` that was not
    there.
    """
    found = (
        list(modules) if isinstance(modules, Iterable) and not _is_module(modules) else [modules]
    )
    for module in found:
        check_module(module)
    if level not in LEVELS:
        raise ValueError(f"found level {level!r}, expected one of {', '.join(LEVELS)}")
    fingerprints = schedule(fingerprints)
    check_limit(stall_s)
    check_free()
    how: dict[str, Any] = {"level": level, "fingerprints": fingerprints, "stall_s": stall_s}
    if out is not None:
        return Attachment(_to_directory(Path(out), how, found), None, Path(out))
    recording = Recording()
    recorder = Recorder(sinks=[recording.append], **how)
    _follow(recorder, found)
    return Attachment(recorder, recording, None)


def _at_exit(out: Path, world_size: int, pid: int) -> None:
    if os.getpid() == pid:
        from ddpviz.at_exit import tell_findings

        tell_findings(out, world_size)


def _to_directory(out: Path, how: dict[str, Any], modules: list[Any]) -> Recorder:
    rank = dist.get_rank() if dist.is_initialized() else 0
    ours = f"rank-{rank:04d}.*"
    before = list(out.glob(ours))
    if before and not _relaunched():
        raise FileExistsError(
            f"found a recording of rank {rank} in {out}, expected a directory without one: "
            "name another, or move that one away"
        )
    out.mkdir(parents=True, exist_ok=True)
    try:
        writer = RankWriter(out, rank)
        try:
            recorder = Recorder(sinks=[writer], ring_path=ring_path(out, rank), **how)
        except BaseException:
            writer.close()
            raise
        _follow(recorder, modules)
    except BaseException:
        if not before:
            for file in out.glob(ours):
                file.unlink()
        raise
    return recorder


def _relaunched() -> bool:
    """Whether torchrun has started the ranks anew, after it ended all that were there before."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") not in ("", "0")


def _follow(recorder: Recorder, modules: list[Any]) -> None:
    try:
        recorder.install()
        for module in modules:
            recorder.adopt(module)
    except BaseException:
        recorder.close()
        raise


def _uncaught() -> BaseException | None:
    """What ended a script; None in a shell or notebook, which goes on after an error."""
    if hasattr(sys, "ps1") or "IPython" in sys.modules:
        return None
    error = getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None


def _exits_well(error: BaseException) -> bool:
    return isinstance(error, SystemExit) and error.code in (None, 0)


def _is_module(value: Any) -> bool:
    return isinstance(value, torch.nn.Module)
