"""Code of the user's, on some ranks of a session: what it prints, how it ends, ending it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ddpviz.engines import cluster as clusters
from ddpviz.engines import tasks
from ddpviz.engines.errors import RankFailed
from ddpviz.engines.ranks import Problem

if TYPE_CHECKING:
    from ddpviz.engines.crew import Crew

#: What a cancelled cell has to end by itself: a signal reaches Python code at once, but not a
#: collective that waits in C.
_CANCEL_SECONDS = 3.0
_AGAIN_SECONDS = 0.5

#: (rank, "stdout" or "stderr", text), from any thread; the text need not end where a line does.
Output = Callable[[int, str, str], None]


class Execution:
    """Made by ``Session.execute``. It runs on a thread of its own until :meth:`done`."""

    def __init__(
        self,
        crew: Crew,
        code: str,
        ranks: list[int],
        output: Output | None,
        failed: Callable[[dict[int, tasks.Outcome], str], RankFailed],
        changed: Callable[[], None],
        number: int,
    ):
        self.ranks = tuple(ranks)
        #: What each rank raised, by rank; filled as ranks end.
        self.errors: dict[int, Problem] = {}
        #: Ranks that have ended.
        self.ended: set[int] = set()
        self._crew = crew
        self._members = [one for one in crew.members if one.rank in ranks]
        self._code = code
        self._number = number
        self._output = output
        self._failed = failed
        self._changed = changed
        self._cancelled_at: float | None = None
        self._interrupted_at = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ddpviz-cell", daemon=True)

    def start(self) -> None:
        """Send it to the ranks; called once."""
        self._thread.start()

    def done(self) -> bool:
        """Whether all its ranks have ended."""
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for all ranks to end, so many seconds at most; whether they have."""
        return self._done.wait(timeout)

    def cancel(self) -> None:
        """Have the ranks end it: Ctrl-C to each, and where that does not help within 3 s, as in a
        collective, their engines are killed; the session then needs a restart. Returns at once.
        """
        if self.done() or self._cancelled_at is not None:
            return
        self._cancelled_at = time.monotonic()
        self._interrupt()

    def __repr__(self) -> str:
        state = "done" if self.done() else "running"
        failed = f", failed on {sorted(self.errors)}" if self.errors else ""
        return f"<Execution on ranks {list(self.ranks)}: {state}{failed}>"

    # --- its thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            outcomes = self._crew.cell(
                self._members, self._code, self._number, self._output, self._why, self._heard
            )
            bad = {rank: one for rank, one in outcomes.items() if not one.fine}
            if bad:
                self._went_wrong(outcomes, bad)
        except BaseException as error:  # the connection to the cluster is gone
            for rank in self.ranks:
                if rank not in self.ended:
                    self.errors[rank] = Problem(time.time_ns(), -1, "", str(error))
        finally:
            self._done.set()
            self._changed()

    def _heard(self, rank: int, outcome: tasks.Outcome) -> None:
        """A rank came back."""
        self.ended.add(rank)
        problem = outcome.report.value if outcome.fine and outcome.report is not None else None
        if problem is not None:
            self.errors[rank] = problem
        self._changed()

    def _interrupt(self) -> None:
        """Ctrl-C, again and again: it may come before the code begins, and be caught by it."""
        self._interrupted_at = time.monotonic()
        for member in self._members:
            if member.rank not in self.ended:
                clusters.signal_engine(
                    self._crew.engines, member.engine, member.info, signal.SIGINT
                )

    def _why(self) -> str:
        """Why it is not to be waited for any longer, "" to wait."""
        since = self._cancelled_at
        if since is not None and time.monotonic() - self._interrupted_at > _AGAIN_SECONDS:
            self._interrupt()
        if since is not None and time.monotonic() - since > _CANCEL_SECONDS:
            return f"it was cancelled and did not end within {_CANCEL_SECONDS:g} s"
        failure = self._crew.failure
        return self._crew.lost() if failure is None else f"the session failed ({failure.summary})"

    def _went_wrong(
        self, outcomes: dict[int, tasks.Outcome], bad: dict[int, tasks.Outcome]
    ) -> None:
        """Processes ended, by themselves or killed from here: no rank can go on."""
        why = self._why()
        failure = self._failed(outcomes, why)
        advice = "session.restart() gives working engines"
        for rank in bad:
            said = failure.summary if rank == failure.rank else failure.others.get(rank, why)
            self.errors[rank] = Problem(time.time_ns(), -1, failure.doing, f"{said}; {advice}")
