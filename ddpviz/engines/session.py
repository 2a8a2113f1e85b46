"""``Session``: real DDP training on engines, driven from a script or a notebook cell."""

from __future__ import annotations

import atexit
import concurrent.futures
import tempfile
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpviz.engines import cluster as clusters
from ddpviz.engines import shipping
from ddpviz.engines.crew import Crew
from ddpviz.engines.driver import Driver
from ddpviz.engines.errors import RankFailed, SessionError
from ddpviz.engines.loaded import Loaded
from ddpviz.engines.progress import Progress, say

if TYPE_CHECKING:
    from ddpviz.recording import Recording

#: How long a step may take to end after it was asked to, before its engines are killed.
_STOP_SECONDS = 5.0

#: A user's workload: (rank, world_size, device, **options) -> (model, batch, loss).
Workload = Callable[..., tuple[Any, Callable[[int], Any], Callable[[Any, Any], Any]]]


class Session:
    """Engines, one rank on each, training one workload with DDP. A context manager.

    ``engines``: number of ranks. ``backend``: "nccl", "gloo", or None to choose (stderr says
    which, and why). ``cluster``: an ipyparallel ``Cluster`` or ``Client`` or a profile's name;
    None starts local engines. ``seed``: of weights, batches and dropout; the same seed gives the
    same parameters after the same steps. ``directory``: where ranks write their records (new, or
    empty of recordings); None takes a new temporary one. ``level``: of the recorder.

    Raises SessionError where engines do not start or the backend cannot work.
    """

    def __init__(
        self,
        engines: int = 2,
        backend: str | None = None,
        cluster: Any = None,
        seed: int = 0,
        directory: str | Path | None = None,
        level: str = "default",
    ):
        from ddpviz.recording import Recording

        self.directory = _new_directory(directory)
        #: What all ranks recorded, filled while they run; later lives of a rank continue it.
        self.recording: Recording = Recording()
        self._count = engines
        self._crew: Crew | None = None
        self._loaded: Loaded | None = None
        self._stopping = False
        self._background: Future[None] | None = None
        self._driver = Driver()

        def connect() -> None:
            found = clusters.connect(engines, cluster)
            self._finalizer = weakref.finalize(self, _end, found, self._driver)
            self._crew = Crew(found, backend, seed, self.directory, level, self.recording)
            self._crew.form()

        try:
            self._do(connect)
        except BaseException:
            self.close()
            raise
        # Not left to the finalizer: at exit it may run when threads are frozen already.
        atexit.register(_close_at_exit, weakref.ref(self))

    # --- what a user does ------------------------------------------------------------------------

    def load(self, workload: str | Workload, **configuration: Any) -> Session:
        """Take a workload: a built-in's name, or a function of yours.

        The function is called on every rank as ``function(rank, world_size, device, **options)``
        and returns (model, batch, loss): a ``torch.nn.Module``; ``batch(step)``, which gives a
        tensor for the model or a tuple whose first item is the model's input (a tuple of several
        inputs is unpacked); and ``loss(output, batch)``, a scalar tensor. It is shipped by value,
        so one defined in a notebook works. SGD (lr 0.01, momentum 0.9) takes the steps.

        ``configuration``: DDP's own arguments by name (those that take parameters take their
        names), and the workload's options. Raises ConfigurationError for unknown names,
        RankFailed where a rank cannot build it; where none can, the session stays usable.
        """
        self._idle("load", loaded=False)
        packed = shipping.workload(workload)

        def build() -> None:
            self._loaded = None
            self._loaded = Loaded.build(self._ranks, packed, configuration)

        self._do(build)
        return self

    def run(self, steps: int) -> Session:
        """Train so many steps, and wait. Ctrl-C ends it after the step that runs.

        Raises RankFailed where a rank fails; also where Ctrl-C finds a rank that does not end
        its step within 5 s (a second Ctrl-C does not wait).
        """
        loaded = self._idle("run")
        with Progress("training, step", steps) as progress:
            done, loss = 0, ""
            while done < steps:
                progress.update(done, loss)
                now = min(loaded.chunk, steps - done)
                loss = f"loss {self._do(lambda now=now: loaded.advance(now)):.4g}"  # type: ignore
                done += now
            progress.update(done, loss)
        return self

    def start(self) -> Session:
        """Train in the background until :meth:`stop`; returns at once."""
        loaded = self._idle("start")
        self._stopping = False
        background = self._background = Future()
        self._driver.submit(lambda: self._go_on(loaded, background))
        return self

    def stop(self) -> Session:
        """End background training after the step that runs. Fine where none is.

        Raises RankFailed where a rank failed since, or hangs: its engines are then killed.
        """
        background, self._background = self._background, None
        if background is None:
            self._check()
            return self
        self._stopping = True
        self._wait(background, "it did not end its step")
        background.result()
        return self

    def configure(self, **configuration: Any) -> str:
        """Turn knobs: every argument of this torch's DistributedDataParallel, on all ranks at
        the end of the chunk that runs. Returns what that took: "re-wrapped" (weights, optimizer
        and step stay), or "nothing to change".

        Raises ConfigurationError for an unknown name or a value DDP refuses; what was before
        then holds again.
        """
        self._check()
        loaded = self._need("configure")
        return str(self._do(lambda: loaded.configure(configuration)))

    def restart(self) -> Session:
        """New engines and a new process group, and the workload from its step 0.

        Works after any failure, also while a rank hangs. What was recorded stays in
        :attr:`recording`. Raises SessionError where engines do not come.
        """
        background, self._background = self._background, None
        self._stopping = True
        if background is not None:
            self._wait(background, "it did not end its step")

        def again() -> None:
            self._ranks.restart(self._count)
            if self._loaded is not None:
                self._loaded.rebuild()

        self._do(again)
        return self

    @property
    def failure(self) -> RankFailed | None:
        """What stopped the session, until :meth:`restart`."""
        return None if self._crew is None else self._crew.failure

    @property
    def pids(self) -> dict[int, int]:
        """The process of each rank, by rank."""
        return {one.rank: one.info.pid for one in self._ranks.members}

    def checksums(self) -> dict[int, str]:
        """SHA-256 of each rank's parameters, by rank: equal while the replicas are."""
        self._check()
        self._need("checksums")
        found: dict[int, str] = self._do(lambda: self._ranks.ask("checksum"))
        return found

    def close(self) -> None:
        """End the engines (those of a cluster passed in stay). Idempotent."""
        if self._driver.closed:
            return
        self._stopping = True
        crew = self._crew
        if crew is not None:
            # What runs may end; it has as long as stop() gives it.
            self._wait(self._driver.submit(crew.leave), "it did not end what it did")
        self._driver.submit(self._disconnect).exception(60)
        self._driver.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "failed" if self.failure else "training" if self._background else "idle"
        state = "closed" if self._driver.closed else state
        return f"<Session: {self._count} ranks, {state}, recorded in {self.directory}>"

    # --- waiting ---------------------------------------------------------------------------------

    @property
    def _ranks(self) -> Crew:
        assert self._crew is not None
        return self._crew

    def _check(self) -> None:
        if self._driver.closed:
            raise SessionError("the session is closed: make a new one")
        if self.failure is not None:
            raise self.failure

    def _need(self, what: str) -> Loaded:
        if self._loaded is None:
            raise SessionError(f'no workload is loaded: call load("convnet") before {what}()')
        return self._loaded

    def _idle(self, what: str, loaded: bool = True) -> Any:
        self._check()
        if self._background is not None:
            raise SessionError(f"training runs in the background: call stop() before {what}()")
        return self._need(what) if loaded else None

    def _do(self, work: Callable[[], Any]) -> Any:
        """Have the driver do it. Ctrl-C lets it end, or ends it: raises RankFailed then."""
        if self._driver.closed:
            raise SessionError("the session is closed: make a new one")
        future = self._driver.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            self._wait(future, "it was interrupted and did not end what it did")
            if self.failure is not None:
                raise self.failure from None
            raise

    def _wait(self, future: Future[Any], why: str) -> None:
        """Wait for what the driver does, at most 5 s; then, or on Ctrl-C, kill what hangs."""
        try:
            done = _done_within(future, _STOP_SECONDS)
        except KeyboardInterrupt:
            done = False
        if not done and self._crew is not None:
            self._crew.give_up = f"{why} within {_STOP_SECONDS:g} s, so it was stopped"
            _done_within(future, 30)
            self._crew.give_up = ""

    # --- what the driver's thread does -----------------------------------------------------------

    def _go_on(self, loaded: Loaded, background: Future[None]) -> None:
        """One chunk in the background, and the next behind what else has been asked for."""
        if self._stopping:
            background.set_result(None)
            return
        try:
            loaded.advance(loaded.chunk)
        except BaseException as error:
            if not self._stopping:
                say(str(error).splitlines()[0])
            background.set_exception(error)
        else:
            self._driver.submit(lambda: self._go_on(loaded, background))

    def _disconnect(self) -> None:
        if self._crew is not None:
            self._finalizer.detach()
            clusters.close(self._crew.engines)


def _end(engines: clusters.Engines, driver: Driver) -> None:
    """What is left of a session that nobody closed."""
    driver.close()
    clusters.close(engines)


def _close_at_exit(reference: weakref.ref[Session]) -> None:
    session = reference()
    if session is not None:
        session.close()


def _done_within(future: Future[Any], seconds: float) -> bool:
    return bool(concurrent.futures.wait([future], seconds).done)


def _new_directory(directory: str | Path | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="ddpviz-"))
    path = Path(directory).absolute()
    if path.exists() and any(path.glob("rank-*")):
        raise SessionError(
            f"found a recording in {path}, expected a new directory: name another one"
        )
    path.mkdir(parents=True, exist_ok=True)
    return path
