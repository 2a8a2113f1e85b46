"""Is a module still what its Reducer was built for? Looked at in a few steps, not in each.

By names, so it takes as long as ``named_parameters()``: some microseconds per parameter.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from ddpviz.events import Parted, Strides
from ddpviz.probe.layout import bucket_strides, strides

if TYPE_CHECKING:
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState

#: Steps in which modules are looked at: the first ones, then every so many, and sampled ones.
_FIRST, _EVERY = 3, 64


def look(recorder: Recorder, state: ModuleState, synced: bool) -> None:
    """As a module is attached, and after a backward; once per step. ``synced``: it reduced the
    module's gradients."""
    step = recorder.steps.index
    due = step < _FIRST or step % _EVERY == 0 or recorder.fingerprints.due
    # One that should have reduced and did not is looked at in any step: this may tell why.
    strange = not synced and state.unreduced.forwards > 0 and not state.unreduced.no_sync
    ddp = state.ddp()
    if ddp is None or not (due or strange) or state.looked == step or not state.names:
        return
    state.looked = step
    live = state.live_parameters(ddp)
    _parted(recorder, state, ddp, live)
    if synced:
        _strides(recorder, state, ddp)


def _parted(
    recorder: Recorder, state: ModuleState, ddp: Any, live: dict[str, torch.Tensor]
) -> None:
    known = {id(reference()): name for name, reference in _known(state)}
    alive = {id(parameter) for parameter in live.values() if parameter.requires_grad}
    ignored = {name.removeprefix(".") for name in ddp.parameters_to_ignore}
    replaced, idle = [], []
    for name, reference in _known(state):
        here, ours = live.get(name), reference()
        if id(ours) in alive:  # also under another name: a wrapper was put around its layer
            continue
        if here is None and _under(_path(name), live, known):
            replaced.append(name)
        elif here is None or not here.requires_grad:
            idle.append(name)
        elif id(here) not in known:
            replaced.append(name)
    added = [
        name
        for name, parameter in live.items()
        if parameter.requires_grad
        and id(parameter) not in known
        and name not in ignored
        and name not in replaced
    ]
    now = Parted(
        state.id,
        recorder.steps.index,
        time.time_ns(),
        tuple(replaced),
        tuple(added),
        tuple(idle),
    )
    before = state.parted
    if _names(now) != (((), (), ()) if before is None else _names(before)):
        state.parted = now
        recorder.note(now)


def _path(name: str) -> str:
    """Of its module; empty for the root's own."""
    return name.rpartition(".")[0]


def _under(path: str, live: dict[str, torch.Tensor], known: dict[int, str]) -> bool:
    """Whether a module, or what took its place, has parameters that the Reducer does not."""
    return bool(path) and any(
        name.startswith(f"{path}.") and parameter.requires_grad and id(parameter) not in known
        for name, parameter in live.items()
    )


def _known(state: ModuleState) -> list[tuple[str, Any]]:
    return list(zip(state.names, state.parameters, strict=True))


def _names(note: Parted) -> tuple[tuple[str, ...], ...]:
    return note.replaced, note.added, note.idle


def _strides(recorder: Recorder, state: ModuleState, ddp: Any) -> None:
    """With buckets as views a gradient is its part of the bucket after the backward: there the
    parameter's own strides tell how autograd hands it over."""
    views = bool(getattr(ddp, "gradient_as_bucket_view", False))
    names, nbytes = [], 0
    for (name, reference), expected in zip(_known(state), state.strides, strict=False):
        parameter = reference()
        grad = None if parameter is None else parameter.grad
        if parameter is None or grad is None or grad.layout is not torch.strided:
            continue
        if (bucket_strides(parameter) if views else strides(grad)) != expected:
            names.append(name)
            nbytes += grad.nbytes
    if tuple(names) != state.strided:
        state.strided = tuple(names)
        recorder.note(
            Strides(state.id, recorder.steps.index, time.time_ns(), state.strided, nbytes)
        )


def remember(state: ModuleState) -> None:
    """A plan was made: its buckets lie as the parameters lie now."""
    state.strides = tuple(
        () if parameter is None else bucket_strides(parameter)
        for parameter in (reference() for reference in state.parameters)
    )
