"""What a session has configured, and what ranks say of the model they built.

Both cross between client and engines by pickle; imports neither torch nor ipyparallel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ddpviz.engines import compiled
from ddpviz.engines.compiled import Compile

#: Settings of the session's own; every other name is DDP's or the workload's.
WRAPPING = ("comm_hook", "sync_batchnorm")
PACE = ("accumulation", "delay_ms", "steps_per_second")
OWN = (*WRAPPING, *compiled.NAMES, *PACE)


@dataclasses.dataclass(frozen=True)
class Settings:
    """``ddp``: DDP's arguments by the names this torch has. ``options``: the workload's.

    ``workload``: a built-in's module or a packed function, see ``shipping``; ``name``: for a
    person. ``comm_hook``: a name or a callable (state, bucket) -> future. ``compile_mode`` and
    the three after it: see :class:`compiled.Compile`. ``accumulation``:
    batches of one step, all but the last in ``no_sync``. ``delay_ms``: by rank, slept at the
    begin of each step. ``steps_per_second``: at most so many, None for no limit.
    """

    workload: str | bytes
    name: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    ddp: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    comm_hook: Any = None
    sync_batchnorm: bool = False
    compile_mode: str = Compile.compile_mode
    compile_backend: str = Compile.compile_backend
    compile_order: str = Compile.compile_order
    compiled_autograd: bool = Compile.compiled_autograd
    accumulation: int = 1
    delay_ms: Mapping[int, float] = dataclasses.field(default_factory=dict)
    steps_per_second: float | None = None

    @property
    def compile(self) -> Compile:
        """How the model is compiled."""
        return Compile(**{name: getattr(self, name) for name in compiled.NAMES})

    def wrapping(self) -> dict[str, Any]:
        """What wrapping the model takes."""
        return {
            "ddp": dict(self.ddp),
            "comm_hook": self.comm_hook,
            "sync_batchnorm": self.sync_batchnorm,
            "compile": self.compile.effective(),
        }

    def pace(self) -> dict[str, Any]:
        """What each step takes."""
        return {
            "accumulation": self.accumulation,
            "delay_ms": dict(self.delay_ms),
            "steps_per_second": self.steps_per_second,
        }


@dataclasses.dataclass(frozen=True)
class Built:
    """What a rank built. ``parameters``: names; ``defaults``: of the workload's options, those
    that are numbers, flags or texts; ``batchnorm``: whether the model has such layers."""

    parameters: tuple[str, ...]
    batchnorm: bool
    defaults: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Facts:
    """What decides which configurations can work here. ``built``: None before a load."""

    ddp_arguments: tuple[str, ...]
    world_size: int
    device: str
    built: Built | None = None
