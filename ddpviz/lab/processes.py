"""Engines of live sessions, reached without their kernel: listed, interrupted, killed.

A kernel that is stuck in C answers nothing, but its engines are processes of the same user. They
are signalled only where the registry's pid is still the process that was registered (its start
tick matches), is this user's, and is on this machine.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
from collections.abc import Iterator

from ddpviz.engines import registry
from ddpviz.engines.guard import alive


class NotSignalled(Exception):
    """Nothing was signalled: one sentence that says why."""


@dataclasses.dataclass(frozen=True)
class Done:
    """What a signal reached. ``message``: it in a sentence."""

    ranks: tuple[int, ...]
    message: str


def listed() -> list[dict[str, object]]:
    """Every live session of this user, as the browser reads it."""
    return [
        {
            "session": one.session,
            "kernel_id": one.kernel_id,
            "kernel_alive": alive(one.kernel_pid, one.kernel_ticks),
            "ranks": [
                {
                    "rank": rank.rank,
                    "pid": rank.pid,
                    "host": rank.host,
                    "alive": why_not(rank) is None,
                }
                for rank in one.ranks
            ],
        }
        for one in registry.read()
    ]


def interrupt(session: str) -> Done:
    """SIGINT to every rank. Raises NotSignalled, LookupError for an unknown session."""
    return _signal(session, signal.SIGINT, "interrupted")


def kill(session: str) -> Done:
    """SIGKILL to every rank: the kernel then sees a failed rank. Raises as :func:`interrupt`."""
    return _signal(session, signal.SIGKILL, "killed")


def why_not(rank: registry.RegisteredRank) -> str | None:
    """Why a rank's process must not be signalled; None where it may."""
    if rank.host != socket.gethostname():
        return f"it runs on {rank.host}, not on this machine"
    if not alive(rank.pid, rank.ticks):
        return "it has ended already"
    try:
        owner = os.stat(f"/proc/{rank.pid}").st_uid
    except OSError:
        return "it has ended already"
    return None if owner == os.getuid() else "it belongs to another user"


def _signal(session: str, number: signal.Signals, word: str) -> Done:
    found = next((one for one in registry.read() if one.session == session), None)
    if found is None:
        raise LookupError(f"found no live session {session!r}: it was closed, or its kernel ended")
    done, reasons = [], []
    for rank, why in _signalled(found, number):
        if why is None:
            done.append(rank)
        else:
            reasons.append(f"rank {rank}: {why}")
    if not done:
        raise NotSignalled(
            f"no engine of session {session} was {word}: "
            + ("; ".join(reasons) or "it has registered none")
        )
    ranks = ", ".join(map(str, done))
    message = f"Engines of rank{'s' if len(done) > 1 else ''} {ranks} were {word}."
    return Done(tuple(done), " ".join([message, *(f"Not {reason}." for reason in reasons)]))


def _signalled(
    found: registry.Registered, number: signal.Signals
) -> Iterator[tuple[int, str | None]]:
    for rank in found.ranks:
        why = why_not(rank)
        if why is None:
            try:
                os.kill(rank.pid, number)
            except ProcessLookupError:
                why = "it has ended already"
            except PermissionError:
                why = "it belongs to another user"
        yield rank.rank, why
