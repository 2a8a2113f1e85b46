"""``Session``: real DDP training on engines, driven from a script or a notebook cell."""

from __future__ import annotations

import atexit
import tempfile
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpviz.engines import cluster as clusters
from ddpviz.engines import configure, failure, ranks, shipping, tasks
from ddpviz.engines.driver import Driver
from ddpviz.engines.errors import ConfigurationError, RankFailed, SessionError
from ddpviz.engines.feed import Feed
from ddpviz.engines.progress import Progress, say
from ddpviz.events import Failure

if TYPE_CHECKING:
    from ddpviz.recording import Recording

#: A chunk of steps is sized to this: short enough for stop() and configure() to feel prompt,
#: long against the 10 ms that a round trip to the engines takes.
_CHUNK_SECONDS = 0.5
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
        self.seed = seed
        #: What stopped the session, until :meth:`restart`.
        self.failure: RankFailed | None = None
        self._count = engines
        self._level = level
        self._backend = backend
        self._workload: tuple[str | bytes, dict[str, Any], dict[str, Any]] | None = None
        self._members: list[tasks.Member] = []
        self._feed = Feed(self.recording.append)
        self._give_up = ""
        self._stopping = False
        self._background: Future[None] | None = None
        self._step = 0
        self._base = 0
        self._born_ns = 0
        self._born_step = 0
        self._chunk = 1
        self._driver = Driver()
        self._engines: clusters.Engines | None = None
        try:
            self._do(lambda: self._connect(cluster))
            self._do(self._form)
        except BaseException:
            self._driver.submit(self._disconnect).result(30)
            self._driver.close()
            raise

    # --- what a user does ------------------------------------------------------------------------

    def load(self, workload: str | Workload, **configuration: Any) -> Session:
        """Take a workload: a built-in's name, or a function of yours.

        The function is called on every rank as ``function(rank, world_size, device, **options)``
        and returns (model, batch, loss): a ``torch.nn.Module``; ``batch(step)``, which gives a
        tensor for the model or a tuple whose first item is the model's input (a tuple of several
        inputs is unpacked); and ``loss(output, batch)``, a scalar tensor. It is shipped by value,
        so one defined in a notebook works. SGD (lr 0.01, momentum 0.9) takes the steps.

        ``configuration``: DDP's own arguments by name, and the workload's options.
        Raises ConfigurationError for unknown names, RankFailed where a rank cannot build it.
        """
        packed, options = shipping.workload(workload)
        values = configuration
        return self._do(lambda: self._load(packed, options, values))

    def run(self, steps: int) -> Session:
        """Train so many steps, and wait. Ctrl-C ends it after the step that runs.

        Raises RankFailed where a rank fails; also where Ctrl-C finds a rank that does not end
        its step within 5 s (a second Ctrl-C does not wait).
        """
        self._idle("run")
        with Progress("training, step", steps) as progress:
            done = 0
            while done < steps:
                progress.update(done)
                now = min(self._chunk, steps - done)
                try:
                    loss = self._do(lambda now=now: self._advance(now))  # type: ignore[misc]
                except KeyboardInterrupt:
                    self._stop_chunk("it was interrupted and did not end its step")
                    raise
                done += now
                progress.update(done, f"loss {loss:.4g}")
        return self

    def start(self) -> Session:
        """Train in the background until :meth:`stop`; returns at once."""
        self._idle("start")
        self._stopping = False
        background = self._background = Future()
        self._driver.submit(lambda: self._go_on(background))
        return self

    def stop(self) -> Session:
        """End background training after the step that runs.

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
        return self._do(lambda: self._configure(configuration))

    def restart(self) -> Session:
        """New engines and a new process group, and the workload from its step 0.

        Works after any failure. What was recorded stays in :attr:`recording`.
        """
        self._stopping = True
        self._give_up = "it was restarted"
        self._do(self._restart)
        return self

    @property
    def pids(self) -> dict[int, int]:
        """The process of each rank, by rank."""
        return {member.rank: member.info.pid for member in self._members}

    def checksums(self) -> dict[int, str]:
        """SHA-256 of each rank's parameters, by rank: equal while the replicas are."""
        return self._do(lambda: self._values(self._call("checksum")))

    def close(self) -> None:
        """End the engines (those of a cluster passed in stay). Idempotent."""
        if self._driver.closed:
            return
        self._stopping = True
        self._background = None
        # A chunk that runs may end; it has as long as stop() gives it.
        last = self._driver.submit(self._leave)
        try:
            last.result(_STOP_SECONDS)
        except TimeoutError:
            self._give_up = "the session was closed"
        self._driver.submit(self._disconnect).result(60)
        self._driver.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- waiting ---------------------------------------------------------------------------------

    def _do(self, work: Callable[[], Any]) -> Any:
        if self._driver.closed:
            raise SessionError("the session is closed: make a new one")
        return self._driver.submit(work).result()

    def _check(self) -> None:
        if self._driver.closed:
            raise SessionError("the session is closed: make a new one")
        if self.failure is not None:
            raise self.failure

    def _idle(self, what: str) -> None:
        self._check()
        if self._background is not None:
            raise SessionError(f"training runs in the background: call stop() before {what}()")
        if self._workload is None:
            raise SessionError(f'no workload is loaded: call load("convnet") before {what}()')

    def _stop_chunk(self, why: str) -> None:
        """After Ctrl-C: let the chunk that runs end, or end it. Raises RankFailed then."""
        self._wait(self._driver.submit(lambda: None), why)
        if self.failure is not None:
            raise self.failure from None

    def _wait(self, future: Future[Any], why: str) -> None:
        """Wait for what the driver does, at most 5 s; then, or on Ctrl-C, kill what hangs."""
        try:
            done = _done_within(future, _STOP_SECONDS)
        except KeyboardInterrupt:
            done = False
        if not done:
            self._give_up = f"{why} within {_STOP_SECONDS:g} s, so it was stopped"
            _done_within(future, 30)
            self._give_up = ""

    # --- what the driver's thread does -----------------------------------------------------------

    def _connect(self, cluster: Any) -> None:
        self._engines = clusters.connect(self._count, cluster)
        self._finalizer = weakref.finalize(self, _end, self._engines, self._driver)
        # Not left to the finalizer: at exit it may run after threads are frozen.
        atexit.register(_close_at_exit, weakref.ref(self))

    def _form(self) -> None:
        """Ranks on engines, and their process group."""
        engines = self._engines
        assert engines is not None
        with Progress("forming ranks, part", 4) as progress:
            clusters.extend_paths(engines)
            progress.update(1, "engines import torch")
            unknown = ranks.nobody()
            self._members = [
                tasks.Member(rank, engine, unknown) for rank, engine in enumerate(engines.ids)
            ]
            infos = self._values(self._call("identify"))
            placements, said = ranks.place(
                {engines.ids[rank]: info for rank, info in infos.items()}, self._backend
            )
            self._members = [
                tasks.Member(one.rank, one.engine, infos[one.rank]) for one in placements
            ]
            self._ddp_arguments = infos[0].ddp_arguments
            self._feed = Feed(self.recording.append)
            self._born_ns, self._born_step = time.time_ns(), self.recording.last_step + 1
            progress.update(2, "process group")
            self._values(self._call("see", lambda rank: (placements[rank].visible_gpu,)))
            meeting = self._values(
                tasks.call(
                    engines, self._members[:1], "rendezvous", lambda _: (placements[0].local,)
                )
            )[0]
            progress.update(3)
            common = (*meeting, self.seed, str(self.directory), self._level)
            self._values(self._call("join", lambda rank: (placements[rank], *common)))
            progress.update(4, said)

    def _load(
        self, workload: str | bytes, options: tuple[str, ...] | None, values: dict[str, Any]
    ) -> Session:
        self._check()
        if self._background is not None:
            raise SessionError("training runs in the background: call stop() before load()")
        ddp, own = configure.split(values, self._ddp_arguments, options)
        self._workload = (workload, own, ddp)
        self._build()
        return self

    def _build(self) -> None:
        assert self._workload is not None
        workload, options, ddp = self._workload
        packed = shipping.dumps((options, ddp))
        self._step, self._chunk = 0, 1
        self._values(self._call("build", lambda rank: (workload, packed)))
        self._base = self.recording.last_step + 1

    def _advance(self, steps: int) -> float:
        """A chunk of steps; returns the mean of the ranks' last losses."""
        self._check()
        done = self._values(self._call("run", lambda rank: (steps,)))
        self._step = done[0].step
        seconds = max(one.seconds for one in done.values()) / steps
        # At most doubled: the first steps are slower than the rest.
        self._chunk = max(1, min(2 * steps, int(_CHUNK_SECONDS / max(seconds, 1e-6))))
        return sum(one.loss for one in done.values()) / len(done)

    def _go_on(self, background: Future[None]) -> None:
        """One chunk in the background, and the next behind what else has been asked for."""
        if self._stopping:
            background.set_result(None)
            return
        try:
            self._advance(self._chunk)
        except BaseException as error:
            if not self._stopping:
                say(str(error).splitlines()[0])
            background.set_exception(error)
        else:
            self._driver.submit(lambda: self._go_on(background))

    def _configure(self, values: dict[str, Any]) -> str:
        self._check()
        if self._workload is None:
            raise SessionError('no workload is loaded: call load("convnet") before configure()')
        workload, options, old = self._workload
        changed, _ = configure.split(values, self._ddp_arguments, ())
        new = {**old, **changed}
        if new == old:
            return "nothing to change"
        packed = shipping.dumps(new)
        outcomes = self._call("wrap", lambda rank: (packed,))
        problems = [one.report.problem for one in outcomes.values() if one.report is not None]
        if len(problems) == len(outcomes) and all(problems):
            # DDP refused on every rank: no collective is open, so the old ones can be put back.
            self._values(self._call("wrap", lambda rank: (shipping.dumps(old),)))
            assert problems[0] is not None
            raise ConfigurationError(
                f"DDP does not take {_named(values)}: {problems[0].message}; "
                "the configuration is what it was"
            )
        self._values(outcomes)
        self._workload = (workload, options, new)
        return "re-wrapped"

    def _restart(self) -> None:
        self._give_up = ""
        self._background = None
        assert self._engines is not None
        if self.failure is None:
            self._leave()
        for member in self._members:
            clusters.signal_engine(self._engines, member.engine, member.info, 9)
        clusters.restart(self._engines, self._count)
        self.failure = None
        self._form()
        if self._workload is not None:
            self._build()

    def _leave(self) -> None:
        """Let ranks that can end their records; whole ranks only, as others wait for nobody."""
        if self.failure is None and self._members and self._engines is not None:
            self._call("leave")

    def _disconnect(self) -> None:
        engines, self._engines = self._engines, None
        if engines is not None:
            self._finalizer.detach()
            clusters.close(engines)

    def _call(
        self, name: str, arguments: Callable[[int], tuple[Any, ...]] = lambda rank: ()
    ) -> dict[int, tasks.Outcome]:
        assert self._engines is not None
        return tasks.call(
            self._engines,
            self._members,
            name,
            arguments,
            feed=self._feed,
            give_up=lambda: bool(self._give_up),
            directory=self.directory,
        )

    def _values(self, outcomes: dict[int, tasks.Outcome]) -> dict[int, Any]:
        """The ranks' values. Where one went wrong: complete the records, raise the one error."""
        if all(one.fine for one in outcomes.values()):
            return {rank: one.report.value for rank, one in outcomes.items() if one.report}
        self.failure = self._fail(outcomes)
        self._give_up = ""
        raise self.failure

    def _fail(self, outcomes: dict[int, tasks.Outcome]) -> RankFailed:
        dead = [rank for rank, one in outcomes.items() if one.ended or one.hung]
        advice = (
            f"recorded up to then: {self.directory}; session.restart() gives working engines "
            "with the same workload"
        )
        for rank in dead:
            failure.salvage(self.directory, rank, None)
        if dead:
            self.recording.merge(self.directory)
        error = failure.error(
            outcomes,
            failure.Scene(self.recording, self._born_ns, self._base),
            advice,
            self._give_up,
        )
        if error.rank in dead:
            # A rank's own files count steps from its process's start.
            step = error.step - self._born_step if error.step >= 0 else -1
            note = Failure(error.rank, step, time.time_ns(), error.reason, error.rank_traceback)
            failure.salvage(self.directory, error.rank, note)
            self.recording.merge(self.directory)
        return error


def _end(engines: clusters.Engines, driver: Driver) -> None:
    """What is left of a session that nobody closed."""
    driver.close()
    clusters.close(engines)


def _close_at_exit(reference: weakref.ref[Session]) -> None:
    session = reference()
    if session is not None:
        session.close()


def _done_within(future: Future[Any], seconds: float) -> bool:
    try:
        future.exception(seconds)
    except TimeoutError:
        return False
    return True


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


def _named(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())
