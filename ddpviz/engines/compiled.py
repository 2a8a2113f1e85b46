"""A session's compile settings: what they are, which go together, what changing them takes.

Imports no torch: the client works this out before a rank is asked. Checked on torch 2.13.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ddpviz.engines.errors import ConfigurationError

NONE, OPTIMIZER, PYTHON = "none", "ddp_optimizer", "python_reducer"
#: ``torch._dynamo.config.optimize_ddp`` by its names, and not compiled at all.
MODES = (NONE, OPTIMIZER, "no_optimization", PYTHON, "python_reducer_without_compiled_forward")
BACKENDS = ("inductor", "aot_eager", "eager")
WRAP_FIRST, COMPILE_FIRST = "wrap then compile", "compile then wrap"
ORDERS = (WRAP_FIRST, COMPILE_FIRST)
CHOICES = {"compile_mode": MODES, "compile_backend": BACKENDS, "compile_order": ORDERS}

#: ``torch.distributed._DEFAULT_FIRST_BUCKET_BYTES``, in MiB.
FIRST_CAP_MB = 1.0


@dataclasses.dataclass(frozen=True)
class Compile:
    """What ranks are told: the settings of these names."""

    compile_mode: str = NONE
    compile_backend: str = BACKENDS[0]
    compile_order: str = WRAP_FIRST
    compiled_autograd: bool = False

    @property
    def on(self) -> bool:
        """Whether anything is compiled."""
        return self.compile_mode != NONE

    def effective(self) -> Compile:
        """The same for all settings that make no difference: those of what is not compiled."""
        return self if self.on else Compile()


NAMES = tuple(field.name for field in dataclasses.fields(Compile))


def together(compile: Compile, ddp: Mapping[str, Any], comm_hook: Any) -> None:
    """Raises ConfigurationError for what cannot work, with the reason."""
    if compile.compiled_autograd and compile.compile_mode != PYTHON:
        raise ConfigurationError(
            f"compiled_autograd=True cannot work with compile_mode={compile.compile_mode!r}: there "
            "the C++ Reducer reduces, whose hooks compiled autograd cannot trace; take "
            f"compile_mode={PYTHON!r}, or turn compiled_autograd off"
        )
    if compile.compile_mode == PYTHON and comm_hook is not None:
        raise ConfigurationError(
            f"compile_mode={PYTHON!r} and comm_hook exclude each other: there DDP calls a hook for "
            "each parameter, with its gradient and no bucket"
        )
    if compile.on and ddp.get("mixed_precision") is not None:
        raise ConfigurationError(
            "compile_mode and mixed_precision exclude each other: DDP casts in hooks of the "
            "forward, which are not in a compiled one"
        )


def leaks(before: Compile, after: Compile) -> bool:
    """Whether engines have to be new: what python_reducer sets holds for the life of a process."""
    return before.compile_mode == PYTHON and after.compile_mode != PYTHON


def first_cap_mb(compile: Compile, ddp: Mapping[str, Any]) -> float | None:
    """What DDPOptimizer's first limit is lowered to, None where it need not be.

    It fails with an AssertionError where its first limit, which nobody passes on to it, is above
    the cap.
    """
    # Of a list of caps DDPOptimizer takes the largest, as DDP keeps it.
    cap = max(ddp.get("bucket_cap_mb_list") or (), default=ddp.get("bucket_cap_mb"))
    if compile.compile_mode != OPTIMIZER or cap is None or cap >= FIRST_CAP_MB:
        return None
    return float(cap)


def remarks(compile: Compile, ddp: Mapping[str, Any]) -> tuple[str, ...]:
    """What has to be said of these settings, a sentence each."""
    found = []
    lowered = first_cap_mb(compile, ddp)
    if lowered is not None:
        found.append(
            f"DDPOptimizer's first limit is lowered from {FIRST_CAP_MB:g} to {lowered:g} MiB, as "
            "it refuses a cap below it"
        )
    if compile.compile_mode == PYTHON:
        dropped = "DDP then syncs no buffers, moves no inputs and takes no part in Join"
        if not compile.compiled_autograd:
            dropped += "; without compiled_autograd each gradient is reduced alone, and waited for"
        found.append(dropped)
    if compile.compile_mode == "python_reducer_without_compiled_forward":
        found.append("torch 2.13 reads this mode nowhere: it is no_optimization by another name")
    return tuple(found)
