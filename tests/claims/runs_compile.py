"""What torch.compile makes of a DDP module. Each returns what its rank saw; python_reducer last."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.claims.models import Chain, layout, sent, wrap

LAYERS = 4
#: Bytes at which DDPOptimizer closes its first part in these runs: one layer of 64 x 64.
FIRST_BYTES = 16_384


@contextlib.contextmanager
def mode(name: str, first_bytes: int = FIRST_BYTES) -> Iterator[None]:
    """``optimize_ddp``, with nothing compiled before or after."""
    import torch._dynamo

    torch._dynamo.reset()
    before = dist._DEFAULT_FIRST_BUCKET_BYTES
    dist._DEFAULT_FIRST_BUCKET_BYTES = first_bytes
    try:
        with torch._dynamo.config.patch(optimize_ddp=name):
            yield
    finally:
        dist._DEFAULT_FIRST_BUCKET_BYTES = before
        torch._dynamo.reset()


def accumulators(loss: torch.Tensor) -> list[int]:
    """By compiled node of a backward, how many parameters' accumulators it feeds itself."""
    found, seen, todo = [], set(), [loss.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        following = [one for one, _ in node.next_functions if one is not None]
        if type(node).__name__.startswith("CompiledFunction"):
            found.append(sum(type(one).__name__ == "AccumulateGrad" for one in following))
        todo += following
    return found


def nodes(rank: int) -> dict[str, list[int]]:
    """The compiled nodes of a backward in two modes."""
    found = {}
    for name in ("ddp_optimizer", "no_optimization"):
        with mode(name):
            ddp = wrap(Chain(64, LAYERS), bucket_cap_mb=0.02)
            model = torch.compile(ddp, backend="aot_eager")
            loss = model(torch.randn(4, 64)).square().mean()
            found[name] = accumulators(loss)
            loss.backward()
    return found


def caps(rank: int) -> dict[str, Any]:
    """With a cap of 2 MiB: bytes of DDPOptimizer's parts and of the Reducer's buckets, each in the
    order of the backward; and what a cap below 1 MiB says."""
    from torch._dynamo.backends.distributed import DDPOptimizer

    parts: list[int] = []
    whole = DDPOptimizer.compile_fn

    def compile_fn(self: Any, module: Any, inputs: Any) -> Any:
        try:
            return whole(self, module, inputs)
        finally:
            parts.extend(bucket.size for bucket in reversed(self.buckets))

    def trained(cap_mb: float) -> DDP:
        ddp = wrap(Chain(512, 5), bucket_cap_mb=cap_mb)
        model = torch.compile(ddp, backend="eager")
        for _ in range(2):
            model(torch.randn(2, 512)).square().mean().backward()
        return ddp

    with mode("ddp_optimizer", 2**20):
        DDPOptimizer.compile_fn = compile_fn  # type: ignore[method-assign]
        try:
            buckets = [nbytes for _, nbytes in layout(trained(2))]
        finally:
            DDPOptimizer.compile_fn = whole  # type: ignore[method-assign]
    refused = ""
    with mode("ddp_optimizer", 2**20):
        try:
            trained(0.5)
        except Exception as error:
            refused = f"{type(error).__name__}: {error}"
    return {"parts": parts, "buckets": buckets, "refused": refused}


def external(rank: int) -> dict[str, bool]:
    """Whether parts of a graph x → a → b → c have a result that counts; nothing uses c."""
    from torch._dynamo.backends.distributed import Bucket, bucket_has_external_output

    graph = torch.fx.Graph()
    a = graph.call_function(torch.relu, (graph.placeholder("x"),))
    b = graph.call_function(torch.relu, (a,))
    c = graph.call_function(torch.relu, (b,))
    # As the walk collects them: backwards.
    return {
        "used by a later one": bucket_has_external_output(Bucket(nodes=[b])),
        "uses an earlier one": bucket_has_external_output(Bucket(nodes=[c])),
        "used inside": bucket_has_external_output(Bucket(nodes=[c, b])),
    }


def optimizer(rank: int) -> dict[str, Any]:
    """DDPOptimizer at work, with a cap of 2 MiB: what it is made with and by whom, what asks for a
    result of each part, what splits the graph, what compiles its parts."""
    from torch._dynamo.backends import distributed

    found: dict[str, Any] = {"asked": 0, "compiled": [], "split": 0, "guards": 0}
    init, asks = distributed.DDPOptimizer.__init__, distributed.bucket_has_external_output
    split = torch.fx.passes.split_module.split_module
    compiler = distributed.SubmodCompiler.run

    def made(self: Any, *given: Any, **named: Any) -> None:
        init(self, *given, **named)
        found["caps"] = (self.bucket_bytes_cap, self.first_bucket_cap)
        found["given"] = sorted(named)
        found["by"] = sys._getframe(1).f_globals["__name__"]

    def asked(bucket: Any) -> bool:
        found["asked"] += 1
        return asks(bucket)

    def parted(*given: Any, **named: Any) -> Any:
        found["split"] += 1
        result = split(*given, **named)
        found["parts"] = [node.target for node in result.graph.nodes if node.op == "call_module"]
        return result

    def runs(self: Any, *given: Any, **named: Any) -> Any:
        found["interpreter"] = isinstance(self, torch.fx.Interpreter)
        return compiler(self, *given, **named)

    def backend(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        # No Inductor and no AOTAutograd: it runs what it is given.
        guard = torch._guards.TracingContext.try_get()
        found["guards"] += bool(guard is not None and guard.fakify_first_call)
        found["compiled"].append(sum(node.op == "call_function" for node in module.graph.nodes))
        return module.forward

    with mode("ddp_optimizer", 2**20), contextlib.ExitStack() as stack:
        for owner, name, replacement in (
            (distributed.DDPOptimizer, "__init__", made),
            (distributed, "bucket_has_external_output", asked),
            (torch.fx.passes.split_module, "split_module", parted),
            (distributed.SubmodCompiler, "run", runs),
        ):
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, replacement)
        ddp = wrap(Chain(512, 5), bucket_cap_mb=2)
        torch.compile(ddp, backend=backend)(torch.randn(2, 512)).square().mean().backward()
    return found


def python_reducer(rank: int) -> dict[str, Any]:
    """What it sets, and what a backward then does with and without compiled autograd. Last."""
    import torch._inductor.config as inductor
    from torch._dynamo import compiled_autograd, trace_rules

    def settings() -> tuple[Any, ...]:
        listed = "torch.nn.parallel.distributed" in trace_rules.LEGACY_MOD_INLINELIST
        return inductor._fuse_ddp_communication, inductor._fuse_ddp_bucket_size, listed

    found: dict[str, Any] = {"before": settings()}
    with mode("python_reducer"):
        wrap(Chain(64, LAYERS), bucket_cap_mb=0.5)
        found["half a MiB"] = settings()
        ddp = wrap(Chain(64, LAYERS), bucket_cap_mb=3)
        model = torch.compile(ddp, backend="aot_eager")
        compiler = torch.compile(backend="aot_eager")

        def backward(autograd: bool) -> None:
            loss = model(torch.randn(4, 64)).square().mean()
            enabled = compiled_autograd._enable(compiler) if autograd else contextlib.nullcontext()
            with enabled:
                loss.backward()

        for name, autograd in (("alone", False), ("compiled", True)):
            backward(autograd)  # compiles
            found[name] = {
                "hooks": hooks_in(functools.partial(backward, autograd)),
                "sent": [one for one, _, _ in sent(functools.partial(backward, autograd))],
                "marked": any(ddp.reducer.get_backward_stats()),
            }
    found["after"] = settings()
    return found


def hooks_in(function: Any) -> int:
    """How often a call runs DDP's Python hook of a parameter."""
    count = 0

    def event(frame: Any, what: str, argument: Any) -> None:
        nonlocal count
        count += what == "call" and frame.f_code.co_name == "compiled_accum_grad_hook"

    sys.setprofile(event)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def fused(rank: int) -> dict[int, list[int]]:
    """By cap in MiB, how many of 14 all-reduces of 256 KiB each Inductor's pass puts into one."""
    from torch._inductor.fx_passes import ddp_fusion
    from torch.fx.passes.shape_prop import _extract_tensor_metadata

    gradient = torch.empty(2**16)
    graph = torch.fx.Graph()
    blocks = []
    for number in range(14):
        node = graph.placeholder(f"gradient_{number}")
        node.meta["tensor_meta"] = _extract_tensor_metadata(gradient)
        blocks.append(ddp_fusion.CommBlock(gradient.shape, [node], [], [], node, {node}))
    return {
        cap: [len(some) for some in ddp_fusion._bucket_size_fusion(graph, blocks, cap)]
        for cap in (1, 2)
    }


RUNS = {
    "nodes": nodes,
    "caps": caps,
    "external": external,
    "optimizer": optimizer,
    "fused": fused,
    "python_reducer": python_reducer,
}
