"""NCCL's flight recorder: whether a collective has started on the GPU. Not yet run on one.

That a kernel has started NCCL's process group sees only where ``TORCH_NCCL_ENABLE_TIMING`` has it
record an event there; without it all that is not completed is "scheduled".

Of torch's private parts only ``_dump_nccl_trace_json`` (torch >= 2.6, built with NCCL); it keeps
entries where ``TORCH_NCCL_TRACE_BUFFER_SIZE`` (``TORCH_FR_BUFFER_SIZE``) is not 0.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch

#: The states of an entry, as a person would say them.
_SAID = {
    "scheduled": "its kernel has not started",
    "started": "its kernel runs",
    "completed": "its kernel has ended",
}
_NOT_TIMED = "it has not ended on the GPU (TORCH_NCCL_ENABLE_TIMING=1 would tell whether it began)"


def state_of(group_name: str, sequence: int, name: str) -> str:
    """What the GPU is at with a collective (``name``: its method), "" where that is not known."""
    dump = getattr(torch._C._distributed_c10d, "_dump_nccl_trace_json", None)
    if dump is None:
        return ""
    try:
        entries = json.loads(dump(True, False)).get("entries", [])
        found = [one for one in entries if _is(one, group_name, sequence, name)]
        state = str(found[-1].get("state")) if found else ""
        if state == "scheduled" and os.environ.get("TORCH_NCCL_ENABLE_TIMING", "0") != "1":
            return _NOT_TIMED
        return _SAID.get(state, "")
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return ""


def _is(entry: Any, group_name: str, sequence: int, name: str) -> bool:
    """The recorder counts collectives of a group from 1, the group itself from 0; what is coalesced
    it counts once, so the operation has to be the same, too."""
    names = entry.get("process_group") or ()
    operation = str(entry.get("profiling_name", "")).rpartition(":")[2].replace("_", "")
    same = operation == name.replace("_", "")
    return same and group_name in names and entry.get("collective_seq_id") == sequence + 1
