"""A workload on the ranks: built, trained in chunks of steps, wrapped in DDP anew."""

from __future__ import annotations

from typing import Any

from ddpviz.engines import configure, shipping, tasks
from ddpviz.engines.crew import Crew
from ddpviz.engines.errors import ConfigurationError
from ddpviz.engines.ranks import Problem

#: A chunk of steps is sized to this: short enough for stop() and configure() to feel prompt,
#: long against the 10 ms that a round trip to the engines takes.
_CHUNK_SECONDS = 0.5


class Loaded:
    """Made by :meth:`build`; used from the driver's thread.

    ``chunk``: steps that take about half a second.
    """

    def __init__(
        self, crew: Crew, workload: str | bytes, options: dict[str, Any], ddp: dict[str, Any]
    ):
        self.chunk = 1
        self._crew = crew
        self._workload = workload
        self._options = options
        self._ddp = ddp

    @classmethod
    def build(cls, crew: Crew, workload: str | bytes, values: dict[str, Any]) -> Loaded:
        """Build it on all ranks. ``values``: DDP's arguments and the workload's options, mixed.

        Raises ConfigurationError for unknown names, RankFailed where a rank cannot build it.
        """
        names = crew.ask_first("options", workload)
        ddp, options = configure.split(values, crew.ddp_arguments, names)
        loaded = cls(crew, workload, options, ddp)
        loaded.rebuild()
        return loaded

    def rebuild(self) -> None:
        """Weights, batches and steps from the beginning."""
        packed = shipping.dumps((self._options, self._ddp))
        self.chunk = 1
        outcomes = self._crew.call("build", lambda rank: (self._workload, packed))
        if _problems(outcomes):
            # Nobody waits for anybody in a collective, so the ranks stay as they are.
            raise self._crew.describe(outcomes, "put it right and load it again")
        self._crew.values(outcomes)
        self._crew.first_step = self._crew.next_step

    def advance(self, steps: int) -> float:
        """So many steps; returns the mean of the ranks' last losses."""
        done = self._crew.ask("run", lambda rank: (steps,))
        seconds = max(one.seconds for one in done.values()) / steps
        # At most doubled: the first steps are slower than the rest.
        self.chunk = max(1, min(2 * steps, int(_CHUNK_SECONDS / max(seconds, 1e-6))))
        return float(sum(one.loss for one in done.values()) / len(done))

    def configure(self, values: dict[str, Any]) -> str:
        """Wrap the model with changed arguments of DDP; says what that took.

        Raises ConfigurationError for an unknown name or a value that DDP refuses.
        """
        changed, _ = configure.split(values, self._crew.ddp_arguments, ())
        new = {**self._ddp, **changed}
        if new == self._ddp:
            return "nothing to change"
        packed, before = shipping.dumps(new), shipping.dumps(self._ddp)
        outcomes = self._crew.call("wrap", lambda rank: (packed,))
        problems = _problems(outcomes)
        if problems:
            # DDP refused on every rank: no collective is open, so the old one can be put back.
            self._crew.ask("wrap", lambda rank: (before,))
            given = ", ".join(f"{name}={value!r}" for name, value in values.items())
            raise ConfigurationError(
                f"DDP does not take {given}: {problems[0].message}; "
                "the configuration is what it was"
            )
        self._crew.values(outcomes)
        self._ddp = new
        return "re-wrapped"


def _problems(outcomes: dict[int, tasks.Outcome]) -> list[Problem]:
    """The ranks' exceptions where every rank has one; else none."""
    found = [one.report.problem for one in outcomes.values() if one.report is not None]
    problems = [one for one in found if one is not None]
    return problems if len(problems) == len(outcomes) else []
