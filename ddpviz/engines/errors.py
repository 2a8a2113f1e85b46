"""What can go wrong in a session, each as one sentence a user can act on."""

from __future__ import annotations


class SessionError(RuntimeError):
    """The session cannot do what was asked in the state it is in."""


class ConfigurationError(ValueError):
    """A name or value that DDP or the workload does not take."""


class RankFailed(SessionError):
    """A rank failed, and with it the step of all ranks.

    ``rank``: the first to fail, not a peer that lost its connection to it. ``step``: the training
    step it was in (-1 outside one). ``doing``: what it was in, for example
    "all-reduce 17 (bucket 2)"; empty if not known. ``reason``: its exception in one line, or how
    its process ended. ``rank_traceback``: of that rank; empty where a process leaves none.
    ``others``: what each other rank was found in, by rank.
    """

    def __init__(
        self,
        rank: int,
        step: int,
        doing: str,
        reason: str,
        rank_traceback: str = "",
        others: dict[int, str] | None = None,
        advice: str = "session.restart() gives working engines with the same workload",
    ):
        self.rank = rank
        self.step = step
        self.doing = doing
        self.reason = reason
        self.rank_traceback = rank_traceback
        self.others = others or {}
        where = f" in step {step}" if step >= 0 else ""
        inside = f", in {doing}" if doing else ""
        text = f"rank {rank} failed{where}{inside}: {reason}; {advice}"
        for other, state in sorted(self.others.items()):
            text += f"\n  rank {other}: {state}"
        if rank_traceback:
            text += f"\n\nTraceback of rank {rank}:\n{rank_traceback.rstrip()}"
        super().__init__(text)
