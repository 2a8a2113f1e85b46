"""Every knob of a session: what it is, what it stands at, what turning it takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ddpviz.engines import checks, compiled, configure
from ddpviz.engines.own import Own, hook_name
from ddpviz.engines.prediction import NEEDS, NEXT_STEP, RECOMPILED, RELOADED, RESTARTED, REWRAPPED
from ddpviz.engines.settings import Facts, Settings
from ddpviz.engines.workloads import WORKLOADS

_ALL_RANKS, _STEP = NEEDS[REWRAPPED], NEEDS[NEXT_STEP]
_RELOAD = NEEDS[RELOADED]


@dataclasses.dataclass(frozen=True)
class Knob:
    """``kind``: bool, choice, int, float, log-slider or list. ``value``: as configured, else the
    default; a function by its name; of ``delay_ms`` a number by rank. ``choices``, ``min``,
    ``max``, ``step``: as far as the kind has them. ``needs``: what a change takes.
    ``disabled``: why it cannot be turned here, None where it can.
    """

    name: str
    kind: str
    value: Any
    explanation: str
    needs: str
    choices: tuple[Any, ...] | None = None
    min: float | None = None
    max: float | None = None
    step: float | None = None
    disabled: str | None = None


_BUFFERS = (
    "Before a forward rank 0 broadcasts its buffers, as BatchNorm's running statistics, so that "
    "all ranks have the same."
)
#: DDP's arguments: kind, default, and what it does.
_DDP: dict[str, tuple[str, Any, str]] = {
    "forward_sync_buffers": ("bool", True, _BUFFERS),
    "broadcast_buffers": ("bool", True, _BUFFERS),
    "bucket_cap_mb": (
        "log-slider",
        25,
        "A bucket of gradients is closed and sent once it holds this many MiB; by default the "
        "first is closed at 1.",
    ),
    "bucket_cap_mb_list": (
        "list",
        None,
        "A limit for each bucket in MiB, in their order of launch, in place of bucket_cap_mb.",
    ),
    "gradient_as_bucket_view": (
        "bool",
        False,
        "Gradients are views into the buckets: one copy less, in time and in memory.",
    ),
    "static_graph": (
        "bool",
        False,
        "You promise that every step uses the same parameters in the same way; the first step "
        "sends all buckets after its backward.",
    ),
    "find_unused_parameters": (
        "bool",
        False,
        "Each step walks the autograd graph for parameters without a gradient, so that their "
        "bucket need not wait for ever.",
    ),
    "skip_all_reduce_unused_params": (
        "bool",
        False,
        "Parameters that no rank used are not sent; all ranks must leave out the same.",
    ),
    "batched_grad_copy": (
        "bool",
        False,
        "Gradients are copied into a bucket all at once when it is full, not one by one.",
    ),
    "init_sync": (
        "bool",
        True,
        "Wrapping the model compares shapes over the ranks and sends them rank 0's parameters and "
        "buffers.",
    ),
    "mixed_precision": (
        "choice",
        None,
        "DDP casts parameters and gradients to 16 bits for forward, backward and communication.",
    ),
    "delay_all_reduce_named_params": (
        "list",
        None,
        "Parameters that are not in buckets, but sent together when the gradient of "
        "param_to_hook_all_reduce is there.",
    ),
    "param_to_hook_all_reduce": (
        "choice",
        None,
        "The parameter whose gradient sends off those of delay_all_reduce_named_params.",
    ),
}
_EXTRA: dict[str, dict[str, Any]] = {
    "bucket_cap_mb": {"min": 0.05, "max": 100.0},
    "mixed_precision": {"choices": (None, *checks.MIXED_PRECISIONS)},
}


def all_knobs(settings: Settings | None, facts: Facts, own: Own | None = None) -> tuple[Knob, ...]:
    """DDP's, the session's own and the workload's; before a load that of the workload alone.
    ``own``: functions that can be chosen by their names beside what is configured."""
    own = own or Own()
    if settings is None:
        return (_workload(None, own),)
    return (
        *_of_ddp(settings, facts),
        *_of_session(settings, facts, own),
        *_of_compiling(settings),
        _workload(settings, own),
        *_of_workload(settings, facts),
    )


def _of_ddp(settings: Settings, facts: Facts) -> list[Knob]:
    names = configure.knobs(facts.ddp_arguments)
    flag = configure.buffer_flag(facts.ddp_arguments)
    found = []
    for name in names:
        if name not in _DDP or (name in configure.BUFFER_FLAGS and name != flag):
            continue
        kind, default, explanation = _DDP[name]
        extra = dict(_EXTRA.get(name, {}))
        if name == "param_to_hook_all_reduce" and facts.built is not None:
            extra["choices"] = (None, *facts.built.parameters)
        value = settings.ddp.get(name)
        value = default if value is None else value
        if name == "mixed_precision" and hasattr(value, "param_dtype"):
            value = str(value.param_dtype).removeprefix("torch.")
        why = _disabled(name, settings, facts)
        found.append(Knob(name, kind, value, explanation, _ALL_RANKS, disabled=why, **extra))
    return found


def _disabled(name: str, settings: Settings, facts: Facts) -> str | None:
    if name == "bucket_cap_mb" and settings.ddp.get("bucket_cap_mb_list"):
        return "bucket_cap_mb_list takes its place"
    if name == "mixed_precision" and not facts.device.startswith("cuda"):
        return "DDP casts on a CUDA stream of its own, and the ranks are on the CPU"
    return None


def _of_session(settings: Settings, facts: Facts, own: Own) -> list[Knob]:
    hook = hook_name(settings.comm_hook)
    hooks = dict.fromkeys((None, *checks.COMM_HOOKS, *own.names("comm_hook"), hook))
    why = None
    if not facts.device.startswith("cuda"):
        why = "SyncBatchNorm runs on GPUs only, and the ranks are on the CPU"
    elif facts.built is not None and not facts.built.batchnorm:
        why = "the model has no BatchNorm layer"
    return [
        Knob(
            "comm_hook",
            "choice",
            hook,
            "How a bucket is reduced: DDP's own all-reduce, the same as a hook, compressed to 16 "
            "bits, or approximated by PowerSGD (rank 1, from the third step on; with gloo one "
            "bucket after another).",
            _ALL_RANKS,
            choices=tuple(hooks),
        ),
        Knob(
            "sync_batchnorm",
            "bool",
            settings.sync_batchnorm,
            "BatchNorm takes its statistics from the batches of all ranks, with collectives of "
            "its own in forward and backward.",
            _ALL_RANKS,
            disabled=why,
        ),
        Knob(
            "accumulation",
            "int",
            settings.accumulation,
            "So many batches are one step: all but the last run in no_sync, and send nothing.",
            _STEP,
            min=1,
            max=64,
            step=1,
        ),
        Knob(
            "delay_ms",
            "float",
            {rank: settings.delay_ms.get(rank, 0.0) for rank in range(facts.world_size)},
            "A rank sleeps so long at the begin of each step: see the others wait for a straggler.",
            _STEP,
            min=0,
            max=checks.MOST_DELAY_MS,
            step=10,
        ),
        Knob(
            "steps_per_second",
            "float",
            settings.steps_per_second,
            "At most so many steps a second, so that one can follow; empty for as many as go.",
            _STEP,
            min=0.1,
            max=1000,
        ),
    ]


def _of_compiling(settings: Settings) -> list[Knob]:
    why = None
    if settings.compile_mode != compiled.PYTHON:
        why = (
            "the C++ Reducer reduces, whose hooks it cannot trace: choose the compile mode "
            f"{compiled.PYTHON} first"
        )
    leaving = settings.compile_mode == compiled.PYTHON
    return [
        Knob(
            name,
            "bool" if name == "compiled_autograd" else "choice",
            getattr(settings, name),
            explanation,
            NEEDS[RESTARTED if leaving and name == "compile_mode" else RECOMPILED],
            choices=compiled.CHOICES.get(name),
            disabled=why if name == "compiled_autograd" else None,
        )
        for name, explanation in _COMPILING.items()
    ]


_COMPILING = {
    "compile_mode": "torch.compile, and what it does for DDP: ddp_optimizer splits the graph at "
    "its own buckets, no_optimization leaves it whole, python_reducer reduces gradients in the "
    "compiled backward.",
    "compile_backend": "What graphs are compiled to: inductor makes kernels, which takes longest; "
    "aot_eager and eager run torch's own.",
    "compile_order": "Whether DDP is compiled with the model in it, or put around a compiled one.",
    "compiled_autograd": "The backward is traced as a whole, with the hooks in it, so that "
    "python_reducer's all-reduces are in its graph and can be fused.",
}


def _workload(settings: Settings | None, own: Own) -> Knob:
    name = None if settings is None else settings.name
    loaded = () if name is None else (name,)
    names = dict.fromkeys((*sorted(WORKLOADS), *own.names("workload"), *loaded))
    return Knob(
        "workload",
        "choice",
        name,
        "What is trained: a model built into ddpviz, or a function of yours given to load().",
        _RELOAD,
        choices=tuple(names),
    )


def _of_workload(settings: Settings, facts: Facts) -> list[Knob]:
    defaults: Mapping[str, Any] = {} if facts.built is None else facts.built.defaults
    found = []
    for name, default in defaults.items():
        value = settings.options.get(name, default)
        kind = "float"
        if isinstance(default, bool):
            kind = "bool"
        elif isinstance(default, int):
            kind = "int"
        elif isinstance(default, str):
            continue  # there is no control for free text
        least = 1 if kind == "int" and (name == "batch_size" or default >= 1) else None
        told = _OPTIONS.get(name, f"Argument {name} of the workload's function.")
        found.append(Knob(name, kind, value, told, _RELOAD, min=least))
    return found


_OPTIONS = {
    "batch_size": "Samples of one batch on each rank.",
    "image_size": "Height and width of an image, in pixels.",
    "classes": "Classes to tell apart.",
    "layers": "How many layers the model has.",
    "width": "Features of a layer.",
    "depth": "Layers of the ResNet: 18 or 50.",
    "heads": "Attention heads of a layer; they divide its width.",
    "vocabulary": "How many tokens there are.",
    "context": "Tokens of one sample.",
}
