"""What a DDP module is: its tensors, its configuration, its bucket plan, as notes."""

from __future__ import annotations

import os
import sys
import time
import weakref
from typing import Any

import torch

from ddpviz.events import Bucket, Configuration, Module, Plan, Tensor

#: DDP attributes that mirror constructor arguments, on any torch from 2.6.
_CONFIGURATION = (
    "forward_sync_buffers",
    "broadcast_buffers",
    "bucket_bytes_cap",
    "find_unused_parameters",
    "gradient_as_bucket_view",
    "static_graph",
    "skip_all_reduce_unused_params",
    "batched_grad_copy",
    "broadcast_bucket_size",
)

#: What modules are called that are known by a better name than their class's.
_names: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()


def call_module(module: torch.nn.Module, name: str) -> None:
    """Have the module recorded under this name, and not its class's, once DDP wraps it."""
    _names[module] = name


def _name(module: torch.nn.Module) -> str:
    module = getattr(module, "_orig_mod", module)  # of one that torch.compile wrapped
    return _names.get(module) or type(module).__name__


def describe_module(ddp: Any, module_id: int, parameters: list[Any]) -> Module:
    """``parameters``: weak references, in the Reducer's index order."""
    names = _parameter_names(ddp, parameters)
    tensors = [
        _tensor(names.get(id(parameter), f"parameter {index}"), parameter)
        for index, parameter in enumerate(reference() for reference in parameters)
        if parameter is not None
    ]
    ignored = set(ddp.parameters_to_ignore)
    buffers = [
        _tensor(name, buffer) for name, buffer in ddp.module.named_buffers() if name not in ignored
    ]
    reduced = {id(reference()) for reference in parameters}
    delayed = {id(parameter) for parameter in getattr(ddp, "_delay_all_reduce_params", ())}
    live, sparse = _live(ddp), _sparse(ddp)
    put_off = [(name, parameter) for name, parameter in live if id(parameter) in delayed]
    return Module(
        module_id,
        _name(ddp.module),
        tuple(tensors),
        tuple(buffers),
        tuple(sorted(ignored - {name for name, _ in put_off})),
        tuple(
            _tensor(name, parameter)
            for name, parameter in live
            if id(parameter) not in reduced and not parameter.requires_grad and name not in ignored
        ),
        tuple(name for name, parameter in live if id(parameter) in sparse),
        tuple(_tensor(name, parameter) for name, parameter in put_off),
    )


def _live(ddp: Any) -> list[tuple[str, torch.Tensor]]:
    """The parameters there are now, by name; all those of a compiled model have _orig_mod in it."""
    return [
        (name.replace("_orig_mod.", ""), parameter)
        for name, parameter in ddp.module.named_parameters()
    ]


def has_sparse(ddp: Any) -> bool:
    """Whether a parameter has sparse gradients."""
    return bool(_sparse(ddp))


def _sparse(ddp: Any) -> set[int]:
    """Ids of the parameters that ``DDP._build_params_for_reducer`` expects sparse gradients of."""
    return {
        id(module.weight)
        for module in ddp.module.modules()
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse
    }


def _parameter_names(ddp: Any, parameters: list[Any]) -> dict[int, str]:
    """By id. One that was replaced since the module was wrapped has the name of what is in its
    place now; where that has more or fewer parameters its index, below their common path."""
    live = _live(ddp)
    names = {id(parameter): name for name, parameter in live}
    ignored = ddp.parameters_to_ignore
    here = [(name, parameter) for name, parameter in live if name not in ignored]
    place = {id(parameter): at for at, (_, parameter) in enumerate(here)}
    index = {id(reference()): at for at, reference in enumerate(parameters)}
    wrapped = _wrapped(ddp)
    original = {id(parameter) for parameter in wrapped}
    since, lost = 0, []
    for parameter in [*wrapped, None]:
        at = len(here) if parameter is None else place.get(id(parameter), -1)
        if at < 0:
            lost.append(parameter)
            continue
        between = [name for name, new in here[since:at] if id(new) not in original]
        if len(between) == len(lost):
            names.update((id(old), name) for old, name in zip(lost, between, strict=True))
        elif path := _common_path(between):
            names.update((id(old), f"{path}.parameter {index.get(id(old), -1)}") for old in lost)
        since, lost = at + 1, []
    return names


