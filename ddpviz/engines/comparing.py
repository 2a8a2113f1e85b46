"""Several configurations of one workload on the same ranks, in turns, from the same weights."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ddpviz.engines import checks, compiled
from ddpviz.engines.alone import Alone
from ddpviz.engines.errors import ConfigurationError
from ddpviz.engines.settings import Settings
from ddpviz.recording.trials import Trial, write_trials

if TYPE_CHECKING:
    from ddpviz.engines.session import Session

EAGER = "eager"
#: Of each parameter; None where a rank could not tell them.
Gradients = list[np.ndarray] | None


def of_modes(modes: Collection[str], backend: str) -> dict[str, dict[str, Any]]:
    """Configurations by the names of compile modes, "eager" for none. python_reducer comes with
    compiled autograd. Raises ConfigurationError for an unknown one."""
    if isinstance(modes, str):
        raise ConfigurationError(f"found modes={modes!r}, expected a list of modes: [{modes!r}]")
    found = {}
    for mode in modes:
        name = compiled.NONE if mode == EAGER else mode
        checks.value("compile_mode", name, 1)
        found[EAGER if name == compiled.NONE else name] = {
            "compile_mode": name,
            "compile_backend": checks.value("compile_backend", backend, 1),
            "compiled_autograd": name == compiled.PYTHON,
        }
    return found


@dataclasses.dataclass(frozen=True)
class Choice:
    """A mode or a backend to compare by. ``disabled``: why it cannot be, None where it can;
    ``remark``: what has to be said of it, "" for nothing."""

    name: str
    disabled: str | None
    remark: str = ""


def choices(session: Session) -> tuple[list[Choice], list[Choice]]:
    """Modes, eager among them, and backends, as the ranks' torch has them and as the workload is
    configured. Asks a rank."""
    why: dict[str, str] = session._ask_first("uncompilable")
    modes = []
    for name, given in of_modes((EAGER, *compiled.MODES[1:]), compiled.BACKENDS[0]).items():
        refused = session.predict(**given).refused
        leaving = "engines are restarted after it, in each round" if _leaks(given) else ""
        remarks = compiled.remarks(compiled.Compile(**given), {})
        remark = "; ".join(filter(None, (*remarks, leaving)))
        modes.append(Choice(name, why.get(name) or refused, remark))
    return modes, [Choice(name, why.get(name)) for name in compiled.BACKENDS]


def trials(
    session: Session,
    alone: Alone,
    base: Settings,
    configurations: Mapping[str, Mapping[str, Any]],
    rounds: int,
    steps: int,
    warm: int,
) -> list[Trial]:
    """Every configuration once in each round, each second round backwards: what drifts with time
    then meets all of them, and engines are restarted as rarely as can be."""
    found: list[Trial] = []
    reference: list[Gradients] | None = None
    compared_to = EAGER if EAGER in configurations else next(iter(configurations))
    uncompared: list[tuple[int, list[Gradients]]] = []
    # PowerSGD changes no gradient before its third step; weights are the same up to there.
    hooks = {given.get("comm_hook", base.comm_hook) for given in configurations.values()}
    after = (1, 3) if "powersgd" in hooks else (1,)
    order = sorted(configurations, key=lambda name: _leaks(configurations[name]))
    for number in range(rounds):
        for name in order if number % 2 == 0 else order[::-1]:
            given = configurations[name]
            alone.check()
            alone.progress = f"round {number + 1} of {rounds}, {name}"
            try:
                session._load(base, dict(given))
            except ConfigurationError as error:
                found.append(Trial(name, number, 0, 0, -1, np.nan, 0, str(error)))
                continue
            first = session.recording.last_step + 1
            mine = []
            for ran, until in itertools.pairwise((0, *after)):
                session.run(until - ran)
                mine.append(session._ask_first("gradients"))
            if reference is None and name == compared_to:
                reference = mine
            if warm + steps > after[-1]:
                session.run(warm + steps - after[-1])
            memory = max(session._ask("memory").values())
            last = session.recording.last_step
            uncompared.append((len(found), mine))
            found.append(Trial(name, number, first, first + warm, last, np.nan, memory))
            # What others are compared to need not be the first that runs.
            while uncompared and reference is not None:
                place, gradients = uncompared.pop()
                apart = [_difference(*pair) for pair in zip(gradients, reference, strict=True)]
                difference = max((one for one in apart if one == one), default=np.nan)
                found[place] = dataclasses.replace(found[place], difference=difference)
    return found


def keep(session: Session, found: list[Trial]) -> None:
    """Beside what the ranks recorded: of these steps the comparison is made again on loading."""
    try:
        write_trials(session.directory, found)
    except OSError as error:
        session.recording.remark(
            f"could not write what was compared to {session.directory} ({error}): "
            "it is in memory only"
        )


def _leaks(configuration: Mapping[str, Any]) -> bool:
    return configuration.get("compile_mode") == compiled.PYTHON


def _difference(mine: Gradients, other: Gradients) -> float:
    if mine is None or other is None:
        return float("nan")
    pairs = list(zip(mine, other, strict=True))
    apart = sum(float(np.square(a.astype(float) - b.astype(float)).sum()) for a, b in pairs)
    whole = sum(float(np.square(b.astype(float)).sum()) for _, b in pairs)
    return float(np.sqrt(apart / whole)) if whole else float(apart > 0)
