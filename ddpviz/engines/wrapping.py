"""A rank's model put into DDP: its arguments, the comm hook, SyncBatchNorm. Inside an engine."""

from __future__ import annotations

import dataclasses
import functools
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel import distributed as ddp_module

from ddpviz.engines import compiling
from ddpviz.engines.checks import first_sentence
from ddpviz.engines.errors import ConfigurationError
from ddpviz.engines.state import RankState

#: PowerSGD starts after DDP has rebuilt its buckets; torch refuses a lower one.
_POWERSGD_STARTS = 2


def wrap(state: RankState, given: Mapping[str, Any]) -> None:
    """Wrap the model (again), as ``Settings.wrapping`` says. Weights stay.

    Raises ConfigurationError with the first sentence of what DDP says where it refuses.
    """
    unwrap(state)
    try:
        arguments = _arguments(state, given["ddp"])
        _sync_batchnorm(state, given["sync_batchnorm"])
        compiling.prepare(state, given["compile"], given["ddp"])
        state.ddp = DistributedDataParallel(compiling.inner(state), **arguments)
        _register(state, given["comm_hook"])
        state.call = compiling.outer(state)
    except Exception as error:
        state.ddp = state.call = None
        said = "".join(str(error).splitlines()[:1]) or type(error).__name__
        raise ConfigurationError(first_sentence(said)) from error
    state.recorder.flush()


def unwrap(state: RankState) -> None:
    """Let go of DDP around the model, of its hooks in the parameters, and of gradients."""
    if state.ddp is not None:
        compiling.let_go(state.ddp)
    state.ddp = state.call = None
    if state.model is not None:
        for parameter in state.model.parameters():
            parameter.grad = None  # with bucket views it would keep the old Reducer's memory


def _arguments(state: RankState, ddp: Mapping[str, Any]) -> dict[str, Any]:
    """As DDP takes them: parameters live here, so the client names them."""
    found = dict(ddp)
    delayed = found.get("delay_all_reduce_named_params")
    if delayed is not None:
        found["delay_all_reduce_named_params"] = [
            (name, state.model.get_parameter(name)) for name in delayed
        ]
    hooked = found.get("param_to_hook_all_reduce")
    if hooked is not None:
        found["param_to_hook_all_reduce"] = state.model.get_parameter(hooked)
    precision = found.get("mixed_precision")
    if isinstance(precision, str):
        dtype = getattr(torch, precision)
        found["mixed_precision"] = ddp_module._MixedPrecision(param_dtype=dtype, reduce_dtype=dtype)
    on_gpu = state.placement.device.startswith("cuda")
    found["device_ids"] = [torch.device(state.placement.device)] if on_gpu else None
    return found


# --- comm hooks ----------------------------------------------------------------------------------


def _register(state: RankState, hook: Any) -> None:
    if hook is None:
        return
    if hook == "powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

        own = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=1, start_powerSGD_iter=_POWERSGD_STARTS
        )
        compress = powerSGD_hook.powerSGD_hook
        if state.placement.backend == "gloo":
            compress = _one_after_another(compress)
        state.ddp.register_comm_hook(own, compress)
        return
    if isinstance(hook, str):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        hook = {
            "allreduce": default_hooks.allreduce_hook,
            "fp16": default_hooks.fp16_compress_hook,
        }[hook]
    if isinstance(hook, bytes):
        hook = pickle.loads(hook)
    # torch's hooks, and those after their model, take None for the default group.
    state.ddp.register_comm_hook(None, hook)


def _one_after_another(hook: Callable[..., Any]) -> Callable[..., Any]:
    """The hook, waited for before the next bucket's begins.

    PowerSGD sends from callbacks of collectives that ended. gloo runs these on several threads,
    so with more than one bucket the ranks' collectives get out of order: torch 2.13 alone, on two
    ranks, then hangs or aborts.
    """

    @functools.wraps(hook)
    def in_order(state: Any, bucket: Any) -> Any:
        done = hook(state, bucket)
        done.wait()
        return done

    return in_order


# --- SyncBatchNorm -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a layer sits in the model."""

    parent: nn.Module
    name: str
    layer: nn.Module


def has_batchnorm(model: nn.Module) -> bool:
    """Whether there is something that SyncBatchNorm would take the place of."""
    return any(isinstance(layer, _BatchNorm) for layer in model.modules())


def _sync_batchnorm(state: RankState, wanted: bool) -> None:
    """Put SyncBatchNorm layers in, or the model's own ones back: both have the same tensors."""
    if wanted == bool(state.replaced):
        return
    if not wanted:
        for place in state.replaced:
            place.layer.train(getattr(place.parent, place.name).training)
            setattr(place.parent, place.name, place.layer)
        state.replaced = []
        return
    found = list(_layers(state.model))
    if isinstance(state.model, _BatchNorm) or not found:
        raise ValueError("the model has no BatchNorm layer inside it")
    for place in found:
        synced = nn.SyncBatchNorm.convert_sync_batchnorm(place.layer)
        setattr(place.parent, place.name, synced)
    state.replaced = found


def _layers(model: nn.Module) -> Iterator[_Place]:
    for parent in list(model.modules()):
        for name, layer in parent.named_children():
            if isinstance(layer, _BatchNorm) and not isinstance(layer, nn.SyncBatchNorm):
                yield _Place(parent, name, layer)