def _common_path(names: list[str]) -> str:
    """Of the module that has all of them; empty for the root."""
    paths = [name.split(".")[:-1] for name in names]
    return ".".join(os.path.commonprefix(paths)) if paths else ""


def _wrapped(ddp: Any) -> list[torch.Tensor]:
    """The parameters that DDP's constructor found, but those that it was to ignore."""
    return list(getattr(ddp, "_module_parameters", ()))


def reducer_parameters(ddp: Any) -> list[Any]:
    """The parameters of a module that was built before recording began, in the Reducer's order.

    Its buckets have them, whatever has become of the module since. Sparse ones cannot be read: then
    it is those that want a gradient now, or all, as many as the Reducer has. Empty where that
    cannot be told.
    """
    expected = len(ddp.reducer.get_backward_stats())
    hooked = _in_buckets(ddp)
    for collected in (_wrapped(ddp), _collected(ddp)):
        if hooked is not None:
            choices = [[one for one in collected if id(one) in hooked]]
        else:
            choices = [[one for one in collected if one.requires_grad], collected]
        for found in choices:
            if len(found) == expected:
                return [weakref.ref(parameter) for parameter in found]
    return []


def _collected(ddp: Any) -> list[torch.Tensor]:
    """As ``DDP._build_params_for_reducer`` collects them (names spelled as there, so the root's own
    begin with a dot), and frozen ones."""
    found: dict[int, torch.Tensor] = {}
    for module_name, module in ddp.module.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if f"{module_name}.{name}" not in ddp.parameters_to_ignore:
                found.setdefault(id(parameter), parameter)
    return list(found.values())


def _in_buckets(ddp: Any) -> frozenset[int] | None:
    """Ids of the parameters that the Reducer has hooked; None for sparse gradients."""
    try:
        buckets = ddp.reducer._get_zeros_like_grad_buckets()
    except (RuntimeError, TypeError):
        return None
    return frozenset(id(parameter) for bucket in buckets for parameter in bucket.parameters())


def error_text(error: BaseException) -> str:
    """What was raised, in one line of at most 2,000 characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:2000]


def _tensor(name: str, tensor: torch.Tensor) -> Tensor:
    return Tensor(
        name,
        tuple(tensor.shape),
        str(tensor.dtype).removeprefix("torch."),
        tensor.numel() * tensor.element_size(),
    )


def describe_configuration(ddp: Any, module_id: int, version: int) -> Configuration:
    """DDP's knobs as it holds them, and beside them what else decides about collectives.

    ``first_bucket_bytes_cap``; ``per_bucket_bytes_caps``, where a list of caps was given;
    ``last_bucket_small``, where the environment asks for it;
    ``mixed_precision``, where it is on: its dtypes in words;
    ``comm_hook``: its name, "" for DDP's own all-reduce; ``buffer_hook``: where a hook takes the
    place of the buffers' broadcast: "pre_forward", "post_forward" or "none"; ``world_size``;
    ``ranks``: of its process group, where these are not all there are;
    ``python_reducer``, where it reduces; ``divide_by_initial_world_size``, once Join has been told
    of the module.
    """
    values: dict[str, Any] = {
        name: getattr(ddp, name) for name in _CONFIGURATION if hasattr(ddp, name)
    }
    if "forward_sync_buffers" in values:
        values.pop("broadcast_buffers", None)  # the old name of the same flag
    values["first_bucket_bytes_cap"] = first_bucket_bytes_cap(ddp)
    caps = getattr(getattr(ddp, "_bucket_config", None), "per_bucket_bytes_caps", ())
    if caps:
        values["per_bucket_bytes_caps"] = list(caps)
    mixed = getattr(ddp, "mixed_precision", None)
    if mixed is not None:
        values["mixed_precision"] = ", ".join(
            f"{name} {str(dtype).removeprefix('torch.')}"
            for name in ("param_dtype", "reduce_dtype", "buffer_dtype")
            if (dtype := getattr(mixed, name, None)) is not None
        )
    if last_bucket_is_small():
        values["last_bucket_small"] = True
    values["comm_hook"] = comm_hook_name(ddp)
    values["buffer_hook"] = buffer_hook(ddp)
    values["world_size"] = ddp.process_group.size()
    ranks = torch.distributed.get_process_group_ranks(ddp.process_group)
    if len(ranks) < torch.distributed.get_world_size():
        values["ranks"] = ranks
    if getattr(ddp, "_use_python_reducer", False):
        values["python_reducer"] = True
    if hasattr(ddp, "_divide_by_initial_world_size"):
        values["divide_by_initial_world_size"] = bool(ddp._divide_by_initial_world_size)
    return Configuration(module_id, version, time.time_ns(), values)


def first_bucket_bytes_cap(ddp: Any) -> int:
    """The first bucket's limit after a rebuild (the same as the cap where one was given)."""
    config = getattr(ddp, "_bucket_config", None)
    if config is not None:
        return int(config.first_bucket_bytes_cap)
    if getattr(ddp, "bucket_bytes_cap_default", False):
        return int(torch.distributed._DEFAULT_FIRST_BUCKET_BYTES)
    return int(ddp.bucket_bytes_cap)


