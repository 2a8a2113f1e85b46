"""Does an optimizer step with gradients that were never reduced? Told without looking at them.

A backward that gives gradients and ends without a reduction leaves its mark on their version
counters; of each module a few are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ddpviz.events import NO_GROUP, Flag, Kind

if TYPE_CHECKING:
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState

_KIND, _NO_SYNC = int(Kind.UNREDUCED), int(Flag.NO_SYNC)
#: Parameters of a module that are looked at: each costs a tenth of a microsecond per backward.
_MANY = 4

_Marks = tuple[tuple[int, int], ...]


def marks(state: ModuleState) -> _Marks:
    """What a backward changes in the gradients that are looked at."""
    parameters = state.parameters
    found = []
    for place in _places(state):
        parameter = parameters[place]()
        grad = None if parameter is None else parameter.grad
        found.append((0, -1) if grad is None else (id(grad), grad._version))
    return tuple(found)


def _places(state: ModuleState) -> range:
    many = len(state.parameters)
    return range(0, many, max(many // _MANY, 1))


def reduced(state: ModuleState) -> None:
    """A backward reduced the gradients, and with them what earlier ones had left."""
    state.unreduced.begin_ns = state.unreduced.backwards = 0


def left(
    state: ModuleState, before: _Marks, begin_ns: int, reducing: Sequence[ModuleState] = ()
) -> bool:
    """A backward ended that reduced nothing; whether it left gradients. ``before``: :func:`marks`
    as it began. ``reducing``: modules whose gradients it did reduce, which may share parameters
    with this one: of these nothing is left."""
    here = state.unreduced
    after = marks(state)
    if not here.seen or after == before:
        return False
    if reducing:
        shared = {id(parameter()) for other in reducing for parameter in other.parameters}
        changed = [
            place
            for place, now, then in zip(_places(state), after, before, strict=True)
            if now != then
        ]
        if all(id(state.parameters[place]()) in shared for place in changed):
            return False
    here.begin_ns = here.begin_ns or begin_ns
    here.backwards += 1
    return True


def optimizer_steps(recorder: Recorder, optimizer: Any, begin_ns: int) -> None:
    """It begins to step. One that steps other parameters leaves these for later."""
    for state in recorder.modules.states():
        here = state.unreduced
        if not here.backwards:
            if here.forwards and steps(optimizer, state):
                here.forwards = 0
            continue
        if not steps(optimizer, state):
            continue
        if any(version >= 0 for _, version in marks(state)):  # else set to None since then
            recorder.write_rows(
                (here.begin_ns, begin_ns, 0, recorder.steps.current, state.backward_iteration,
                 here.backwards, here.forwards, recorder.label(type(optimizer).__name__),
                 recorder.rank, _NO_SYNC if here.no_sync else 0, _KIND, 0, state.id, NO_GROUP, 0)
            )  # fmt: skip
        here.begin_ns = here.backwards = here.forwards = 0


def steps(optimizer: Any, state: ModuleState) -> bool:
    """Whether the optimizer has the first of the module's parameters."""
    first = state.parameters[0]() if state.parameters else None
    return any(
        parameter is first for group in optimizer.param_groups for parameter in group["params"]
    )
