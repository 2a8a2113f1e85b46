"""Code of the user's inside an engine: where it runs, and what it finds there."""

from __future__ import annotations

import ast
import linecache
import sys
import types
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist

from ddpviz.engines.state import RankState


class Here:
    """What ``session`` is on a rank: this rank's part of it."""

    def __init__(self, state: RankState):
        self._state = state

    @property
    def rank(self) -> int:
        return self._state.placement.rank

    @property
    def world_size(self) -> int:
        return self._state.placement.world_size

    @property
    def device(self) -> torch.device:
        return torch.device(self._state.placement.device)

    @property
    def backend(self) -> str:
        return self._state.placement.backend

    @property
    def recorder(self) -> Any:
        """Records every DistributedDataParallel of this process, see ``ddpviz.probe.Recorder``."""
        return self._state.recorder

    @property
    def ddp(self) -> Any:
        """The loaded workload's module in DDP, None where none is loaded."""
        return self._state.ddp

    @property
    def model(self) -> Any:
        """The loaded workload's module itself."""
        return self._state.model

    @property
    def optimizer(self) -> Any:
        """Of the loaded workload."""
        return self._state.optimizer

    def step(self) -> AbstractContextManager[int]:
        """``with session.step():`` is one training step, where ``optimizer.step()`` does not end
        it: with several optimizers, or none."""
        step: AbstractContextManager[int] = self._state.recorder.step()
        return step

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.world_size}, {self.backend} on {self.device}>"


def run(state: RankState, code: str, number: int) -> None:
    """Run it in this engine's namespace, and print the value of a last expression.

    Raises what the code raises.
    """
    name = f"<ddp cell {number}>"
    # Tracebacks and inspect.getsource (torch.compile, dataclasses) read the lines here.
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    try:
        tree = ast.parse(code, name)
    except SyntaxError as error:
        raise error.with_traceback(None) from None
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
        last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
    space = _namespace(state)
    outer = sys.modules.get("__main__")
    sys.modules["__main__"] = space  # else a class of the cell could not be pickled
    try:
        exec(compile(tree, name, "exec"), space.__dict__)
        if last is not None:
            value = eval(compile(last, name, "eval"), space.__dict__)
            if value is not None:
                print(repr(value))
    finally:
        if outer is not None:
            sys.modules["__main__"] = outer
        sys.stdout.flush()
        sys.stderr.flush()


def _namespace(state: RankState) -> types.ModuleType:
    """Made with the first cell; it lasts as long as the rank."""
    if state.namespace is None:
        space = types.ModuleType("__main__")
        here = Here(state)
        space.__dict__.update(
            rank=here.rank,
            world_size=here.world_size,
            device=here.device,
            session=here,
            torch=torch,
            dist=dist,
        )
        state.namespace = space
    return state.namespace
