"""A rank's training, inside its engine: build the workload, wrap it in DDP, take steps."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import inspect
import pickle
import random
import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch

from ddpviz.engines import compiling, wrapping
from ddpviz.engines.errors import ConfigurationError, WorkloadError
from ddpviz.engines.ranks import Progressed
from ddpviz.engines.settings import Built
from ddpviz.engines.state import RankState
from ddpviz.events import Kind
from ddpviz.probe.describe import call_module
from ddpviz.probe.schedule import Schedule


def options(workload: str | bytes) -> tuple[str, ...] | None:
    """Names of what a workload takes besides rank, world size and device; None: any."""
    parameters = _options(_function(workload))
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return tuple(parameter.name for parameter in parameters)


def build(state: RankState, workload: str | bytes, configuration: bytes) -> Built:
    """Make model, batches and loss (a built-in's module, or a pickled function), and wrap.

    ``configuration``: (the workload's options, ``Settings.wrapping``, ``Settings.pace``), pickled.
    Raises WorkloadError where the workload returns something else than it should, and
    ConfigurationError where a built-in or DDP refuses.
    """
    values, wrapped, paced = pickle.loads(configuration)
    function = _function(workload)
    state.step = -1
    wrapping.unwrap(state)
    state.model = state.optimizer = None  # two of them might not fit
    state.replaced = []
    _seed(state.seed)
    placement = state.placement
    device = torch.device(placement.device)
    try:
        made = function(placement.rank, placement.world_size, device, **values)
    except ValueError as error:
        if isinstance(workload, bytes):
            raise
        raise ConfigurationError(str(error)) from error
    if not isinstance(made, tuple) or len(made) != 3 or not isinstance(made[0], torch.nn.Module):
        raise WorkloadError(
            f"found that the workload returned {_describe(made)}, expected a tuple: "
            "(torch.nn.Module, batch(step), loss(output, batch))"
        )
    model, state.batch, state.loss = made
    state.model = model.to(device)
    call_module(state.model, _called(workload, function))
    state.optimizer = torch.optim.SGD(state.model.parameters(), lr=0.01, momentum=0.9)
    state.next_step = state.next_batch = 0
    # Other random numbers on each rank from here on (dropout), the same in each session.
    _seed(state.seed + 1 + placement.rank)
    pace(state, pickle.dumps(paced))
    _wrap(state, wrapped)
    names = tuple(name for name, _ in state.model.named_parameters())
    return Built(names, wrapping.has_batchnorm(state.model), _defaults(function))


def wrap(state: RankState, configuration: bytes) -> None:
    """Put DDP around the model anew, as ``Settings.wrapping`` (pickled) says.

    Weights, optimizer and step number stay.
    """
    _wrap(state, pickle.loads(configuration))


def _wrap(state: RankState, given: dict[str, Any]) -> None:
    wrapping.wrap(state, given)
    if state.compile.on:
        _note(state, dataclasses.asdict(state.compile))


def pace(state: RankState, configuration: bytes) -> None:
    """How the next steps are taken: ``Settings.pace``, pickled."""
    given = pickle.loads(configuration)
    changed = {name: one for name, one in given.items() if state.pace.get(name, one) != one}
    state.pace = given
    state.due = 0.0
    if changed:
        _note(state, changed)


def run(state: RankState, steps: int, first: int = 0, live: bool = False) -> Progressed:
    """So many training steps, all on this thread.

    ``first``: what the recorder is to count the first of them as, at least: code of the user's
    may have taken more steps on one rank than on another. ``live``: whether somebody watches.
    """
    assert state.batch is not None and state.loss is not None
    begin = time.perf_counter()
    state.watch(live)
    state.recorder.steps.index = max(state.recorder.steps.index, first - 1)
    batches = state.pace["accumulation"]
    loss: torch.Tensor | None = None
    try:
        for _ in range(steps):
            state.step = state.next_step
            _wait_until_due(state)
            with _slowed(state):
                state.optimizer.zero_grad(set_to_none=True)
                for left in reversed(range(batches)):
                    with state.ddp.no_sync() if left else contextlib.nullcontext():
                        loss = _backward(state, batches)
                state.optimizer.step()
            state.next_step += 1
        state.step = -1
    finally:
        state.recorder.flush()
    last = float("nan") if loss is None else float(loss.detach())
    return Progressed(state.next_step, last, time.perf_counter() - begin)


def _backward(state: RankState, batches: int) -> torch.Tensor:
    """Forward and backward of one batch; its loss."""
    assert state.batch is not None and state.loss is not None
    batch = state.batch(state.next_batch)
    state.next_batch += 1
    loss: torch.Tensor = state.loss(state.call(*_inputs(batch)), batch)
    with compiling.backward(state):
        (loss / batches if batches > 1 else loss).backward()
    return loss


def fingerprint(state: RankState, every: int, first: int) -> None:
    """From the next step on, in every so many steps (0: none of these) and in the first ones."""
    state.recorder.fingerprint_every(Schedule(every, first))


def fingerprint_next_step(state: RankState) -> None:
    """In the next step, whatever the schedule."""
    state.recorder.fingerprint_next_step()


def walk(state: RankState) -> None:
    """Note which functions of torch the next step runs."""
    state.recorder.walk_next_step()


def checksum(state: RankState) -> str:
    """SHA-256 of this rank's parameters, as they lie in memory."""
    digest = hashlib.sha256()
    for name, tensor in state.model.named_parameters():
        digest.update(name.encode())
        data = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(data.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


#: Gradients of more bytes than this are not sent to be compared.
_MOST_GRADIENT_BYTES = 2**28


def gradients(state: RankState) -> list[numpy.ndarray] | None:
    """This rank's gradients as the last step left them, in float32 by parameter, zeros where there
    is none. None where they are more than 256 MiB."""
    parameters = list(state.model.parameters())
    if 4 * sum(parameter.numel() for parameter in parameters) > _MOST_GRADIENT_BYTES:
        return None
    return [
        (torch.zeros_like(one) if one.grad is None else one.grad).detach().float().cpu().numpy()
        for one in parameters
    ]


def uncompilable(state: RankState) -> dict[str, str]:
    """Compile modes and backends that cannot work here, and why."""
    return compiling.unavailable()


def memory(state: RankState) -> int:
    """Bytes: on a GPU the most that tensors took since this was last asked, else the process's
    resident memory now."""
    if state.placement.device.startswith("cuda"):
        most = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return int(most)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


# --- pace ----------------------------------------------------------------------------------------


def _wait_until_due(state: RankState) -> None:
    """Between two steps, where steps per second are limited."""
    rate = state.pace["steps_per_second"]
    if rate is None:
        return
    time.sleep(max(0.0, min(state.due - time.monotonic(), 1 / rate)))
    now = time.monotonic()
    # Counted from when it was due, so that short sleeps too long do not add up.
    state.due = (state.due if now - state.due < 1 / rate else now) + 1 / rate


@contextlib.contextmanager
def _slowed(state: RankState) -> Iterator[None]:
    """A rank with a delay sleeps inside its step: the recorder's begins at the first forward."""
    delay_ms = state.pace["delay_ms"].get(state.placement.rank, 0.0)
    if not delay_ms:
        yield
        return
    with state.recorder.step():
        time.sleep(delay_ms / 1000)
        yield


def _note(state: RankState, changed: dict[str, Any]) -> None:
    """Have the recording say from when on this holds: it is no argument of DDP's."""
    from ddpviz.probe.describe import describe_configuration

    followed = None if state.ddp is None else state.recorder.modules.of(state.ddp)
    if followed is None:
        return
    note = describe_configuration(state.ddp, followed.id, followed.configuration_version)
    followed.configuration_version += 1
    note.values.update(changed)
    state.recorder.note(note)
    at_ns = note.time_ns
    state.recorder.write(Kind.CONFIGURED, at_ns, at_ns, index=note.version, module=followed.id)


# --- the workload --------------------------------------------------------------------------------


def _function(workload: str | bytes) -> Callable[..., Any]:
    if isinstance(workload, bytes):
        function: Callable[..., Any] = pickle.loads(workload)
        return function
    build: Callable[..., Any] = importlib.import_module(workload).build
    return build


def _called(workload: str | bytes, function: Callable[..., Any]) -> str:
    """The workload's name, as :func:`ddpviz.engines.shipping.name` has it."""
    if isinstance(workload, str):
        return workload.rpartition(".")[2]
    return str(getattr(function, "__name__", type(function).__name__))


def _options(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())[3:]


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """Those that another process can show: numbers, flags, texts."""
    return {
        one.name: one.default
        for one in _options(function)
        if isinstance(one.default, (bool, int, float, str))
    }


def _inputs(batch: Any) -> tuple[Any, ...]:
    """The model's positional arguments: the batch itself, or its first item if it is a tuple."""
    first = batch[0] if isinstance(batch, (tuple, list)) else batch
    return tuple(first) if isinstance(first, (tuple, list)) else (first,)


def _describe(made: Any) -> str:
    if isinstance(made, tuple):
        return f"({', '.join(type(part).__name__ for part in made)})"
    return type(made).__name__


def _seed(seed: int) -> None:
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
