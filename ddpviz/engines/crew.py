"""The ranks of a session: formed on engines, asked together, taken leave of, formed anew."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpviz.engines import cluster as clusters
from ddpviz.engines import failure, ranks, tasks
from ddpviz.engines.errors import RankFailed, SessionError
from ddpviz.engines.feed import Feed
from ddpviz.engines.progress import Progress, say
from ddpviz.engines.salvage import Salvage
from ddpviz.events import Failure, Process

if TYPE_CHECKING:
    from ddpviz.recording import Recording

#: An idle engine answers in milliseconds, a new one may still be loading what it needs.
_ANSWER_SECONDS = 15.0
_LEAVE_SECONDS = 10.0

_Arguments = Callable[[int], tuple[Any, ...]]


class Crew:
    """All ranks, used from one thread (the driver's).

    Every method that asks ranks raises RankFailed where one goes wrong, with the records made
    whole before; :attr:`failure` then holds it until :meth:`restart`. Where there are no ranks,
    as a restart brought none, it raises SessionError. ``give_up``: why ranks that do not come
    back are not to be waited for, "" for not; it is asked while they are.
    """

    def __init__(
        self,
        engines: clusters.Engines,
        backend: str | None,
        seed: int,
        directory: Path,
        level: str,
        recording: Recording,
        give_up: Callable[[], str],
    ):
        self.engines = engines
        self.failure: RankFailed | None = None
        #: The recording's number of the workload's step 0.
        self.first_step = 0
        self.members: list[tasks.Member] = []
        self.placements: list[ranks.Placement] = []
        #: Whether somebody watches, so that records leave the ranks more often.
        self.watched: Callable[[], bool] = bool
        self.ddp_arguments: tuple[str, ...] = ()
        #: Whether python_reducer has been on in these engines: what it set there stays.
        self.leaky = False
        self._backend = backend
        self._join = (seed, str(directory), level)
        self._fingerprints = (0, 0)
        self._directory = directory
        self._recording = recording
        self._asked_to_give_up = give_up
        self._feed = Feed(recording.append)
        self._lives: Counter[int] = Counter()
        self._born_step = 0
        self._stepping = False
        self._together: int | None = None  # calls of all ranks in it, made up to now

    def lost(self) -> str:
        """Why no rank can be asked any more, "" for not."""
        return clusters.controller_ending(self.engines)

    def form(self) -> None:
        """Ranks on engines, and their process group."""
        with Progress("forming ranks, part", 4) as progress:
            engines = [
                tasks.Member(rank, engine, ranks.nobody())
                for rank, engine in enumerate(self.engines.ids)
            ]
            self._prepare(engines)
            progress.update(1, "engines import torch")
            infos = self.values(self.call("identify", members=engines))
            by_engine = {self.engines.ids[rank]: info for rank, info in infos.items()}
            placements, said = ranks.place(by_engine, self._backend)
            self.members = [
                tasks.Member(one.rank, one.engine, by_engine[one.engine]) for one in placements
            ]
            self.placements = placements
            self.ddp_arguments = infos[0].ddp_arguments
            self._feed = Feed(self._recording.append)
            self._lives = Counter(note.rank for note in self._recording.notes(Process))
            self._born_step = self.next_step
            progress.update(2, "process group")
            self.ask("see", lambda rank: (placements[rank].visible_gpu,))
            meeting = self.ask_first("rendezvous", placements[0].local)
            progress.update(3)
            self.ask(
                "join", lambda rank: (placements[rank], *meeting, *self._join, self._fingerprints)
            )
            progress.update(4, said)

    def restart(self, count: int) -> None:
        """End the engines, whatever they do, and form ranks on new ones."""
        lost = {
            one.engine for one in self.members if clusters.dead(self.engines, one.engine, one.info)
        }
        found = self.leave()
        if found is not None:
            say(found.summary)  # no call will raise it
        clusters.restart(self.engines, count, lost, self._asked_to_give_up)
        self.failure, self.members, self.leaky = None, [], False
        self.form()

    def fingerprint(self, every: int, first: int) -> None:
        """Take fingerprints in every so many steps, and in the first ones; also after a restart."""
        self._fingerprints = every, first
        self.ask("fingerprint", lambda rank: (every, first))

    def fingerprint_next_step(self) -> None:
        """Take fingerprints in the next step."""
        self.ask("fingerprint_next_step")

    @property
    def fingerprints(self) -> int:
        """In how many steps they are taken once; 0 for never."""
        return self._fingerprints[0]

    def leave(self) -> RankFailed | None:
        """Let ranks end their records, where all are well: none would wait for another.

        Where one turns out not to be, returns what :attr:`failure` says from then on.
        """
        if self.failure is not None or not self.members:
            return None
        outcomes = tasks.deaths(self.engines, self.members, self._directory)
        well = [one for one in self.members if one.rank not in outcomes]
        if well:
            # An engine of somebody else's cluster may be at somebody else's work.
            kill = self.engines.owned
            outcomes |= self.call("leave", members=well, limit_s=_LEAVE_SECONDS, kill=kill)
        if not all(one.fine for one in outcomes.values()):
            self.failure = self.describe(outcomes, "session.restart() gives working engines")
        self.members = []
        return self.failure

    @property
    def next_step(self) -> int:
        """The number that the recording will give to the next step."""
        return self._recording.last_step + 1

    @property
    def next_own_step(self) -> int:
        """The same as the ranks' recorders count it: from 0 in each process."""
        return self.next_step - self._born_step

    def ask(
        self, name: str, arguments: _Arguments = lambda rank: (), idle: bool = True
    ) -> dict[int, Any]:
        """A task on every rank; their values by rank. ``idle``: see :meth:`call`."""
        return self.values(self.call(name, arguments, idle=idle))

    def ask_first(self, name: str, *arguments: Any) -> Any:
        """A task on rank 0 alone; its value."""
        return self.values(self.call(name, lambda rank: arguments, self.members[:1]))[0]

    def call(
        self,
        name: str,
        arguments: _Arguments = lambda rank: (),
        members: list[tasks.Member] | None = None,
        limit_s: float = math.inf,
        kill: bool = True,
        idle: bool = True,
    ) -> dict[int, tasks.Outcome]:
        """A task on every rank (or some); how it ended on each.

        Where processes have ended since the last task, nothing is asked of the others, which
        would wait for them: the outcomes are then those of the dead alone. ``idle``: whether they
        had nothing to do meanwhile, as between two chunks of a training they have, and between
        the calls of :meth:`together`.
        """
        idle = idle and not self._together
        members = self.members if members is None else members
        _there(members)
        self._stepping = name == "run"
        dead = tasks.deaths(self.engines, members, self._directory, idle)
        if self._together is not None and members is self.members:
            self._together += 1
        return dead or tasks.call(
            self.engines,
            members,
            name,
            arguments,
            feed=self._feed,
            give_up=self._give_up,
            directory=self._directory,
            limit_s=limit_s,
            kill=kill,
            idle=idle,
        )

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """The calls in it are one: a rank that ends between two of them was at something."""
        self._together = 0
        try:
            yield
        finally:
            self._together = None

    def cell(
        self,
        members: list[tasks.Member],
        code: str,
        number: int,
        output: Callable[[int, str, str], None] | None,
        give_up: Callable[[], str],
        heard: Callable[[int, tasks.Outcome], None],
    ) -> dict[int, tasks.Outcome]:
        """Code of the user's on some ranks; how it ended on each. From any thread, also beside
        other ranks' cells, but with nothing else. What it raises is a value of its report.
        """
        _there(members)
        return tasks.deaths(self.engines, members, self._directory) or tasks.call(
            self.engines,
            members,
            "cell",
            lambda rank: (code, number, self.watched()),
            feed=self._feed,
            give_up=give_up,
            directory=self._directory,
            output=output,
            heard=heard,
        )

    def fail(self, outcomes: dict[int, tasks.Outcome], why: str) -> RankFailed:
        """A cell's outcomes went wrong; what the session failed of, also if by another cell.

        ``why``: as of ``give_up``.
        """
        self._stepping = False
        if self.failure is None:
            self.failure = self.describe(outcomes, "session.restart() gives working engines", why)
        else:
            with Salvage(self._directory, self._recording) as salvage:
                self._save(salvage, outcomes)
        return self.failure

    def values(self, outcomes: dict[int, tasks.Outcome]) -> dict[int, Any]:
        """The ranks' values by rank. Where one went wrong: raises the one error."""
        if all(one.fine for one in outcomes.values()):
            return {rank: one.report.value for rank, one in outcomes.items() if one.report}
        self.failure = self.describe(outcomes, "session.restart() gives working engines")
        raise self.failure

    def describe(
        self, outcomes: dict[int, tasks.Outcome], advice: str, why_hung: str = ""
    ) -> RankFailed:
        """The error for outcomes that went wrong, after what dead ranks recorded was saved."""
        hosts = {one.rank: one.info.host for one in self.members}
        advice = f"recorded up to then: {self._directory}; {advice}"
        with Salvage(self._directory, self._recording) as salvage:
            silent = self._save(salvage, outcomes)
            scene = failure.Scene(
                self._recording,
                lives=self._lives,
                base=self.first_step,
                one_clock=set(hosts.values()) <= {ranks.this_host()},
                behind=salvage.behind,
                stepping=self._stepping,
            )
            error = failure.error(outcomes, scene, advice, why_hung or self._give_up())
            if error.rank in silent:
                # A rank's own files count steps from its process's start.
                step = error.step - self._born_step if error.step >= 0 else -1
                now_ns = scene.now_ns(error.rank)
                said = error.reason, error.rank_traceback
                salvage.note(Failure(error.rank, step, now_ns, *said))
            error.remarks = tuple(salvage.remarks())
        return error

    def _give_up(self) -> str:
        return self._asked_to_give_up() or self.lost()

    def _save(self, salvage: Salvage, outcomes: dict[int, tasks.Outcome]) -> set[int]:
        """Take in what ranks that cannot say so any more recorded; which these are."""
        hosts = {one.rank: one.info.host for one in self.members}
        silent = {rank: one.gone for rank, one in outcomes.items() if one.report is None}
        salvage.take({rank: (hosts.get(rank, ""), gone) for rank, gone in silent.items()})
        return set(silent)

    def _prepare(self, members: list[tasks.Member]) -> None:
        """Let engines import what we can. Raises SessionError where one is busy, or gone."""
        code = clusters.importing()
        outcomes = tasks.ask(
            self.engines,
            members,
            exec,
            lambda rank: (code, {}),
            give_up=self._give_up,
            limit_s=_ANSWER_SECONDS,
            kill=False,
        )
        for member in members:
            outcome = outcomes[member.rank]
            if outcome.fine:
                continue
            found = f"found that engine {member.engine}"
            problem = outcome.report.problem if outcome.report is not None else None
            if problem is not None:
                raise SessionError(f"{found} cannot run code: {problem.message}")
            if outcome.hung:
                raise SessionError(
                    f"{found} did not answer within {_ANSWER_SECONDS:g} s, expected an idle one: "
                    "it is busy with something else, so wait for that, interrupt it, or give "
                    "other engines"
                )
            raise SessionError(f"{found} is gone, expected a running one: {outcome.ended}")


def _there(members: list[tasks.Member]) -> None:
    """Raises SessionError where there is no rank to ask."""
    if not members:
        raise SessionError(
            "found a session without ranks, as its last restart did not bring them: "
            "call session.restart() again"
        )
