"""A workload on the ranks: built, trained in chunks of steps, configured anew."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from typing import Any

from ddpviz.engines import checks, compiled, configure, prediction, shipping, tasks
from ddpviz.engines.crew import Crew
from ddpviz.engines.errors import ConfigurationError, RankFailed
from ddpviz.engines.prediction import (
    NEXT_STEP,
    RECOMPILED,
    RELOADED,
    RESTARTED,
    REWRAPPED,
    Change,
)
from ddpviz.engines.ranks import Problem
from ddpviz.engines.settings import OWN, Facts, Settings

#: A chunk of steps is sized to this: short enough for stop() and configure() to feel prompt,
#: long against the 10 ms that a round trip to the engines takes.
_CHUNK_SECONDS = 0.5


class Loaded:
    """Made by :meth:`prepare`; used from the driver's thread, but for what only reads.

    ``settings``: what is configured. ``facts``: what the ranks are and built. ``chunk``: steps
    that take about half a second. ``step``: steps taken since the load.
    """

    def __init__(self, crew: Crew, settings: Settings):
        self.settings = settings
        self.facts = facts(crew)
        self.chunk = 1
        self.step = 0
        self._crew = crew
        self._options: tuple[str, ...] | None = ()
        self._due = 0.0

    @classmethod
    def prepare(cls, crew: Crew, settings: Settings, values: dict[str, Any]) -> Loaded:
        """``values``: DDP's arguments, the session's own and the workload's options, mixed.

        Nothing is built yet, and what the ranks hold stays. Raises ConfigurationError for what
        cannot be configured.
        """
        loaded = cls(crew, settings)
        first = crew.members[:1]
        outcomes = crew.call("options", lambda rank: (settings.workload,), first)
        if _problems(outcomes):  # it cannot be unpacked there; nothing is broken
            raise crew.describe(outcomes, "put it right and load it again")
        loaded._options = crew.values(outcomes)[0]
        loaded.settings = loaded.plan(values).settings
        return loaded

    def become(self, settings: Settings, values: dict[str, Any]) -> None:
        """Take another workload in its place. Raises as :meth:`configure`."""
        other = Loaded.prepare(self._crew, settings, values)
        before, options = self.settings, self._options
        self._options = other._options
        try:
            self._reload(other.settings, before)
        except BaseException:
            self._options = options
            raise

    def rebuild(self) -> None:
        """Weights, batches and steps from the beginning.

        Raises ConfigurationError where all ranks refuse, RankFailed where one cannot.
        """
        settings = self.settings
        packed = shipping.dumps((dict(settings.options), _wrapping(settings), settings.pace()))
        self.chunk, self.step, self._due = 1, 0, 0.0
        self._leaks(settings)
        outcomes = self._crew.call("build", lambda rank: (settings.workload, packed))
        if problems := _problems(outcomes):
            if all(one.refused for one in problems):
                raise ConfigurationError(f"{settings.name} cannot be loaded: {problems[0].message}")
            # Nobody waits for anybody in a collective, so the ranks stay as they are.
            raise self._crew.describe(outcomes, "put it right and load it again")
        self.facts = dataclasses.replace(facts(self._crew), built=self._crew.values(outcomes)[0])
        self._crew.first_step = self._crew.next_step

    def advance(self, most: int | None = None, goes_on: bool = False) -> tuple[int, float]:
        """A chunk of steps, so many at most; how many, and the mean of the ranks' last losses.

        ``goes_on``: it follows another one of the same training.
        """
        crew, begin = self._crew, time.monotonic()
        steps = self.chunk if most is None else min(self.chunk, most)
        # Code of the user's on the ranks may have taken steps of its own in between.
        crew.first_step = crew.next_step - self.step
        # Asked once: a rank's first records may be here before the next one is asked.
        first, watched = crew.next_own_step, crew.watched()
        done = crew.ask("run", lambda rank: (steps, first, watched), idle=not goes_on)
        self.step = max(one.step for one in done.values())
        seconds = max(one.seconds for one in done.values()) / steps
        # At most doubled: the first steps are slower than the rest.
        self.chunk = max(1, min(2 * steps, int(_CHUNK_SECONDS / max(seconds, 1e-6))))
        if self.settings.steps_per_second is not None:
            self._due = max(begin, self._due) + steps / self.settings.steps_per_second
        return steps, float(sum(one.loss for one in done.values()) / len(done))

    def early_s(self) -> float:
        """How long to wait before the next chunk, where steps per second are limited.

        A rank that waited itself could not be asked anything else meanwhile.
        """
        return max(0.0, self._due - time.monotonic())

    def plan(self, values: dict[str, Any]) -> Change:
        """What values would change; asks no rank. Raises ConfigurationError."""
        return prediction.change(self.settings, values, self.facts, self._options)

    def check_names(self, names: Iterable[str]) -> None:
        """Raises ConfigurationError for a name that no configuration of this workload has."""
        others = dict.fromkeys(name for name in names if name not in OWN)
        configure.split(others, self.facts.ddp_arguments, self._options)

    def configure(self, values: dict[str, Any]) -> str:
        """Change the configuration on all ranks; says what that took.

        Raises ConfigurationError for an unknown name or a value that cannot work; what was
        before then holds again.
        """
        change, before = self.plan(values), self.settings
        self.chunk = 1  # who knows how long a step takes from now on
        if RESTARTED in change.takes:
            self._crew.restart(len(self._crew.members))
            self._reload(change.settings, before)
        if RELOADED in change.takes:
            self._reload(change.settings, before)
        if REWRAPPED in change.takes or RECOMPILED in change.takes:
            self._rewrap(change.settings, values)
        if NEXT_STEP in change.takes:
            packed = shipping.dumps(change.settings.pace())
            self._crew.ask("pace", lambda rank: (packed,))
            self._due = 0.0
        self.settings = change.settings
        return change.outcome()

    def _leaks(self, settings: Settings) -> None:
        self._crew.leaky |= settings.compile_mode == compiled.PYTHON

    def _reload(self, settings: Settings, before: Settings) -> None:
        self.settings = settings
        try:
            self.rebuild()
        except (ConfigurationError, RankFailed) as error:
            self.settings = before
            if self._crew.failure is not None:
                raise
            self.rebuild()
            why = error.reason if isinstance(error, RankFailed) else str(error)
            raise ConfigurationError(
                f"{checks.first_sentence(why)}; the workload was loaded anew as it was before"
            ) from None

    def _rewrap(self, settings: Settings, values: dict[str, Any]) -> None:
        packed = shipping.dumps(_wrapping(settings))
        self._leaks(settings)
        outcomes = self._crew.call("wrap", lambda rank: (packed,))
        problems = _problems(outcomes)
        if problems:
            # Refused on every rank: no collective is open, so the old one can be put back.
            before = shipping.dumps(_wrapping(self.settings))
            self._crew.ask("wrap", lambda rank: (before,))
            given = ", ".join(f"{name}={checks.shown(value)}" for name, value in values.items())
            raise ConfigurationError(
                f"DDP does not take {given}: {problems[0].message}; "
                "the configuration is what it was"
            )
        self._crew.values(outcomes)


def _wrapping(settings: Settings) -> dict[str, Any]:
    """As ranks take it: a function of the user's by value, also one of a module of theirs."""
    given, hook = settings.wrapping(), settings.comm_hook
    return {**given, "comm_hook": shipping.dumps(hook) if callable(hook) else hook}


def facts(crew: Crew) -> Facts:
    """What the ranks are."""
    device = crew.placements[0].device if crew.placements else "cpu"
    return Facts(crew.ddp_arguments, len(crew.members), device)


def _problems(outcomes: dict[int, tasks.Outcome]) -> list[Problem]:
    """The ranks' exceptions where every rank has one; else none."""
    found = [one.report.problem for one in outcomes.values() if one.report is not None]
    problems = [one for one in found if one is not None]
    return problems if len(problems) == len(outcomes) else []
