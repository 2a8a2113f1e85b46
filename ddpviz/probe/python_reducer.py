"""Whose a functional all-reduce is: python_reducer's go to a group by its name, whichever module of
that group is in backward. Checked on torch 2.13."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState
    from ddpviz.probe.tap import Tap

_HOOK, _MOST_FRAMES = "compiled_accum_grad_hook", 12


def reduces(recorder: Recorder, frame: Any) -> tuple[bool, ModuleState | None]:
    """Whether what a frame sends may be a gradient of python_reducer's, and of which module.

    DDP's hook says so itself where it runs. One that compiled autograd has traced leaves only the
    module whose backward it is, None where several may be.
    """
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        if frame.f_code.co_name == _HOOK:
            return True, recorder.modules.of(frame.f_locals.get("self"))
        frame = frame.f_back
    of = recorder.backward_of
    return of is None or of.python_reducer, of


def heir(recorder: Recorder | None, tap: Tap) -> Any:
    """Who gets a group's name from a tap that has it: another module's of that group, else it."""
    states = [] if recorder is None else recorder.modules.states()
    others = [state.tap for state in states if state.python_reducer and state.tap is not tap]
    for other in others:
        if other is not None and other.inner is tap.inner and other.recorder is recorder:
            return other
    return tap.inner
