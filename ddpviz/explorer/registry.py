"""The sessions and recordings of this kernel that can be looked at, by id. Held weakly."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from ddpviz.recording import Recording

if TYPE_CHECKING:
    from ddpviz.engines import Session
    from ddpviz.explorer.subject import Subject

_lock = threading.RLock()
#: A session's subject lives as long as the session, a recording's as long as its explorer.
_subjects: weakref.WeakValueDictionary[str, Subject] = weakref.WeakValueDictionary()
_listeners: list[Callable[[], None]] = []
_numbers = itertools.count(1)


def announce(found: Session | Recording) -> Subject:
    """Make a session, or a recording, known to front ends of this kernel; its subject.

    Twice the same is fine. Inside a kernel this also registers the comm targets.
    """
    from ddpviz.explorer.subject import Subject

    with _lock:
        for known in list(_subjects.values()):
            if known.is_about(found):
                return known
        subject = Subject(_id_of(found), found)
        _subjects[subject.id] = subject
        if not subject.is_recording:
            weakref.finalize(found, _forget, subject).atexit = False
    if inside_kernel():
        from IPython import get_ipython

        from ddpviz.explorer.comms import register_targets
        from ddpviz.explorer.display import show_sessions

        register_targets()
        show_sessions(get_ipython())
    tell()
    return subject


def subjects() -> list[Subject]:
    """Those that are not closed, in the order in which they came; recordings last."""
    with _lock:
        found = [one for one in list(_subjects.values()) if not one.closed]
    return sorted(found, key=lambda one: one.is_recording)


def subject(id: str) -> Subject:
    """The subject of that id, "" for the first; also a closed one. Raises LookupError."""
    with _lock:
        found = _subjects.get(id)
    if found is None and not id:
        found = next(iter(subjects()), None)
    if found is None:
        known = ", ".join(one.id for one in subjects()) or "none"
        raise LookupError(
            f"found no session {id!r} in this kernel (there is {known}): make one with "
            "ddpviz.Session()"
        )
    return found


def listen(callback: Callable[[], None]) -> None:
    """Calls back whenever a session is made or forgotten; from any thread."""
    with _lock:
        if callback not in _listeners:
            _listeners.append(callback)


def tell() -> None:
    """Tell who listens."""
    with _lock:
        listeners = list(_listeners)
    for callback in listeners:
        with contextlib.suppress(Exception):
            callback()


def inside_kernel() -> bool:
    """Whether this process is a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _forget(gone: Subject) -> None:
    """Called by the collector, in whichever thread and with whichever lock: it tells nobody. Who
    serves clients looks at what there is all the time."""
    with _lock:
        _subjects.pop(gone.id, None)


def _id_of(found: Session | Recording) -> str:
    return f"r{next(_numbers)}-{os.getpid()}" if isinstance(found, Recording) else found.id
