"""Which names a configuration may have: DDP's own arguments and the workload's options."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any

from ddpviz.engines.errors import ConfigurationError
from ddpviz.engines.settings import OWN

#: Arguments of DDP that the session itself decides, and why.
_OURS = {
    "module": "it is the workload's model",
    "device_ids": "ranks are placed on devices when the session starts",
    "output_device": "ranks are placed on devices when the session starts",
    "dim": "only CPU tensors of several devices in one process would need it",
    "process_group": "the session makes the group",
    "device_mesh": "the session makes the group",
}
#: Both names of one flag: torch >= 2.13 calls it ``forward_sync_buffers``.
BUFFER_FLAGS = ("forward_sync_buffers", "broadcast_buffers")


def knobs(ddp_arguments: Collection[str]) -> tuple[str, ...]:
    """What ``configure`` takes: DDP's arguments less those of the session, both flag names."""
    names = [name for name in ddp_arguments if name not in _OURS and name != "self"]
    return tuple(dict.fromkeys([*names, *BUFFER_FLAGS]))


def split(
    values: dict[str, Any], ddp_arguments: Collection[str], options: Collection[str] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(DDP's arguments by the names this torch has, the workload's options).

    ``options``: the workload's names, None for one that takes any. Raises ConfigurationError
    for a name that is neither, for one the session decides, and for both flag names at once.
    """
    known = knobs(ddp_arguments)
    own = None if options is None else tuple(options)
    ddp: dict[str, Any] = {}
    workload: dict[str, Any] = {}
    if all(name in values for name in BUFFER_FLAGS):
        raise ConfigurationError(
            "found both forward_sync_buffers and broadcast_buffers, which are one flag: give one"
        )
    for name, value in values.items():
        if name in BUFFER_FLAGS:
            ddp[buffer_flag(ddp_arguments)] = value
        elif name in known:
            ddp[name] = value
        elif own is None or name in own:
            workload[name] = value
        elif name in _OURS:
            raise ConfigurationError(f"{name} cannot be set here: {_OURS[name]}")
        else:
            raise ConfigurationError(_unknown(name, [*known, *OWN, *own]))
    return ddp, workload


def buffer_flag(ddp_arguments: Collection[str]) -> str:
    """The name that this torch has for it."""
    return next(name for name in BUFFER_FLAGS if name in ddp_arguments)


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"found the unknown name {name!r}{hint}, expected one of: {', '.join(sorted(known))}"
