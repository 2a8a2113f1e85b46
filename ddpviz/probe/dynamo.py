"""Keeps ``torch.compile`` out of the recorder's own functions. Checked on torch 2.6 and 2.13."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from ddpviz import events

_eval_frame = torch._C._dynamo.eval_frame
_FORWARD = str(Path(__file__).with_name("forward.py"))
_TORCH = Path(torch.__file__).parent
_DISABLED = "torch.compiler.disable is on it"
_keys: Any = getattr(torch._C, "_TorchDispatchModeKey", None)
_mode_of: Callable[[Any], Any] = getattr(torch._C, "_get_dispatch_mode", lambda key: None)
_TRACING = [getattr(_keys, name) for name in ("FAKE", "PROXY") if hasattr(_keys, name)]


def keep_out(*functions: Callable[..., Any]) -> None:
    """Have Dynamo run these as they are; it looks at every Python frame of a thread that compiles.

    ``torch._dynamo.disable`` would do it with a wrapper around each, whose cost is a record's, and
    would import Dynamo.
    """
    for function in functions:
        if hasattr(_eval_frame, "skip_code"):  # up to torch 2.6
            _eval_frame.skip_code(function.__code__)
        elif hasattr(_eval_frame, "set_code_exec_strategy"):
            skip, default = _eval_frame._FrameAction.SKIP, _eval_frame._FrameAction.DEFAULT
            strategy = _eval_frame._FrameExecStrategy(skip, default)
            _eval_frame.set_code_exec_strategy(function.__code__, strategy)


def see_through(replacement: Any, original: Any) -> None:
    """Have Dynamo trace the original where it comes upon the recorder's replacement, which itself
    it runs as it is.

    The mark is that of Dynamo's own wrappers. A builtin has no frame that it could trace.
    """
    if isinstance(replacement, FunctionType):
        keep_out(replacement)
        if isinstance(original, FunctionType):
            replacement._torchdynamo_inline = original  # type: ignore[attr-defined]


def loaded() -> Any:
    """Dynamo, where something has imported all of it; else None."""
    dynamo = sys.modules.get("torch._dynamo")
    # In the middle of its own import it lacks what it imports last.
    return dynamo if hasattr(dynamo, "convert_frame") and hasattr(dynamo, "eval_frame") else None


def skip_own_files() -> str:
    """Have Dynamo pass over every frame of the recorder's, as over torch's own.

    Else it compiles them wherever a compiled model calls DDP: graph breaks and recompilations that
    are there only because it is recorded. Returns why that is not to be had here, or "".
    """
    rules = _rules()
    if rules is None:
        return "this torch's Dynamo has no list of files to pass over that we know"
    mine = [str(path) for path in Path(__file__).parent.rglob("*.py")]
    # Which frame of a compiled DDP comes first depends on where its forward is written.
    forward_too = "torch.nn.parallel.distributed" not in rules.LEGACY_MOD_INLINELIST
    wanted = [*(one for one in mine if one != _FORWARD or forward_too), events.__file__]
    listed = {*rules.SKIP_DIRS}
    rules.SKIP_DIRS[:] = [one for one in rules.SKIP_DIRS if one != _FORWARD or forward_too]
    rules.SKIP_DIRS.extend(one for one in wanted if one not in listed)
    rules._recompile_re()
    return ""


def _rules() -> Any:
    rules = sys.modules.get("torch._dynamo.trace_rules")
    names = ("SKIP_DIRS", "LEGACY_MOD_INLINELIST", "_recompile_re")
    return rules if all(hasattr(rules, name) for name in names) else None


# --- what Dynamo says of itself ------------------------------------------------------------------


def compile_id() -> str:
    """Dynamo's number for what it compiles now: "0/1", "!0/0/0" for a backward; "" outside."""
    context = getattr(sys.modules.get("torch._guards"), "CompileContext", None)
    found = context.current_compile_id() if context is not None else None
    return "" if found is None else str(found)


def traces() -> bool:
    """Whether what runs now is traced and not run: by a compiler, or with fake tensors."""
    context = getattr(sys.modules.get("torch._guards"), "TracingContext", None)
    if context is not None and context.try_get() is not None:
        return True
    return any(_mode_of(key) is not None for key in _TRACING)


def optimize_ddp_mode() -> str:
    """``torch._dynamo.config.optimize_ddp`` by its name; "" without Dynamo."""
    mode = getattr(sys.modules.get("torch._dynamo.utils"), "get_optimize_ddp_mode", None)
    return "" if mode is None else str(mode())


def backend_name(compiler: Any) -> str:
    """Of a backend as Dynamo has it, behind what it wraps around it."""
    for _ in range(8):
        optimizer: Any = getattr(compiler, "__self__", None)
        if hasattr(optimizer, "backend_compile_fn"):
            compiler = optimizer.backend_compile_fn
            continue
        for name in ("_compiler_name", "compiler_name"):
            found = getattr(compiler, name, None)
            if isinstance(found, str):
                return found
        inner = getattr(compiler, "_torchdynamo_orig_backend", None)
        if inner is None:
            break
        compiler = inner
    return str(getattr(compiler, "__name__", type(compiler).__name__))


def backend_inside(ddp: Any) -> str | None:
    """The backend of a compiled model that DDP has been put around; None where there is none."""
    for layer in ddp.module.modules():
        if type(layer).__name__ == "OptimizedModule":
            context = getattr(layer, "dynamo_ctx", None)
            return backend_name(getattr(context, "callback", None))
        if getattr(layer, "_compiled_call_impl", None) is not None:
            return ""
    return None


def passed_over(ddp: Any) -> str:
    """Why Dynamo compiles no graph of the forward that DDP calls; "" where nothing says so."""
    model = ddp.module
    inside = getattr(model, "_compiled_call_impl", None) is not None
    if type(model).__name__ == "OptimizedModule":
        if type(getattr(model, "dynamo_ctx", None)).__name__ == "DisableContext":
            return _DISABLED
        model, inside = getattr(model, "_orig_mod", model), True
    forward = getattr(model.forward, "__func__", model.forward)
    if getattr(forward, "_torchdynamo_disable", False):
        return _DISABLED
    file = getattr(getattr(forward, "__code__", None), "co_filename", "")
    if not inside and Path(file).is_relative_to(_TORCH):
        return f"{type(model).__name__}.forward is written in torch itself"
    return ""
