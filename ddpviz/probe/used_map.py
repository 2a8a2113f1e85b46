"""Which parameters this rank did not use, from the map that the Reducer hands to its group.

At that moment the map is this rank's own: the collective sums it over ranks in place, and the
Reducer's Python side shows the sum alone. Checked on torch 2.13.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from ddpviz.events import Unavailable, Unused

if TYPE_CHECKING:
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState

WHAT = "unused parameters"
_ON_DEVICE = b"on a device"


def launched(recorder: Recorder, state: ModuleState, used: torch.Tensor) -> None:
    """The map is about to be summed. ``used``: int32, per parameter 0 where it was not used."""
    if used.device.type != "cpu":
        if state.used_map != _ON_DEVICE:
            state.used_map = _ON_DEVICE
            why = f"the map of used parameters is on {used.device.type}, and to read it the host "
            why += "would have to wait"
            recorder.note(Unavailable(state.id, WHAT, time.time_ns(), why))
        return
    values = used.numpy()
    packed = values.tobytes()
    if packed == state.used_map:
        return
    first, state.used_map = not state.used_map, packed
    unused = tuple((values == 0).nonzero()[0].tolist())
    note = Unused(state.id, state.backward_iteration, time.time_ns(), unused)
    recorder.note(note, first)  # it may be another in every step
