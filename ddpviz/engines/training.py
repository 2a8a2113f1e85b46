"""A rank's training, inside its engine: build the workload, wrap it in DDP, take steps."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import pickle
import random
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch.nn.parallel import DistributedDataParallel

from ddpviz.engines.ranks import Progressed
from ddpviz.engines.state import RankState


def options(workload: str | bytes) -> tuple[str, ...] | None:
    """Names of what a workload takes besides rank, world size and device; None: any."""
    parameters = list(inspect.signature(_function(workload)).parameters.values())[3:]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return tuple(parameter.name for parameter in parameters)


def build(state: RankState, workload: str | bytes, configuration: bytes) -> None:
    """Make model, batches and loss (a built-in's module, or a pickled function), and wrap.

    ``configuration``: (the workload's options, DDP's arguments), pickled.
    Raises TypeError where the workload returns something else than it should.
    """
    values, ddp = pickle.loads(configuration)
    function = _function(workload)
    state.step = -1
    _unwrap(state)
    _seed(state.seed)
    placement = state.placement
    device = torch.device(placement.device)
    made = function(placement.rank, placement.world_size, device, **values)
    if not isinstance(made, tuple) or len(made) != 3 or not isinstance(made[0], torch.nn.Module):
        raise TypeError(
            f"found that the workload returned {_describe(made)}, expected a tuple: "
            "(torch.nn.Module, batch(step), loss(output, batch))"
        )
    model, state.batch, state.loss = made
    state.model = model.to(device)
    state.optimizer = torch.optim.SGD(state.model.parameters(), lr=0.01, momentum=0.9)
    state.next_step = 0
    # Other random numbers on each rank from here on (dropout), the same in each session.
    _seed(state.seed + 1 + placement.rank)
    _wrap(state, ddp)


def wrap(state: RankState, configuration: bytes) -> None:
    """Put DDP around the model anew, with these arguments (pickled).

    Weights, optimizer and step number stay.
    """
    _wrap(state, pickle.loads(configuration))


def run(state: RankState, steps: int) -> Progressed:
    """So many training steps, all on this thread."""
    assert state.batch is not None and state.loss is not None
    begin = time.perf_counter()
    loss: torch.Tensor | None = None
    try:
        for _ in range(steps):
            state.step = state.next_step
            batch = state.batch(state.step)
            state.optimizer.zero_grad(set_to_none=True)
            loss = state.loss(state.ddp(*_inputs(batch)), batch)
            loss.backward()
            state.optimizer.step()
            state.next_step += 1
        state.step = -1
    finally:
        state.recorder.flush()
    last = float("nan") if loss is None else float(loss.detach())
    return Progressed(state.next_step, last, time.perf_counter() - begin)


def checksum(state: RankState) -> str:
    """SHA-256 of this rank's parameters, as they lie in memory."""
    digest = hashlib.sha256()
    for name, tensor in state.model.named_parameters():
        digest.update(name.encode())
        data = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(data.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _wrap(state: RankState, ddp: dict[str, Any]) -> None:
    _unwrap(state)
    # Parameters live here, so the client names them.
    delayed = ddp.get("delay_all_reduce_named_params")
    if delayed is not None:
        ddp["delay_all_reduce_named_params"] = [
            (name, state.model.get_parameter(name)) for name in delayed
        ]
    hooked = ddp.get("param_to_hook_all_reduce")
    if hooked is not None:
        ddp["param_to_hook_all_reduce"] = state.model.get_parameter(hooked)
    on_gpu = state.placement.device.startswith("cuda")
    devices = [torch.device(state.placement.device)] if on_gpu else None
    state.ddp = DistributedDataParallel(state.model, device_ids=devices, **ddp)
    state.recorder.flush()


def _unwrap(state: RankState) -> None:
    state.ddp = None
    if state.model is not None:
        for parameter in state.model.parameters():
            parameter.grad = None  # with bucket views it would keep the old Reducer's memory


def _function(workload: str | bytes) -> Callable[..., Any]:
    if isinstance(workload, bytes):
        function: Callable[..., Any] = pickle.loads(workload)
        return function
    build: Callable[..., Any] = importlib.import_module(workload).build
    return build


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
