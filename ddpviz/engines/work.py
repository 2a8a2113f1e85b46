"""What a session does on its ranks: one thing after another, training and cells apart."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from ddpviz.engines import cluster as clusters
from ddpviz.engines.alone import Alone
from ddpviz.engines.crew import Crew
from ddpviz.engines.driver import Driver, GiveUp
from ddpviz.engines.errors import RankFailed, SessionError
from ddpviz.engines.execution import Execution
from ddpviz.engines.loaded import Loaded
from ddpviz.engines.progress import say
from ddpviz.engines.status import Listeners

#: How long a step may take to end after it was asked to, before its engines are killed.
_STOP_SECONDS = 5.0
#: What is said of a compilation that goes on: nothing in it can be interrupted.
_COMPILES = (
    f"stop waits {_STOP_SECONDS:g} s for it, then ends the engines and starts new ones, with the "
    "workload from its step 0"
)
#: How long killing them may take, with what they recorded made whole.
_KILL_SECONDS = 60.0
#: How long ipyparallel may take to end what it started.
_CLOSE_SECONDS = 30.0
#: Between two looks at whether a step is due; what else was asked for comes in between.
_EARLY_SECONDS = 0.02


class Work:
    """Apart from the session, so that what runs here does not keep one alive that nobody wants.

    ``training``: done when the run that is on, in the background or not, has ended; None where
    there is none. ``stopping``: it is to end after the chunk that runs.
    """

    def __init__(self) -> None:
        self.driver = Driver()
        self.give_up = GiveUp()
        self.listeners = Listeners()
        self.crew: Crew | None = None
        self.training: Future[None] | None = None
        self.stopping = False
        #: What ended the last run in the background, where it was no rank's failure.
        self.error: BaseException | None = None
        #: What ranks compile right now, for a person; "" where they do not.
        self.compiling: Callable[[], str] = str
        self._lock = threading.RLock()
        self._alone: Alone | None = None
        self._asked = 0
        self._activities: list[tuple[str, str]] = []
        self._executions: list[Execution] = []

    # --- what is going on ------------------------------------------------------------------------

    @property
    def failure(self) -> RankFailed | None:
        return None if self.crew is None else self.crew.failure

    def activity(self) -> tuple[str, str]:
        """(status, reason) as :class:`status.SessionStatus` has them."""
        status, reason = self._doing()
        shown = self._alone
        if shown is not None and status in ("idle", "loading", "training", "waiting"):
            return shown.status, shown.told(reason)
        return status, reason

    def _doing(self) -> tuple[str, str]:
        if self.driver.closed:
            return "closed", ""
        with self._lock:
            if self._activities:
                return self._activities[-1]
            cells = sorted(rank for one in self._running() for rank in one.ranks)
        failure = self.failure
        if failure is not None:
            return "failed", failure.summary
        if self.training is not None:
            stops = "stops after the step that runs" if self.stopping else ""
            compiling = self.compiling()
            told = (stops, compiling, _COMPILES if compiling else "")
            return "training", "; ".join(filter(None, told))
        if cells:
            return "waiting", f"a cell runs on {named(cells)}"
        return "idle", ""

    def in_cells(self) -> set[int]:
        """Ranks that run code of the user's."""
        with self._lock:
            return {rank for one in self._running() for rank in one.ranks if rank not in one.ended}

    @contextlib.contextmanager
    def during(self, status: str, reason: str = "") -> Iterator[None]:
        """Says what is going on as long as it is."""
        mine = (status, reason)
        with self._lock:
            self._activities.append(mine)
        self.listeners.tell()
        try:
            yield
        finally:
            with self._lock:
                self._activities.remove(mine)
            self.listeners.tell()

    @contextlib.contextmanager
    def alone(self, status: str, what: str, asked: str) -> Iterator[Alone]:
        """This thread alone uses the session meanwhile; ``asked``: the method that wants it.

        Raises SessionError where that is not idle, and where it was told to stop before the end.
        """
        with self._lock:
            self.idle(asked)
            self._no_work(f"{asked}()")
            mine = self._alone = Alone(status, what)
        self.listeners.tell()
        try:
            with self._together():
                yield mine
        except SessionError as error:
            if mine.stopped and not self.driver.closed:
                raise mine.ended() from error
            raise
        finally:
            self._alone = None
            self.listeners.tell()

    def _together(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self.crew is None else self.crew.together()

    # --- one at a time ---------------------------------------------------------------------------

    def check(self) -> None:
        """Raises where nothing can be done: the session is closed, or a rank failed."""
        if self.driver.closed:
            raise SessionError("the session is closed: make a new one")
        if self.failure is not None:
            raise self.failure

    def idle(self, what: str) -> None:
        """Raises SessionError where training or a cell is on; ``what``: asked for instead."""
        self.check()
        self._not_for_others()
        if self.training is not None:
            raise SessionError(f"training runs in the background: call stop() before {what}()")
        self._no_cells(what)

    def begin_training(self, what: str) -> Future[None]:
        """The future of a run that begins, which :meth:`end_training` ends."""
        with self._lock:
            self.idle(what)
            if self._activities:
                status, _ = self._activities[-1]
                raise SessionError(f"the session is {status}: wait for that before {what}()")
            self.stopping, self.error = False, None
            training = self.training = Future()
        self.listeners.tell()
        return training

    def end_training(self, training: Future[None], error: BaseException | None = None) -> None:
        """It has ended, by an error or not."""
        with self._lock:
            self.training = None
            self.error = error
        self.listeners.tell()  # first: who waits for the end has been told by then
        if error is None:
            training.set_result(None)
        else:
            training.set_exception(error)

    def do(self, work: Callable[[], Any], what: str = "", beside_cells: bool = False) -> Any:
        """Have the driver do it. Ctrl-C lets it end, or ends it: raises RankFailed then.

        Raises SessionError where ranks run a cell: it would wait for that.
        """
        with self._lock:
            if self.driver.closed:
                raise SessionError("the session is closed: make a new one")
            if not beside_cells:
                if self._alone is not None:
                    self._alone.check_thread()
                self._no_cells(what)
            self._asked += 1
        known = self.failure
        future = self.driver.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            self.wait(future, "it was interrupted and did not end what it did")
            if self.failure is not None:
                raise self.failure from None
            raise
        finally:
            with self._lock:
                self._asked -= 1
            if self.failure is not known:
                self.listeners.tell()

    def wait(self, future: Future[Any], why: str) -> str:
        """Wait for what the driver does, at most 5 s; then, or on Ctrl-C, kill what hangs.

        Returns what ranks compiled when they were killed, else "". Raises SessionError where that
        does not end it either.
        """
        try:
            done = done_within(future, _STOP_SECONDS)
        except KeyboardInterrupt:
            done = False
        if done:
            return ""
        compiling = self.compiling()
        within = f"within {_STOP_SECONDS:g} s"
        told = f"{within} ({compiling})" if compiling else within
        self.give_up.until_done(future, f"{why} {told}")
        if not done_within(future, _KILL_SECONDS):
            raise SessionError(
                f"found that what runs did not end within {_KILL_SECONDS:g} s of being stopped: "
                "close the session and make a new one"
            )
        return compiling

    def end_what_runs(self) -> str:
        """Training after the step that runs, and cells. Returns what was compiled where engines
        were killed for that, else "". Raises SessionError where it goes on."""
        shown = self._alone
        if shown is not None:
            shown.stopped = True
        self.cancel_cells()
        training = self.training
        if training is not None:
            self.stopping = True
            self.listeners.tell()
            return self.wait(training, "it did not end its step")
        return ""

    def end(self, finalizer: Any) -> None:
        """End the cluster and the driver; no error. ``finalizer``: would do so, later."""
        crew = self.crew

        def disconnect() -> None:
            if crew is not None:
                finalizer.detach()
                clusters.close(crew.engines)

        try:
            ended = self.driver.submit(disconnect)
            if done_within(ended, _CLOSE_SECONDS):
                tell(ended.exception())
            elif crew is not None:
                clusters.kill(crew.engines)
                say(f"the cluster did not end within {_CLOSE_SECONDS:g} s: its engines were killed")
        finally:
            self.driver.close()
            self.listeners.tell()

    # --- cells -----------------------------------------------------------------------------------

    def execute(self, execution: Execution) -> None:
        """Begin it. Raises SessionError where its ranks are at something else."""
        with self._lock:
            self.check()
            self._not_for_others()
            if self.training is not None:
                raise SessionError("training runs: call stop() before a cell can run on the ranks")
            self._no_work("a cell can run on its ranks")
            taken = sorted({*execution.ranks} & {r for one in self._running() for r in one.ranks})
            if taken:
                raise SessionError(
                    f"a cell runs on {named(taken)} already: wait for it, or cancel it"
                )
            self._executions = [*self._running(), execution]
        execution.start()
        self.listeners.tell()

    def cancel_cells(self, seconds: float = 30.0) -> bool:
        """End what runs on the ranks; whether there was something."""
        with self._lock:
            running = self._running()
        for one in running:
            one.cancel()
        for one in running:
            one.wait(seconds)
        return bool(running)

    def fail(self, outcomes: Any, why: str) -> RankFailed:
        """A cell's ranks went wrong, and with them the session."""
        crew = self.crew
        assert crew is not None
        try:
            found: RankFailed = self.driver.submit(lambda: crew.fail(outcomes, why)).result()
        finally:
            self.listeners.tell()
        return found

    def _running(self) -> list[Execution]:
        return [one for one in self._executions if not one.done()]

    def _not_for_others(self) -> None:
        if self._alone is not None:
            self._alone.check()

    def _no_work(self, before: str) -> None:
        if self._asked or self._activities:
            status, _ = self._doing()
            busy = status if status not in ("idle", "waiting") else "busy"
            raise SessionError(f"the session is {busy}: wait for that before {before}")

    def _no_cells(self, what: str) -> None:
        with self._lock:
            ranks = sorted(rank for one in self._running() for rank in one.ranks)
        if ranks:
            before = f" before {what}()" if what else ""
            raise SessionError(f"a cell runs on {named(ranks)}: wait for it, or cancel it{before}")

    # --- the driver's thread ---------------------------------------------------------------------

    def go_on(self, loaded: Loaded, training: Future[None], keep: Any, begun: bool = False) -> None:
        """One chunk in the background, and the next behind what else has been asked for.

        ``keep``: lives as long as training goes on. ``begun``: there was a chunk before.
        """
        if self.stopping:
            self.end_training(training)
            return
        early_s = loaded.early_s()
        try:
            if early_s:
                time.sleep(min(early_s, _EARLY_SECONDS))
            else:
                loaded.advance(goes_on=begun)
                begun = True
        except BaseException as error:
            if not self.stopping:
                tell(error)
            self.end_training(training, error)
        else:
            self.driver.submit(lambda: self.go_on(loaded, training, keep, begun))


def named(ranks: list[int]) -> str:
    """ "rank 0", "ranks 0, 1"."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def done_within(future: Future[Any], seconds: float) -> bool:
    """Whether it was done after so long at most."""
    return bool(concurrent.futures.wait([future], seconds).done)


def tell(error: BaseException | None) -> None:
    """What went wrong where nothing may be raised, in one line."""
    if error is None:
        return
    if isinstance(error, RankFailed):
        say(error.summary)
    else:
        say((str(error).splitlines() or [type(error).__name__])[0])
