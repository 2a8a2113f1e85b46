"""The ranks of a session: formed on engines, asked together, taken leave of, formed anew."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpviz.engines import cluster as clusters
from ddpviz.engines import failure, ranks, tasks
from ddpviz.engines.errors import RankFailed
from ddpviz.engines.feed import Feed
from ddpviz.engines.progress import Progress
from ddpviz.events import Failure

if TYPE_CHECKING:
    from ddpviz.recording import Recording


class Crew:
    """All ranks, used from one thread (the driver's) save for :attr:`give_up`.

    Every method that asks ranks raises RankFailed where one goes wrong, with the records made
    whole before; :attr:`failure` then holds it until :meth:`restart`.
    """

    def __init__(
        self,
        engines: clusters.Engines,
        backend: str | None,
        seed: int,
        directory: Path,
        level: str,
        recording: Recording,
    ):
        self.engines = engines
        self.failure: RankFailed | None = None
        #: Why ranks that do not come back are to be killed; set from any thread, "" for not.
        self.give_up = ""
        #: The recording's number of the workload's step 0.
        self.first_step = 0
        self.members: list[tasks.Member] = []
        self.ddp_arguments: tuple[str, ...] = ()
        self._backend = backend
        self._join = (seed, str(directory), level)
        self._directory = directory
        self._recording = recording
        self._feed = Feed(recording.append)
        self._born_ns = 0
        self._born_step = 0

    def form(self) -> None:
        """Ranks on engines, and their process group."""
        with Progress("forming ranks, part", 4) as progress:
            clusters.extend_paths(self.engines)
            progress.update(1, "engines import torch")
            self.members = [
                tasks.Member(rank, engine, ranks.nobody())
                for rank, engine in enumerate(self.engines.ids)
            ]
            infos = self.ask("identify")
            by_engine = {self.engines.ids[rank]: info for rank, info in infos.items()}
            placements, said = ranks.place(by_engine, self._backend)
            self.members = [
                tasks.Member(one.rank, one.engine, by_engine[one.engine]) for one in placements
            ]
            self.ddp_arguments = infos[0].ddp_arguments
            self._feed = Feed(self._recording.append)
            self._born_ns, self._born_step = time.time_ns(), self.next_step
            progress.update(2, "process group")
            self.ask("see", lambda rank: (placements[rank].visible_gpu,))
            meeting = self.ask_first("rendezvous", placements[0].local)
            progress.update(3)
            self.ask("join", lambda rank: (placements[rank], *meeting, *self._join))
            progress.update(4, said)

    def restart(self, count: int) -> None:
        """End the engines, whatever they do, and form ranks on new ones."""
        lost = {
            one.engine for one in self.members if clusters.dead(self.engines, one.engine, one.info)
        }
        self.leave()
        clusters.restart(self.engines, count, lost)
        self.failure, self.give_up = None, ""
        self.form()

    def leave(self) -> None:
        """Let ranks end their records, where all are well: none would wait for another."""
        if self.failure is None and self.members:
            self.call("leave")
            self.members = []

    @property
    def next_step(self) -> int:
        """The number that the recording will give to the next step."""
        return self._recording.last_step + 1

    def ask(
        self, name: str, arguments: Callable[[int], tuple[Any, ...]] = lambda rank: ()
    ) -> dict[int, Any]:
        """A task on every rank; their values by rank."""
        return self.values(self.call(name, arguments))

    def ask_first(self, name: str, *arguments: Any) -> Any:
        """A task on rank 0 alone; its value."""
        return self.values(self.call(name, lambda rank: arguments, self.members[:1]))[0]

    def call(
        self,
        name: str,
        arguments: Callable[[int], tuple[Any, ...]] = lambda rank: (),
        members: list[tasks.Member] | None = None,
    ) -> dict[int, tasks.Outcome]:
        """A task on every rank (or some); how it ended on each."""
        return tasks.call(
            self.engines,
            self.members if members is None else members,
            name,
            arguments,
            feed=self._feed,
            give_up=lambda: bool(self.give_up),
            directory=self._directory,
        )

    def values(self, outcomes: dict[int, tasks.Outcome]) -> dict[int, Any]:
        """The ranks' values by rank. Where one went wrong: raises the one error."""
        if all(one.fine for one in outcomes.values()):
            return {rank: one.report.value for rank, one in outcomes.items() if one.report}
        self.failure = self.describe(outcomes, "session.restart() gives working engines")
        self.give_up = ""
        raise self.failure

    def describe(self, outcomes: dict[int, tasks.Outcome], advice: str) -> RankFailed:
        """The error for outcomes that went wrong, after all records of dead ranks were saved."""
        dead = [rank for rank, one in outcomes.items() if one.ended or one.hung]
        for rank in dead:
            failure.salvage(self._directory, rank, None)
        if dead:
            self._recording.merge(self._directory)
        scene = failure.Scene(self._recording, self._born_ns, self.first_step)
        advice = f"recorded up to then: {self._directory}; {advice}"
        error = failure.error(outcomes, scene, advice, self.give_up)
        if error.rank in dead:
            # A rank's own files count steps from its process's start.
            step = error.step - self._born_step if error.step >= 0 else -1
            note = Failure(error.rank, step, time.time_ns(), error.reason, error.rank_traceback)
            failure.salvage(self._directory, error.rank, note)
            self._recording.merge(self._directory)
        return error
