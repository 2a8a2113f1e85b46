"""CUDA events, pooled. Written for torch >= 2.6; not yet run on a GPU.

Only recording, ``query`` and ``elapsed_time``: none of them makes the host wait for the device.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ddpviz.events import Unavailable
from ddpviz.probe.device_times import DeviceTimes

if TYPE_CHECKING:
    from ddpviz.probe.patches import Patches
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState

#: As CUDA documents it for cudaEventElapsedTime.
RESOLUTION_NS = 500


class CudaEvent:
    """A timing event of one device."""

    __slots__ = ("event",)

    def __init__(self) -> None:
        self.event = torch.cuda.Event(enable_timing=True)

    def query(self) -> bool:
        """Whether the device has passed it."""
        return bool(self.event.query())

    def since_ns(self, earlier: CudaEvent) -> float:
        """Time between two that were passed, by the device's clock."""
        return earlier.event.elapsed_time(self.event) * 1e6


class CudaEvents:
    """Events on one device. Raises RuntimeError where CUDA has not started there."""

    resolution_ns = RESOLUTION_NS

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Of high priority: torch hands out streams in turns, and few ask for such.
        self._idle = torch.cuda.Stream(device, priority=-1)
        self._pool: deque[CudaEvent] = deque()

    def record(self) -> CudaEvent | None:
        """In the device's current stream; None while a CUDA graph is being captured there."""
        if torch.cuda.is_current_stream_capturing():
            return None
        event = self._taken()
        event.event.record(torch.cuda.current_stream(self._device))
        return event

    def anchor(self) -> CudaEvent | None:
        """In a stream of its own, so it is passed as soon as it is there."""
        if torch.cuda.is_current_stream_capturing():
            return None
        event = CudaEvent()
        event.event.record(self._idle)
        return event

    def free(self, event: Any) -> None:
        """To be used again."""
        self._pool.append(event)

    def _taken(self) -> CudaEvent:
        try:
            return self._pool.popleft()
        except IndexError:
            return CudaEvent()


def follow(recorder: Recorder, state: ModuleState, patches: Patches) -> None:
    """Have the recorder take times on the GPU, where this module is the first one on one."""
    if recorder.device_times is not None:
        return
    tensors = (reference() for reference in state.parameters)
    device = next((one.device for one in tensors if one is not None and one.is_cuda), None)
    if device is None:
        return
    try:
        events = CudaEvents(device)
    except RuntimeError as error:
        why = f"CUDA gives no events there: {error}"
        recorder.note(Unavailable(state.id, "device times", time.time_ns(), why))
        recorder.say(f"device times are not available here, because {why}")
        return
    times = DeviceTimes(events, recorder.write_rows, recorder.note, recorder.rank, str(device))
    _watch_captures(times, patches)
    recorder.follow_device(times)


def _watch_captures(times: DeviceTimes, patches: Patches) -> None:
    """No event may be asked for while a CUDA graph is captured, on whatever thread: by default
    that ends the capture with an error."""

    def begin(call: Callable[..., Any]) -> Callable[..., Any]:
        def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
            times.pause()
            try:
                return call(self, *args, **kwargs)
            except BaseException:
                times.go_on()
                raise

        return capture_begin

    def end(call: Callable[..., Any]) -> Callable[..., Any]:
        def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return call(self, *args, **kwargs)
            finally:
                times.go_on()

        return capture_end

    patches.wrap(torch.cuda.CUDAGraph, "capture_begin", begin)
    patches.wrap(torch.cuda.CUDAGraph, "capture_end", end)
