"""``Session``: real DDP training on engines, driven from a script or a notebook cell."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpviz.engines import (
    checks,
    comparing,
    compiled,
    lifetime,
    prediction,
    registry,
    shipping,
    status,
)
from ddpviz.engines import cluster as clusters
from ddpviz.engines.compilations import Compilations
from ddpviz.engines.crew import Crew
from ddpviz.engines.errors import ConfigurationError, RankFailed, SessionError
from ddpviz.engines.execution import Execution, Output
from ddpviz.engines.knobs import Knob, all_knobs
from ddpviz.engines.loaded import Loaded, facts
from ddpviz.engines.own import Own
from ddpviz.engines.prediction import Prediction
from ddpviz.engines.progress import Progress, say
from ddpviz.engines.settings import Settings
from ddpviz.engines.status import SessionStatus
from ddpviz.engines.work import Work, tell

if TYPE_CHECKING:
    from ddpviz.recording import Recording

_numbers = itertools.count(1)

#: A user's workload: (rank, world_size, device, **options) -> (model, batch, loss).
Workload = Callable[..., tuple[Any, Callable[[int], Any], Callable[[Any, Any], Any]]]


class Session:
    """Engines, one rank on each, training one workload with DDP. A context manager.

    ``engines``: number of ranks. ``backend``: "nccl", "gloo", or None to choose (stderr says
    which, and why). ``cluster``: an ipyparallel ``Cluster`` or ``Client`` or a profile's name;
    None starts local engines. ``seed``: of weights, batches and dropout; the same seed gives the
    same parameters after the same steps. ``directory``: where ranks write their records (new, or
    empty of recordings); None takes a new temporary one. ``level``: of the recorder.

    Any thread may call its methods. Raises SessionError where engines do not start or the backend
    cannot work.
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

        lifetime.check(engines, backend, level)
        #: Unique on this machine as long as this process lives.
        self.id = f"s{next(_numbers)}-{os.getpid()}"
        self.directory = lifetime.new_directory(directory)
        #: What all ranks recorded, filled while they run; later lives of a rank continue it.
        self.recording: Recording = Recording()
        self._count = engines
        self._loaded: Loaded | None = None
        self._own = Own()
        self._demonstrated: Loaded | None = None  # what a demonstration loaded, not the user
        self._cells = itertools.count(1)
        self._changes = status.Changes()
        self._started = time.time()
        self._finalizer: weakref.finalize[Any, Any] | None = None
        work = self._work = Work()
        compilations = Compilations(work.listeners.tell)
        self.recording.subscribe(compilations.take)
        work.compiling = compilations.now

        def connect() -> None:
            found = clusters.connect(engines, cluster, work.give_up)
            self._finalizer = weakref.finalize(self, lifetime.end, found, work.driver, self.id)
            work.crew = Crew(
                found, backend, seed, self.directory, level, self.recording, work.give_up
            )
            work.crew.watched = work.listeners.any
            work.crew.form()
            lifetime.register(self.id, work.crew, self._started)

        try:
            with work.during("starting"):
                work.do(connect)
        except BaseException:
            self.close()
            raise
        # Not left to the finalizer: at exit it may run when threads are frozen already.
        atexit.register(lifetime.close_at_exit, weakref.ref(self))
        lifetime.announce(self)

    # --- training --------------------------------------------------------------------------------

    def load(self, workload: str | Workload, **configuration: Any) -> Session:
        """Take a workload: a built-in's name, or a function of yours.

        The function is called on every rank as ``function(rank, world_size, device, **options)``
        and returns (model, batch, loss): a ``torch.nn.Module``; ``batch(step)``, which gives a
        tensor for the model or a tuple whose first item is the model's input (a tuple of several
        inputs is unpacked); and ``loss(output, batch)``, a scalar tensor. It is shipped by value,
        so one defined in a notebook works. SGD (lr 0.01, momentum 0.9) takes the steps. Steps
        count from 0 for ``batch``; the recording's go on counting over all loads and restarts.

        ``configuration``: whatever :meth:`configure` takes. Raises ConfigurationError for a name
        that is not known or a value that cannot work: found before anything is built, what was
        loaded stays; where DDP itself or a built-in refuses, nothing is loaded. Raises RankFailed
        where the function raises; where it does on every rank, the session stays usable.
        """
        self._work.idle("load")
        given = self._own.meant({**configuration, "workload": workload})
        function = given.pop("workload")
        settings = Settings(shipping.workload(function), shipping.name(function))
        self._load(settings, given)
        self._own.remember({**given, "workload": function})
        return self

    def _load(self, settings: Settings, configuration: dict[str, Any]) -> None:
        def build() -> None:
            loaded = Loaded.prepare(self._crew, settings, configuration)
            self._loaded = None
            if self._crew.leaky and loaded.settings.compile_mode != compiled.PYTHON:
                self._crew.restart(self._count)
                lifetime.register(self.id, self._crew, self._started)
            loaded.rebuild()
            self._loaded = loaded

        with self._work.during("loading", f"{settings.name} is built on all ranks"):
            self._work.do(build, "load")

    def run(self, steps: int) -> None:
        """Train so many steps, and wait. Ctrl-C ends it after the step that runs, as does
        :meth:`stop` from another thread after the chunk that runs.

        Raises ConfigurationError unless ``steps`` is a whole number from 1 on. Raises RankFailed
        where a rank fails; also where Ctrl-C finds a rank that does not end its step within 5 s
        (a second Ctrl-C does not wait).
        """
        steps, work = checks.steps(steps), self._work
        work.idle("run")
        loaded = self._need("run")
        training = work.begin_training("run")
        try:
            with Progress("training, step", steps) as progress:
                done, loss = 0, ""
                while done < steps and not work.stopping:
                    progress.update(done, loss)
                    time.sleep(min(loaded.early_s(), 0.1))
                    if loaded.early_s():
                        continue
                    advance = functools.partial(loaded.advance, steps - done, goes_on=done > 0)
                    took, last = work.do(advance)
                    done, loss = done + took, f"loss {last:.4g}"
                progress.update(done, loss)
        finally:
            work.end_training(training)

    def start(self) -> None:
        """Train in the background until :meth:`stop`; returns at once."""
        work = self._work
        work.idle("start")
        loaded = self._need("start")
        training = work.begin_training("start")
        work.driver.submit(lambda: work.go_on(loaded, training, self))

    def stop(self) -> None:
        """End training after the step that runs, and cells that run on ranks. Fine where there is
        nothing to end.

        A compilation cannot be interrupted. One that does not end within 5 s ends with its engines;
        new ones then have the workload, from its step 0, and a line says so: :meth:`status` says
        it beforehand. Raises RankFailed where a rank failed since, or hangs: its engines are then
        killed.
        """
        work = self._work
        compiling = work.end_what_runs()
        error, work.error = work.error, None
        if compiling:
            say(f"stopped while {compiling}: engines were ended, and new ones begin at step 0")
            self.restart()
            return
        if error is not None:
            raise error
        work.check()

    def restart(self) -> Session:
        """New engines and a new process group, and the workload anew: it counts its steps from 0
        again, with the weights it began with, as it is configured now.

        Works after any failure, also while a rank hangs. What was recorded stays in
        :attr:`recording`, whose steps go on counting. Raises SessionError where engines do not
        come.
        """
        work, known = self._work, self.failure
        with work.during("restarting", "new engines take some 10 s"):
            work.end_what_runs()
            if self.failure is not known:
                tell(self.failure)  # no call will raise it

            def again() -> None:
                self._crew.restart(self._count)
                lifetime.register(self.id, self._crew, self._started)
                if self._loaded is not None:
                    self._loaded.rebuild()

            work.do(again, beside_cells=True)
        return self

    # --- knobs -----------------------------------------------------------------------------------

    def configure(self, **configuration: Any) -> str:
        """Turn knobs, on all ranks at the end of the chunk that runs. Returns what that took:
        "re-wrapped" (weights, optimizer and step stay; with "Dynamo reset" the next step compiles),
        "from the next step", both joined by "and", "reloaded" (all begins anew), "restarted" (on
        new engines), or "nothing to change"; after it, what has to be said of the settings.

        Every argument of this torch's DistributedDataParallel (those that take parameters take
        their names), and the workload's options, as ``batch_size``. Besides, ``workload``: another
        one; ``accumulation``: so many batches in a step, with all but the last in ``no_sync``
        (``batch`` is called with a number of its own for each); ``comm_hook``: None, "allreduce",
        "fp16", "powersgd" or a function (None, bucket) -> future; ``sync_batchnorm``; ``delay_ms``:
        what a rank sleeps in each step, by rank; ``steps_per_second``: at most so many, or None.
        ``compile_mode``: "none", or one of ``torch._dynamo.config.optimize_ddp``;
        ``compile_backend``, ``compile_order``, ``compiled_autograd``: see :mod:`compiled`.

        Raises ConfigurationError for a name that is not known or a value that cannot work; what
        was before then holds again. :meth:`knobs` lists all, :meth:`predict` asks first. A
        function of yours that the session had before can be given by its name.
        """
        given = self._meant(configuration)
        outcome = self._configure(given)
        self._own.remember(given)
        return outcome

    def _configure(self, configuration: dict[str, Any]) -> str:
        self._work.check()
        configuration = dict(configuration)
        given = configuration.pop("workload", None)
        if given is not None and self._other(given):
            return self._take(given, configuration)
        loaded = self._need("configure")
        if not configuration:
            return prediction.NOTHING
        takes = loaded.plan(configuration).takes
        if prediction.RESTARTED in takes:

            def anew() -> str:
                outcome = loaded.configure(configuration)
                lifetime.register(self.id, self._crew, self._started)
                return outcome

            with self._work.during("restarting", "python_reducer is left: new engines"):
                return str(self._work.do(anew, "configure"))
        if prediction.RELOADED in takes:
            with self._work.during("loading", "the workload is built anew"):
                return str(self._work.do(lambda: loaded.configure(configuration), "configure"))
        outcome = str(self._work.do(lambda: loaded.configure(configuration), "configure"))
        self._work.listeners.tell()
        return outcome

    def predict(self, **configuration: Any) -> Prediction:
        """What :meth:`configure` would take, or why it would refuse; asks no rank, and changes
        nothing."""
        configuration = self._meant(configuration)
        given = configuration.pop("workload", None)
        loaded = self._loaded
        try:
            self._work.check()
            if given is not None and self._other(given):
                before = None if loaded is None else loaded.settings
                settings = prediction.other_workload(before, given)
                return prediction.of_load(settings, configuration, facts(self._crew))
            change = self._need("configure").plan(configuration)
        except RankFailed as error:
            return Prediction("", f"{error.summary}; restart the session first")
        except (ConfigurationError, SessionError) as error:
            return Prediction("", str(error))
        return Prediction(change.needs())

    def knobs(self) -> tuple[Knob, ...]:
        """Every knob of this torch's DDP, the session and the workload, as it stands."""
        loaded, crew = self._loaded, self._work.crew
        if crew is None:
            return ()
        if loaded is None:
            return all_knobs(None, facts(crew), self._own)
        return all_knobs(loaded.settings, loaded.facts, self._own)

    def _meant(self, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """With functions in the place of their names, but of the workload that is loaded."""
        loaded = self._loaded
        same = loaded is not None and configuration.get("workload") == loaded.settings.name
        kept = {"workload": loaded.settings.name} if loaded is not None and same else {}
        return {**self._own.meant(configuration), **kept}

    def _other(self, workload: str | Workload) -> bool:
        """Whether another one is loaded, or none."""
        return self._loaded is None or workload != self._loaded.settings.name

    def _take(self, workload: str | Workload, configuration: dict[str, Any]) -> str:
        """Another workload, with what is configured already; it need not know its options."""
        loaded, work = self._loaded, self._work
        settings = prediction.other_workload(None if loaded is None else loaded.settings, workload)
        if loaded is None:
            self._load(settings, configuration)
        else:
            with work.during("loading", f"{settings.name} is built on all ranks"):
                work.do(lambda: loaded.become(settings, configuration), "configure")
        return prediction.RELOADED

    def compare(
        self,
        modes: Collection[str] | None = None,
        configurations: Mapping[str, Mapping[str, Any]] | None = None,
        rounds: int = 3,
        steps: int = 20,
        warm: int = 5,
        backend: str = "inductor",
    ) -> Any:
        """Run the workload in several configurations, in turns, and measure them side by side.

        ``modes``: of ``compile_mode``, with "eager" for none, compiled by ``backend``.
        ``configurations``: what :meth:`configure` takes but another workload, by a name each. All
        begin with the same weights and batches in each of ``rounds``, run ``warm`` steps and then
        ``steps`` that are measured. The session then has its workload loaded anew, as it was
        configured. Returns a :class:`ddpviz.analysis.Comparison`, which ranks only what the noise
        between rounds can tell apart.

        Raises ConfigurationError for an unknown mode or fewer than two configurations, RankFailed
        where a rank fails, SessionError where :meth:`stop` ended it.
        """
        self._work.idle("compare")
        loaded = self._need("compare")
        base = loaded.settings
        wanted = dict(configurations or {})
        wanted = {**comparing.of_modes(modes or (), backend), **wanted}
        if len(wanted) < 2:
            raise ConfigurationError(
                f"found {len(wanted)} configuration to compare, expected two or more: give modes=, "
                "as ['eager', 'ddp_optimizer'], or configurations= by name"
            )
        for given in wanted.values():
            loaded.check_names(given)
        counted = (checks.steps(rounds, "rounds"), checks.steps(steps), checks.every(warm, "warm"))
        with self._work.alone("comparing", "the comparison", "compare") as alone:
            try:
                found = comparing.trials(self, alone, base, wanted, *counted)
            finally:
                self._put_back(base)
        comparing.keep(self, found)
        return self.recording.comparison(found)

    def _put_back(self, settings: Settings) -> None:
        """Have the workload as it was configured, now or by the next restart."""
        if self._work.driver.closed:
            return
        if self.failure is None:
            self._load(settings, {})
        elif self._loaded is not None:
            self._loaded.settings = settings

    # --- looking ---------------------------------------------------------------------------------

    def status(self) -> SessionStatus:
        """What the session is doing. Asks no rank; takes well below a millisecond."""
        work, loaded = self._work, self._loaded
        word, reason = work.activity()
        doing = "stepping" if work.training is not None else "idle"
        doing = word if word in ("starting", "loading", "restarting") else doing
        crew = work.crew
        ranks = status.of_ranks(crew, doing, work.in_cells())
        if word == "idle" and (why := status.gone(ranks, self._count)):
            word, reason = "failed", why
        return SessionStatus(
            self.id,
            word,
            reason,
            "" if loaded is None else loaded.settings.name,
            crew.placements[0].backend if crew is not None and crew.placements else "",
            self._count,
            0 if loaded is None else loaded.step,
            ranks,
            work.failure,
            self._changes.count(
                None if loaded is None else loaded.settings,
                0 if crew is None else crew.fingerprints,
            ),
        )

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have a function called whenever the status, the configuration or the failure changed.

        From any thread, so it must be quick. While there is one, records leave the ranks 10
        times a second, else 4 times. Returns what ends it.
        """
        return self._work.listeners.add(callback)

    @property
    def failure(self) -> RankFailed | None:
        """What stopped the session, until :meth:`restart`."""
        return self._work.failure

    @property
    def pids(self) -> dict[int, int]:
        """The process of each rank, by rank."""
        return {one.rank: one.info.pid for one in self._crew.members}

    def checksums(self) -> dict[int, str]:
        """SHA-256 of each rank's parameters, by rank: equal while the replicas are."""
        self._work.check()
        self._need("checksums")
        found: dict[int, str] = self._work.do(lambda: self._crew.ask("checksum"), "checksums")
        return found

    def fingerprints(self, every: int = 1, first: int = 0) -> Session:
        """Have ranks hash parameters, gradients and buffers in every so many steps (0: in none of
        these), and in the ``first`` so many from now on.

        From the next chunk of steps on, also after a restart. ``recording.replicas()`` then tells
        what is equal on all ranks, ``recording.buffer_values()`` how buffers drift, and
        ``recording.audit()`` what is wrong. No collective is added; a step that is sampled takes
        longer, as all of it is read once. Raises ConfigurationError for anything but whole numbers
        from 0 on.
        """
        every, first = checks.every(every), checks.every(first, "first")
        self._work.check()
        self._work.do(lambda: self._crew.fingerprint(every, first), "fingerprints")
        return self

    def fingerprint(self) -> Session:
        """Sample the next step that runs, whatever :meth:`fingerprints` said."""
        self._work.check()
        self._work.do(self._crew.fingerprint_next_step, "fingerprint")
        return self

    @property
    def fingerprints_every(self) -> int:
        """In how many steps fingerprints are taken once; 0 for never."""
        return self._crew.fingerprints

    def walk(self) -> Session:
        """Have every rank's next step note which functions of torch it runs.

        While training is on, the first step of the next chunk; else the next that :meth:`run` or
        a cell takes. That step takes some milliseconds more. ``recording.walk()`` shows it.
        """
        self._work.check()
        self._work.do(lambda: self._crew.ask("walk"), "walk")
        return self

    def explorer(self, views: list[str] | None = None) -> Any:
        """A widget that shows this session live, see :class:`ddpviz.explorer.Explorer`."""
        from ddpviz.explorer import Explorer

        return Explorer(self, views)

    def demonstrate(self, name: str) -> Any:
        """Run a small set-up that makes one fact visible, and show it: a result to print, or to
        have as the last line of a cell. :func:`ddpviz.demonstrations.demonstrations` lists them.

        It takes the place of the workload that is loaded, and leaves the session idle. Raises
        ValueError for an unknown name, SessionError where the session is busy or has one rank, and
        where :meth:`stop` ended it.
        """
        from ddpviz.demonstrations import demonstrate
        from ddpviz.demonstrations.catalogue import demonstration

        title = demonstration(name).title
        loaded = self._loaded
        replaced = ""
        if loaded is not None and loaded is not self._demonstrated:
            replaced = loaded.settings.name
        with self._work.alone("demonstrating", f"the demonstration {title!r}", "demonstrate"):
            try:
                return demonstrate(self, name, replaced)
            finally:
                if self._loaded is not loaded:
                    self._demonstrated = self._loaded

    # --- cells -----------------------------------------------------------------------------------

    def execute(
        self, code: str, ranks: Collection[int] | None = None, on_output: Output | None = None
    ) -> Execution:
        """Run Python code on ranks (None: on all), beside code that runs on others; returns at
        once.

        It finds ``rank``, ``world_size``, ``device``, ``dist``, ``torch`` and ``session`` (this
        rank's part: ``session.recorder``, ``session.ddp``) and what earlier code left, until a
        restart. Any DistributedDataParallel built there is recorded. ``on_output(rank, stream,
        text)`` takes what it prints, as it comes; by default that is printed here.

        Raises SessionError while the session trains or is busy, or a rank runs code already;
        ValueError for a rank that does not exist.
        """
        self._work.check()
        wanted = sorted(range(self._count) if ranks is None else {*ranks})
        if not wanted or any(rank not in range(self._count) for rank in wanted):
            last = self._count - 1
            raise ValueError(f"found ranks={wanted}, expected some of 0 to {last}")
        work = self._work
        found = Execution(
            self._crew, code, wanted, on_output, work.fail, work.listeners.tell, next(self._cells)
        )
        work.execute(found)
        return found

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """End the engines (those of a cluster passed in stay). Idempotent.

        Raises nothing of what goes wrong with them: stderr has it.
        """
        work = self._work
        if work.driver.closed:
            return
        work.stopping = True
        registry.remove(self.id)
        known = self.failure
        try:
            if work.crew is not None:
                work.cancel_cells()
                leaving = work.driver.submit(work.crew.leave)
                # What runs may end; it has as long as stop() gives it.
                work.wait(leaving, "it did not end what it did")
                tell(leaving.exception())
            if self.failure is not known:
                tell(self.failure)
        except SessionError as error:
            tell(error)
        finally:
            work.end(self._finalizer)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        word, _ = self._work.activity()
        return f"<Session {self.id}: {self._count} ranks, {word}, recorded in {self.directory}>"

    def _ask(self, task: str) -> Any:
        return self._work.do(lambda: self._crew.ask(task), task)

    def _ask_first(self, task: str) -> Any:
        return self._work.do(lambda: self._crew.ask_first(task), task)

    @property
    def _crew(self) -> Crew:
        assert self._work.crew is not None
        return self._work.crew

    def _need(self, what: str) -> Loaded:
        if self._loaded is None:
            raise SessionError(f'no workload is loaded: call load("convnet") before {what}()')
        return self._loaded
