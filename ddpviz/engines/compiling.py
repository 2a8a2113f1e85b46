"""A rank's DDP module, compiled as the session has it. Inside an engine. Checked on torch 2.13."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpviz.engines.compiled import (
    BACKENDS,
    COMPILE_FIRST,
    FIRST_CAP_MB,
    MODES,
    PYTHON,
    WRAP_FIRST,
    Compile,
    first_cap_mb,
)
from ddpviz.engines.errors import ConfigurationError
from ddpviz.engines.state import RankState

#: Of a DDP of python_reducer: the handles of its hooks, a list.
_HOOKS = "_accum_grad_hooks"


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


def let_go(ddp: Any) -> None:
    """Take python_reducer's hooks out of the parameters: there they outlive the DDP that put them
    in, and reduce each gradient once more."""
    hooks = getattr(ddp, _HOOKS, [])
    while hooks:
        hooks.pop().remove()


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


def unavailable() -> dict[str, str]:
    """Compile modes and backends that cannot work in this process, by name, and why."""
    from torch._dynamo import compiled_autograd, config

    found = {}
    # As `get_optimize_ddp_mode` reads it: by a name up to torch 2.6, later by another.
    for mode in MODES[1:]:
        try:
            with config.patch(optimize_ddp=mode):
                _mode_now(config)
        except Exception as error:
            found[mode] = f"this torch does not take it ({type(error).__name__})"
    if not hasattr(compiled_autograd, "_enable"):
        found[PYTHON] = "this torch has no torch._dynamo.compiled_autograd._enable"
    constructor: Any = inspect.unwrap(DistributedDataParallel.__init__)  # recorded, it is wrapped
    if _HOOKS not in constructor.__code__.co_names:
        found[PYTHON] = "this torch's DDP keeps no handles of python_reducer's hooks to remove them"
    if why := _no_inductor():
        found[BACKENDS[0]] = why
    return found


def _mode_now(config: Any) -> Any:
    import torch._dynamo.utils as utils

    read = getattr(utils, "get_optimize_ddp_mode", None)
    return (read or config._get_optimize_ddp_mode)()


def _no_inductor() -> str:
    """Why Inductor can make no kernels, "" where it can."""
    if torch.cuda.is_available():
        from torch.utils._triton import has_triton

        return "" if has_triton() else "Inductor needs Triton for a GPU, and found none"
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception as error:
        return f"Inductor needs a C++ compiler, and found none ({type(error).__name__})"
    return ""
