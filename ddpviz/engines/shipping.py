"""Functions and values of a script or notebook, packed for engines that have not its source."""

from __future__ import annotations

import inspect
import io
import marshal
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

import cloudpickle

from ddpviz.engines.errors import ConfigurationError
from ddpviz.engines.workloads import WORKLOADS


def workload(given: str | Callable[..., Any]) -> str | bytes:
    """What goes to the engines for a workload: a built-in's module, or a function packed.

    Raises ConfigurationError for what is neither a built-in's name nor a function.
    """
    if callable(given):
        _takes_a_rank(given)
        return dumps(given)
    if isinstance(given, str) and given in WORKLOADS:
        return WORKLOADS[given]
    known = ", ".join(WORKLOADS)
    raise ConfigurationError(f"found the workload {given!r}, expected a function or one of {known}")


def _takes_a_rank(function: Callable[..., Any]) -> None:
    """Raises ConfigurationError for a function that cannot be called as a workload's is."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C
        return
    try:
        signature.bind_partial(0, 1, "cpu")
    except TypeError:
        raise ConfigurationError(
            f"found a workload {name(function)}{signature}, expected one that can be called as "
            "function(rank, world_size, device, **options) and returns model, batch, loss: see "
            "help(ddpviz.Session.load)"
        ) from None


def name(given: str | Callable[..., Any]) -> str:
    """What a person calls it."""
    if isinstance(given, str):
        return given
    return str(getattr(given, "__name__", type(given).__name__))


def dumps(value: Any) -> bytes:
    """Pickled so that functions and classes of a script or notebook travel by value.

    A function's own module travels by value too unless it is an installed package's: engines
    may not have it, or have it as it was before the user edited it.
    Raises ConfigurationError for what cannot be pickled.
    """
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    file = getattr(module, "__file__", None) or "site-packages"
    by_value = module is not None and callable(value) and "site-packages" not in file
    if by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        buffer = io.BytesIO()
        _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
        return buffer.getvalue()
    except (TypeError, pickle.PicklingError) as error:
        raise ConfigurationError(
            f"found something that cannot be sent to the engines: {error}; make it inside the "
            "workload's function"
        ) from error
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)


class _Pickler(cloudpickle.Pickler):
    """Keeps the file names of code, which cloudpickle >= 3.1 drops: tracebacks need them."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, types.CodeType):
            return marshal.loads, (marshal.dumps(value),)
        return super().reducer_override(value)