def buffer_hook(ddp: Any) -> str:
    """Where the hook runs that synchronizes buffers; "none" for DDP's own broadcast."""
    hook = getattr(ddp, "buffer_hook", None)
    return "none" if hook is None else str(hook.buffer_comm_hook_location.name).lower()


def comm_hook_name(ddp: Any) -> str:
    """The registered hook's qualified name; empty for DDP's own all-reduce."""
    hooks = getattr(ddp, "_comm_hooks", [])
    if hooks:
        return str(getattr(hooks[-1][0], "__qualname__", hooks[-1][0]))
    # A hook built into C++ is known to DDP's logger alone.
    return str(ddp._get_ddp_logging_data().get("comm_hook", ""))


def read_plan(
    ddp: Any,
    parameters: list[Any],
    module_id: int,
    version: int,
    iteration: int,
    reason: str,
    limits_bytes: list[int] | None,
) -> Plan:
    """The Reducer's live layout.

    ``_get_zeros_like_grad_buckets`` allocates zeros of every bucket and frees them at once. It
    is called where no activations live (construction, start of forward), below backward's peak.
    ``limits_bytes``: of the initial buckets in launch order; None after a rebuild, where the
    limits follow from the configuration. Raises RuntimeError for sparse gradients: their buckets
    have no flat tensor.
    """
    positions = {id(reference()): i for i, reference in enumerate(parameters)}
    found = [
        (tuple(positions.get(id(one), -1) for one in bucket.parameters()), bucket.buffer())
        for bucket in ddp.reducer._get_zeros_like_grad_buckets()
    ]
    if limits_bytes is None:
        limits = _rebuilt_limits(ddp, [(flat.dtype, flat.device) for _, flat in found])
    else:
        limits = [None if limit >= sys.maxsize else limit for limit in limits_bytes]
    buckets = [
        Bucket(
            indices,
            flat.numel() * flat.element_size(),
            limits[order] if order < len(limits) else None,
        )
        for order, (indices, flat) in enumerate(found)
    ]
    return Plan(module_id, version, iteration, time.time_ns(), reason, tuple(buckets))


def _rebuilt_limits(ddp: Any, kinds: list[Any]) -> list[int | None]:
    """Of each bucket in launch order, as ``compute_bucket_assignment_by_size`` hands them out: to
    the buckets of each dtype and device (``kinds``) from the first one on. The list runs from its
    end where the last bucket is to be the small one."""
    config = getattr(ddp, "_bucket_config", None)
    caps = [int(cap) for cap in getattr(config, "per_bucket_bytes_caps", ()) or ()]
    caps = caps or [first_bucket_bytes_cap(ddp), int(ddp.bucket_bytes_cap)]
    backwards = last_bucket_is_small()
    made: dict[Any, int] = {}
    limits: list[int | None] = []
    for kind in reversed(kinds) if backwards else kinds:
        limits.append(caps[min(made.get(kind, 0), len(caps) - 1)])
        made[kind] = made.get(kind, 0) + 1
    return limits[::-1] if backwards else limits


def last_bucket_is_small() -> bool:
    """Whether the rebuild goes through the parameters from the last on (``rebuild_buckets``)."""
    return os.environ.get("DDP_SET_LAST_BUCKET_CAP") == "1"


def device_name(device: str | None) -> str:
    """Of a torch device, or of what CUDA, if it has started, works on now."""
    if device is None:
        return torch.cuda.get_device_name() if torch.cuda.is_initialized() else "cpu"
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device
