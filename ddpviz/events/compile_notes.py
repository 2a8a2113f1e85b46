"""Notes of torch.compile: graphs, how they were split, where they broke, what was compiled anew."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Compiled:
    """How ``torch.compile`` and a DDP module have been put together.

    ``optimize_ddp``: torch's mode of that name. ``reducer``: who reduces gradients, "C++" or
    "Python". ``backend``: its name. ``order``: "wrap then compile" or "compile then wrap".
    ``compiled_autograd``: whether a backward has been through it. Written at first, which is in the
    constructor where a model was compiled before, else as a graph is compiled or broken off, and
    when it changes. ``passed_over``: why Dynamo compiles no graph of the model's own forward, as
    "torch.compiler.disable is on it"; "" where nothing says so.
    """

    module: int
    version: int
    time_ns: int
    optimize_ddp: str
    reducer: str
    backend: str
    order: str
    compiled_autograd: bool
    passed_over: str = ""


@dataclasses.dataclass(frozen=True)
class Argument:
    """An input of a graph that is a parameter: its name in the code, the parameter's index."""

    name: str
    parameter: int


@dataclasses.dataclass(frozen=True)
class Graph:
    """An FX graph, as its backend gets it: noted when compiling it begins (:attr:`Kind.GRAPH`).

    ``id``: from 0 in each process. ``role``: "forward" (of Dynamo), "subgraph" (of ``parent``, by
    DDPOptimizer), "backward" (of compiled autograd, with the hooks traced into it), or "before
    fusion" and "after fusion" (what Inductor's pass that fuses all-reduces was given, and left).
    ``parent``: -1 where there is none. ``module``: the DDP module whose parameters it has, else
    :data:`NO_MODULE`. ``compile_id``: Dynamo's, as "0/1": frame and recompilation. ``function``,
    ``file``, ``line``: whose code it is. ``nodes``: calls in it. ``operations``: their targets in
    order, from the first on. ``arguments``: inputs that are parameters; ``bytes``: of these
    parameters. ``code``: readable. ``cut``: what was left out of ``operations`` and ``code``.
    ``siblings``: of a subgraph, how many its parent was split into, itself among them; 0 where
    that is not known.
    """

    id: int
    module: int
    parent: int
    time_ns: int
    role: str
    compile_id: str
    backend: str
    function: str
    file: str
    line: int
    nodes: int
    operations: tuple[str, ...]
    arguments: tuple[Argument, ...]
    bytes: int
    code: str
    cut: str
    siblings: int = 0


@dataclasses.dataclass(frozen=True)
class Part:
    """What DDPOptimizer makes one bucket, and so one subgraph. ``bytes``: as it counts them, every
    use of a parameter anew. ``extended``: nodes it took in past its cap to find one whose output
    is used outside; ``extended_bytes``: of the parameters of these."""

    nodes: int
    parameters: tuple[int, ...]
    bytes: int
    extended: int
    extended_bytes: int


@dataclasses.dataclass(frozen=True)
class Split:
    """DDPOptimizer's answer for a graph. ``parts``: in the order of the forward; only one of them
    means that the graph was not split. ``cap_bytes``, ``first_cap_bytes``: its limits, of the last
    part and those before it, as it goes backward. ``graphs``: ids of the subgraphs, by part; empty
    where the graph was not split."""

    graph: int
    module: int
    time_ns: int
    cap_bytes: int
    first_cap_bytes: int
    parts: tuple[Part, ...]
    graphs: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class GraphBreak:
    """Dynamo could not go on in a graph. ``type``: Dynamo's own name for it; ``reason``: in full.
    ``module``: the DDP module in whose forward it was, else :data:`NO_MODULE`."""

    module: int
    time_ns: int
    compile_id: str
    type: str
    reason: str
    file: str
    line: int


@dataclasses.dataclass(frozen=True)
class Recompile:
    """Code that had been compiled is compiled again. ``reasons``: guards that failed, one for each
    version there was."""

    module: int
    time_ns: int
    compile_id: str
    function: str
    file: str
    line: int
    reasons: tuple[str, ...]
