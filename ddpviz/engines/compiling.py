"""A rank's DDP module, compiled as the session has it. Inside an engine. Checked on torch 2.13."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist

from ddpviz.engines.compiled import COMPILE_FIRST, FIRST_CAP_MB, WRAP_FIRST, Compile, first_cap_mb
from ddpviz.engines.errors import ConfigurationError
from ddpviz.engines.state import RankState


def prepare(state: RankState, given: Compile, ddp: Mapping[str, Any]) -> None:
    """Before DDP is built: it looks at the mode in its constructor. Dynamo forgets what was."""
    if not given.on and not state.compile.on:
        return
    import torch._dynamo

    torch._dynamo.reset()
    state.compile, state.backward_compiler = given, None
    lowered = first_cap_mb(given, ddp)
    first_mb = FIRST_CAP_MB if lowered is None else lowered
    dist._DEFAULT_FIRST_BUCKET_BYTES = int(first_mb * 1024 * 1024)
    mode: Any = given.compile_mode if given.on else True
    torch._dynamo.config.optimize_ddp = mode
    if given.compile_mode == "python_reducer":
        # A graph that comes from a cache has gone through no pass that could be seen.
        import torch._functorch.config
        import torch._inductor.config

        torch._inductor.config.fx_graph_cache = False
        torch._functorch.config.enable_autograd_cache = False


def inner(state: RankState) -> Any:
    """What DDP is put around: the model, compiled where that comes first."""
    if state.compile.on and state.compile.compile_order == COMPILE_FIRST:
        return torch.compile(state.model, backend=state.compile.compile_backend)
    return state.model


def outer(state: RankState) -> Any:
    """What is called: the DDP module, compiled where that comes after."""
    if state.compile.on and state.compile.compile_order == WRAP_FIRST:
        return torch.compile(state.ddp, backend=state.compile.compile_backend)
    return state.ddp


@contextlib.contextmanager
def backward(state: RankState) -> Iterator[None]:
    """Around ``loss.backward()``: compiled autograd, where it is on."""
    if not state.compile.compiled_autograd:
        yield
        return
    from torch._dynamo import compiled_autograd

    # ``config.compiled_autograd`` would not cover a backward outside a compiled function.
    if not hasattr(compiled_autograd, "_enable"):
        raise ConfigurationError("this torch has no torch._dynamo.compiled_autograd._enable")
    if state.backward_compiler is None:
        state.backward_compiler = torch.compile(backend=state.compile.compile_backend)
    with compiled_autograd._enable(state.backward_compiler):
        yield
