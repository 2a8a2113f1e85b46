"""What can go wrong in a session, each as one sentence a user can act on."""

from __future__ import annotations


class SessionError(RuntimeError):
    """The session cannot do what was asked in the state it is in."""


class ConfigurationError(ValueError):
    """A name or value that DDP or the workload does not take."""


class WorkloadError(TypeError):
    """A user's workload is not what it should be: no line of code raised, so none is shown."""


class RankFailed(SessionError):
    """A rank failed, and with it the step of all ranks.

    ``rank``: the first to fail, not a peer that lost its connection to it. ``step``: the training
    step it was in, as :attr:`Session.recording` counts (-1 outside one; the earliest possible
    where its last records were not to be had). ``workload_step``: the same as the workload
    counts, from 0 at each load. ``doing``: what it was in, for example "all-reduce 17 (bucket 2)";
    empty if not known. ``reason``: its exception in one line, or how its process ended.
    ``rank_traceback``: of that rank; empty where a process leaves none. ``others``: what each
    other rank was found in, by rank. ``remarks``: what of the records could not be saved, and
    why. ``summary``: rank, step, collective and reason in one line.
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
        or_later: bool = False,
        workload_step: int | None = None,
    ):
        self.rank = rank
        self.step = step
        known = workload_step is not None and workload_step >= 0
        self.workload_step = workload_step if known else step
        self.doing = doing
        self.reason = reason
        self.rank_traceback = rank_traceback
        self.others = others or {}
        self.advice = advice
        self.remarks: tuple[str, ...] = ()
        where = f" in step {self.workload_step}" if step >= 0 else ""
        where += " or later" if where and or_later else ""
        if where and self.workload_step != step:
            where += f" (step {step} of the recording)"
        inside = f", in {doing}" if doing else ""
        # A message of torch's C++ side may have a stack below its first line.
        self.summary = f"rank {rank} failed{where}{inside}: {(reason.splitlines() or [''])[0]}"
        super().__init__(self.summary)

    def __str__(self) -> str:
        lines = [f"{self.summary}; {self.advice}"]
        lines += [f"  rank {other}: {state}" for other, state in sorted(self.others.items())]
        lines += [f"  {remark}" for remark in self.remarks]
        if self.rank_traceback:
            lines += ["", f"Traceback of rank {self.rank}:", self.rank_traceback.rstrip()]
        return "\n".join(lines)
