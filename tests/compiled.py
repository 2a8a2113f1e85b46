"""Real compiled DDP training in every mode, bare and recorded, and what torch itself says of it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddpviz.events import Batch
from ddpviz.recording import Recording
from tests.fidelity import scenarios
from tests.ranks import run_ranks

STEPS = 4
WIDTH, LAYERS = 64, 4


@dataclasses.dataclass(frozen=True)
class Case:
    """``order``: "wrap" or "compile" first, "run" (compiled and run before it is wrapped), "" for
    eager. ``autograd``: whether compiled autograd takes the backward."""

    mode: str = "ddp_optimizer"
    order: str = "wrap"
    cap_mb: float = 0.02
    autograd: bool = False
    broken: bool = False
    backend: str = "aot_eager"


#: python_reducer last: what it tells Dynamo holds for the rest of the process.
CASES = {
    "eager": Case(order=""),
    "ddp_optimizer": Case(),
    "compiled first": Case(order="compile"),
    "run first": Case(order="run"),
    "inductor": Case(backend="inductor"),
    "one bucket": Case(cap_mb=1),
    "broken": Case(broken=True),
    "no_optimization": Case("no_optimization"),
    "without compiled forward": Case("python_reducer_without_compiled_forward"),
    "python_reducer, no autograd": Case("python_reducer"),
    "python_reducer": Case("python_reducer", autograd=True),
}


class Net(nn.Module):
    """Linear layers, with BatchNorm before the last; ``broken``: a graph break in the middle."""

    def __init__(self, broken: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.norm = nn.BatchNorm1d(WIDTH)
        self.head = nn.Linear(WIDTH, 10)
        self.broken = broken

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        if self.broken:
            torch._dynamo.graph_break()
        return self.head(self.norm(x))


def train(case: Case, rank: int, recorded: bool) -> dict[str, Any]:
    """One case; bits, torch's own counters, and what was recorded."""
    import torch._dynamo
    from torch._dynamo import compiled_autograd, config, utils
    from torch._dynamo.backends.registry import lookup_backend

    from ddpviz.probe import Recorder

    torch._dynamo.reset()
    utils.counters.clear()
    utils.clear_compilation_metrics()
    config.optimize_ddp = case.mode
    # DDPOptimizer's first limit is this one, and it refuses to exceed the cap.
    dist._DEFAULT_FIRST_BUCKET_BYTES = 16_384 if case.cap_mb < 1 else 1024 * 1024
    codes: list[str] = []

    def backend(module: Any, inputs: Any, **given: Any) -> Any:
        text = module.print_readable(print_output=False)
        # torch counts what it compiles in a process.
        codes.append(re.sub(r"(<eval_with_key>\.|aot|CompiledFunctionBackward)\d+", r"\1", text))
        return lookup_backend(case.backend)(module, inputs)

    batches: list[Batch] = []
    recorder = Recorder(sinks=[batches.append]).install() if recorded else None
    torch.manual_seed(0)
    net: Any = Net(case.broken)
    if case.order in ("compile", "run"):
        net = torch.compile(net, backend=backend)
    if case.order == "run":
        net(torch.zeros(8, WIDTH)).sum().backward()
        net.zero_grad(set_to_none=True)
    dist.barrier()
    begin_ns = time.time_ns()
    ddp = model = DDP(net, bucket_cap_mb=case.cap_mb)
    if case.order == "wrap":
        model = torch.compile(ddp, backend=backend)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    gradients = []
    for step in range(STEPS):
        # Another batch size in the last: in "broken" it is compiled anew for that.
        rows = 12 if case.broken and step == STEPS - 1 else 8
        torch.manual_seed(100 * rank + step)
        optimizer.zero_grad()
        loss = model(torch.randn(rows, WIDTH)).square().mean()
        if case.autograd:
            with compiled_autograd._enable(torch.compile(backend=backend)):
                loss.backward()
        else:
            loss.backward()
        if step == 0:
            gradients = [one.grad.clone().numpy() for one in ddp.parameters()]
        optimizer.step()
    span_ns = begin_ns, time.time_ns()
    if recorder is not None:
        recorder.close()
    return {
        "bits": _bits(ddp),
        "buffers": [buffer.clone().numpy() for buffer in ddp.buffers()],
        "gradients": gradients,
        "graphs": codes,
        "counted": {name: dict(utils.counters[name]) for name in ("stats", "graph_break")},
        "compiled": [_compilation(one) for one in utils.get_compilation_metrics()],
        "batches": batches,
        "span_ns": span_ns,
    }


def attached(rank: int, world_size: int, name: str) -> dict[str, Any]:
    """What Dynamo compiles in 6 steps, of which the middle two are recorded."""
    import torch._dynamo
    from torch._dynamo import compiled_autograd, config, utils

    from ddpviz.probe import Recorder

    case = CASES[name]
    config.optimize_ddp = case.mode
    dist._DEFAULT_FIRST_BUCKET_BYTES = 16_384
    torch.manual_seed(0)
    ddp = DDP(Net(), bucket_cap_mb=case.cap_mb)
    model = torch.compile(ddp, backend=case.backend)
    backward = torch.compile(backend=case.backend)
    recorder = Recorder()
    for step in range(6):
        if step == 2:
            recorder.install().adopt(ddp)
        if step == 4:
            recorder.close()
        loss = model(torch.randn(8, WIDTH)).square().mean()
        if case.autograd:
            with compiled_autograd._enable(backward):
                loss.backward()
        else:
            loss.backward()
        ddp.zero_grad()
    return {
        "counted": {name: dict(utils.counters[name]) for name in ("stats", "graph_break")},
        "compiled": [_compilation(one) for one in utils.get_compilation_metrics()],
    }


def _bits(ddp: DDP) -> str:
    digest = hashlib.sha256()
    for tensor in [*ddp.parameters(), *ddp.buffers()]:
        digest.update(tensor.detach().numpy().tobytes())
        if tensor.grad is not None:
            digest.update(tensor.grad.numpy().tobytes())
    return digest.hexdigest()


def _compilation(one: Any) -> tuple[Any, ...]:
    """What was compiled, how much came out, and why it was not the first time."""
    file = re.sub(r"<eval_with_key>\.\d+", "<eval_with_key>", one.co_filename or "")
    why = re.sub(r"\d{6,}", "id", one.recompile_reason or "")
    return one.co_name, file, one.graph_op_count, one.guard_count, why, one.fail_type


#: Those that are run without a recorder, too.
BARE = (
    "ddp_optimizer",
    "compiled first",
    "inductor",
    "broken",
    "no_optimization",
    "python_reducer, no autograd",
    "python_reducer",
)


def every_case(rank: int, world_size: int, names: list[str]) -> dict[tuple[str, bool], Any]:
    found = {
        (name, recorded): train(CASES[name], rank, recorded)
        for name in names
        for recorded in ((False, True) if name in BARE else (True,))
    }
    flights = scenarios.flights([one["span_ns"] for one in found.values()])
    for one, entries in zip(found.values(), flights, strict=True):
        one["collectives"] = [scenarios.shape(entry) for entry in entries]
    return found


@functools.cache
def recording(case: str) -> Recording:
    """What was recorded of a case."""
    found = Recording()
    for outcome in outcomes():
        for batch in outcome[case, True]["batches"]:
            found.append(batch)
    return found


@functools.cache
def outcomes() -> list[dict[tuple[str, bool], Any]]:
    """By rank: of each case and whether it was recorded. Run once, for all tests."""
    return run_ranks(every_case, 2, list(CASES))
