"""What an FX graph is, without its tensors: its operations, its parameters, its readable code."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from ddpviz.events import Argument

#: Of one graph. A ResNet-50's forward has 175 operations and 60 kB of code.
MOST_OPERATIONS = 4096
MOST_CODE_BYTES = 65_536

_CALLS = ("call_function", "call_method", "call_module")


@dataclasses.dataclass(frozen=True)
class Description:
    """Fields of :class:`ddpviz.events.Graph` that the graph itself tells."""

    nodes: int
    operations: tuple[str, ...]
    arguments: tuple[Argument, ...]
    bytes: int
    code: str
    cut: str


def describe(
    module: Any, arguments: Iterable[Argument], size_of: Callable[[int], int], readable: bool
) -> Description:
    """Of a GraphModule. ``size_of``: bytes of a parameter; ``readable``: whether to keep code."""
    calls = [node for node in module.graph.nodes if node.op in _CALLS]
    operations = tuple(operation(node) for node in calls[:MOST_OPERATIONS])
    found = tuple(sorted(set(arguments), key=lambda one: (one.parameter, one.name)))
    code, cut = _code(module, len(calls), readable)
    if len(calls) > len(operations):
        cut = "; ".join(filter(None, (f"operations after the first {len(operations)}", cut)))
    nbytes = sum(size_of(index) for index in {one.parameter for one in found})
    return Description(len(calls), operations, found, nbytes, code, cut)


def _code(module: Any, nodes: int, readable: bool) -> tuple[str, str]:
    """(readable code, what of it was left out)."""
    if not readable or nodes > MOST_OPERATIONS:
        return "", "the code: " + ("too many graphs" if not readable else f"{nodes} operations")
    text = str(module.print_readable(print_output=False)).strip()
    kept = text.encode()[:MOST_CODE_BYTES].decode(errors="ignore")
    if len(kept) == len(text):
        return text, ""
    kept = kept[: kept.rfind("\n")]
    return kept, f"the code after its first {kept.count(chr(10)) + 1} lines"


def operation(node: Any) -> str:
    """What a node calls, as a person would name it: "linear", "aten.mm.default"."""
    target = node.target
    if isinstance(target, str):
        return target
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(target)
    return str(getattr(target, "__name__", target))


def parameters_of(module: Any, known: Mapping[int, int]) -> tuple[Argument, ...]:
    """Inputs of Dynamo's graph that are parameters. ``known``: index by the tensor's id().

    Compiled autograd hands all tensors over in one list: then the nodes that take them out of it.
    Older Dynamo has parameters as attributes of the graph's module.
    """
    found = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            example = getattr(node.meta.get("grapharg"), "example", None)
            if isinstance(example, (list, tuple)):
                found += _taken_out(node, example, known)
            elif id(example) in known:
                found.append(Argument(node.name, known[id(example)]))
        elif node.op == "get_attr":
            value = _attribute(module, node.target)
            if id(value) in known:
                found.append(Argument(node.name, known[id(value)]))
        elif node.op == "call_module":
            layer = _attribute(module, node.target)
            inside = layer.named_parameters() if isinstance(layer, torch.nn.Module) else ()
            found += [
                Argument(f"{node.target}.{name}", known[id(value)])
                for name, value in inside
                if id(value) in known
            ]
    return tuple(found)


def _taken_out(node: Any, examples: Any, known: Mapping[int, int]) -> list[Argument]:
    found = []
    for user in node.users:
        place = user.args[1] if operation(user) == "getitem" and len(user.args) == 2 else None
        if isinstance(place, int) and place < len(examples) and id(examples[place]) in known:
            found.append(Argument(user.name, known[id(examples[place])]))
    return found


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


def by_target(module: Any, arguments: Iterable[Argument]) -> dict[str, int]:
    """Parameters by what their nodes are called in Dynamo's books, those of DDPOptimizer too."""
    by_name = {one.name: one.parameter for one in arguments}
    targets = {
        str(node.target): by_name[node.name] for node in module.graph.nodes if node.name in by_name
    }
    # A layer's parameters go by the layer's name and their own.
    return {one.replace(".", "_"): place for one, place in by_name.items()} | by_name | targets
