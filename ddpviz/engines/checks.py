"""Values of a configuration, checked before a rank sees them: each refusal is one sentence.

What torch itself would say is a list of C++ signatures, or an assertion of the Reducer in the
middle of a step. What is refused here was tried on torch 2.13.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

from ddpviz.engines import compiled
from ddpviz.engines.errors import ConfigurationError
from ddpviz.engines.settings import Facts, Settings

#: Built into ddpviz by name; None is DDP's own all-reduce.
COMM_HOOKS = ("allreduce", "fp16", "powersgd")
MIXED_PRECISIONS = ("float16", "bfloat16")
#: 1 TiB; beyond it bytes would not fit the Reducer's 64 bits long before memory is that large.
_MOST_MIB = 2**20
#: A step must be able to end within the time that stop() gives it.
MOST_DELAY_MS = 2_000.0
MOST_ACCUMULATION = 1_000

_Check = Callable[[str, Any], Any]


def value(name: str, given: Any, world_size: int) -> Any:
    """A value as the ranks take it. Raises ConfigurationError for one of the wrong type or range.

    Names that are not known here pass: a newer torch may have more.
    """
    if name == "delay_ms":
        return _delays(given, world_size)
    check = _CHECKS.get(name)
    return given if check is None else check(name, given)


def option(name: str, given: Any, default: Any, built_in: bool) -> Any:
    """A value for a workload's option; those of a user's own function are theirs to check."""
    if name == "batch_size":
        return _whole(name, given)
    if not built_in or default is None:
        return given
    if isinstance(default, bool):
        return _flag(name, given)
    if isinstance(default, int):
        return _whole(name, given)
    if isinstance(default, float):
        return _number(name, given)
    return given


def steps(given: Any, name: str = "steps") -> int:
    """How many steps to run, or rounds of them. Raises ConfigurationError."""
    return _whole(name, given)


def every(given: Any, name: str = "every") -> int:
    """In how many steps to take fingerprints once; 0 for never. Raises ConfigurationError."""
    if not _is_number(given) or given != int(given) or given < 0:
        raise _refuse(name, given, "a whole number from 0 on")
    return int(given)


def together(settings: Settings, facts: Facts) -> None:
    """Whether these settings can work with each other, and on this model and device.

    Raises ConfigurationError with the reason.
    """
    ddp, built = settings.ddp, facts.built
    on_gpu = facts.device.startswith("cuda")
    if settings.sync_batchnorm and not on_gpu:
        raise ConfigurationError(
            "sync_batchnorm=True cannot work here: SyncBatchNorm runs on GPUs only, and the ranks "
            "are on the CPU"
        )
    if ddp.get("static_graph") and settings.accumulation > 1:
        raise ConfigurationError(
            f"static_graph=True and accumulation={settings.accumulation} exclude each other: "
            "torch's Reducer fails where the first iteration of a static graph is in no_sync"
        )
    if ddp.get("mixed_precision") is not None:
        if not on_gpu:
            raise ConfigurationError(
                "mixed_precision cannot work here: DDP casts on a CUDA stream of its own, and the "
                "ranks are on the CPU"
            )
        if settings.comm_hook is not None:
            raise ConfigurationError(
                "mixed_precision and comm_hook exclude each other: DDP's mixed precision is a comm "
                "hook itself, and a module takes one"
            )
    compiled.together(settings.compile, ddp, settings.comm_hook)
    delayed = ddp.get("delay_all_reduce_named_params")
    hooked = ddp.get("param_to_hook_all_reduce")
    if (delayed is None) != (hooked is None):
        raise ConfigurationError(
            "delay_all_reduce_named_params and param_to_hook_all_reduce go together: "
            "give both, or both as None"
        )
    if built is not None:
        for name in [*(delayed or ()), *([hooked] if hooked is not None else [])]:
            if name not in built.parameters:
                raise ConfigurationError(
                    f"found the parameter name {name!r}, which the model does not have; its first "
                    f"ones are {', '.join(built.parameters[:3])}"
                )


def first_sentence(text: str) -> str:
    """Of what torch says: an error of its C++ side may go on for a thousand lines."""
    line = (text.strip().splitlines() or ["it gave no reason"])[0]
    sentence = line.partition(". ")[0].rstrip(". ")
    return sentence if len(sentence) <= 300 else sentence[:299] + "…"


def shown(value: Any) -> str:
    """A value in a sentence."""
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__name__))
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


# --- one value -----------------------------------------------------------------------------------


def _refuse(name: str, given: Any, expected: str) -> ConfigurationError:
    return ConfigurationError(f"found {name}={shown(given)}, expected {expected}")


def _flag(name: str, given: Any) -> bool:
    if not isinstance(given, bool):
        raise _refuse(name, given, "True or False")
    return given


def _flag_or_none(name: str, given: Any) -> bool | None:
    if given is not None and not isinstance(given, bool):
        raise _refuse(name, given, "True or False")
    return given


#: Beyond this no number of anything is meant; a whole number in Python has no end.
_MOST_NUMBER = 2**53


def _is_number(given: Any) -> bool:
    real = isinstance(given, numbers.Real) and not isinstance(given, bool)
    return real and -_MOST_NUMBER <= given <= _MOST_NUMBER  # neither NaN nor infinite


def _number(name: str, given: Any) -> float:
    if not _is_number(given):
        raise _refuse(name, given, "a number")
    return float(given)


def _whole(name: str, given: Any, most: float = math.inf) -> int:
    # A browser has one type of number.
    if not _is_number(given) or given != int(given) or not 1 <= given <= most:
        limit = "" if most == math.inf else f" to {most:g}"
        raise _refuse(name, given, f"a whole number from 1{limit or ' on'}")
    return int(given)


def _cap(name: str, given: Any) -> float | None:
    if given is None:
        return None
    if not _is_number(given) or given <= 0:
        raise _refuse(name, given, "a number above 0")
    if given > _MOST_MIB:
        raise _refuse(name, given, f"at most {_MOST_MIB} (MiB)")
    return given  # an int stays one


def _caps(name: str, given: Any) -> list[float] | None:
    if given is None:
        return None
    if not isinstance(given, (list, tuple)) or not given:
        raise _refuse(name, given, "a list of numbers above 0, or None")
    if any(not _is_number(one) or not 0 < one <= _MOST_MIB for one in given):
        raise _refuse(name, given, "numbers above 0 in it")
    return list(given)


def _names(name: str, given: Any) -> list[str] | None:
    if given is None:
        return None
    if not isinstance(given, (list, tuple)) or not all(isinstance(one, str) for one in given):
        raise _refuse(name, given, "a list of parameter names, or None")
    return list(given) or None


def _name(name: str, given: Any) -> str | None:
    if given is not None and not isinstance(given, str):
        raise _refuse(name, given, "a parameter's name, or None")
    return given or None


def _mixed_precision(name: str, given: Any) -> Any:
    if given is None or given in MIXED_PRECISIONS or hasattr(given, "param_dtype"):
        return given
    raise _refuse(name, given, f"None, {' or '.join(map(repr, MIXED_PRECISIONS))}")


def _comm_hook(name: str, given: Any) -> Any:
    if given in (None, "", "none"):
        return None
    if given in COMM_HOOKS or callable(given):
        return given
    known = ", ".join(map(repr, COMM_HOOKS))
    raise _refuse(name, given, f"None, {known} or a function (state, bucket) -> future")


def _choice(name: str, given: Any) -> str:
    known = compiled.CHOICES[name]
    if given not in known:
        raise _refuse(name, given, f"one of {', '.join(map(repr, known))}")
    return str(given)


def _rate(name: str, given: Any) -> float | None:
    if given is None:
        return None
    if not _is_number(given) or given <= 0:
        raise _refuse(name, given, "a number above 0, or None for no limit")
    return float(given)


def _delays(given: Any, world_size: int) -> dict[int, float]:
    """By rank, those that are not 0. Rank numbers may be texts: JSON has no others."""
    expected = f"milliseconds from 0 to {MOST_DELAY_MS:g} by rank, as {{1: 50}}"
    if isinstance(given, (list, tuple)):
        given = dict(enumerate(given))
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise _refuse("delay_ms", given, expected)
    found = {}
    for rank, delay in given.items():
        number = int(rank) if isinstance(rank, str) and rank.isdecimal() else rank
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < world_size:
            ranks = "rank 0 alone" if world_size == 1 else f"ranks 0 to {world_size - 1}"
            raise ConfigurationError(f"found delay_ms for rank {rank!r}, expected {ranks}")
        if not _is_number(delay) or not 0 <= delay <= MOST_DELAY_MS:
            raise _refuse("delay_ms", given, expected)
        if delay:
            found[number] = float(delay)
    return found


_CHECKS: dict[str, _Check] = {
    "forward_sync_buffers": _flag_or_none,
    "broadcast_buffers": _flag_or_none,
    "init_sync": _flag,
    "bucket_cap_mb": _cap,
    "bucket_cap_mb_list": _caps,
    "find_unused_parameters": _flag,
    "check_reduction": _flag,
    "gradient_as_bucket_view": _flag,
    "static_graph": _flag,
    "skip_all_reduce_unused_params": _flag,
    "batched_grad_copy": _flag,
    "delay_all_reduce_named_params": _names,
    "param_to_hook_all_reduce": _name,
    "mixed_precision": _mixed_precision,
    "comm_hook": _comm_hook,
    "sync_batchnorm": _flag,
    **dict.fromkeys(compiled.CHOICES, _choice),
    "compiled_autograd": _flag,
    "accumulation": lambda name, given: _whole(name, given, MOST_ACCUMULATION),
    "steps_per_second": _rate,
}
