"""Runs a demonstration on a session, and takes what was recorded meanwhile."""

from __future__ import annotations

from ddpviz.demonstrations.catalogue import demonstration
from ddpviz.demonstrations.excerpt import Excerpt
from ddpviz.demonstrations.result import Demonstrated
from ddpviz.demonstrations.stage import Stage
from ddpviz.engines import Session
from ddpviz.engines.errors import SessionError

_FEWEST_RANKS = 2


def demonstrate(session: Session, name: str, replaced: str = "") -> Demonstrated:
    """Run it to its end; the session is idle afterwards, with the demonstration's workload.

    ``replaced``: the workload whose place it takes, "" for one that nobody will miss. Raises
    ValueError for an unknown name, SessionError for a session of a single rank, and what
    ``load``, ``configure``, ``run`` and ``execute`` raise.
    """
    chosen = demonstration(name)
    stage = Stage(session)
    if stage.ranks < _FEWEST_RANKS:
        raise SessionError(
            f"found a session of {stage.ranks} rank, expected {_FEWEST_RANKS} at least: a "
            f"demonstration shows what ranks do with each other, ddpviz.Session(engines=2) has them"
        )
    first, after_ns = session.recording.last_step + 1, session.recording.end_ns
    try:
        chosen.run(stage)
    finally:
        stage.leave()
    excerpt = Excerpt.taken(session.recording, first, after_ns)
    return Demonstrated(chosen, excerpt, _gone(replaced) if replaced else "")


def _gone(workload: str) -> str:
    return f"{workload} is no longer loaded: the demonstration took its place, load it again"
