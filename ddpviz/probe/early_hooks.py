"""Python comm hooks that were registered before recording began.

C++ keeps such a hook and lets nothing take its place, so its call cannot be wrapped. But whatever
it does with a bucket it has to ask the bucket for: at the first question it has begun. From there
to its return it is followed as a profiler would, on its thread alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from ddpviz.events import Kind, Unavailable
from ddpviz.probe.backward import bucket_launched

if TYPE_CHECKING:
    from ddpviz.probe.patches import Patches
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState

_QUESTIONS = ("index", "buffer", "gradients", "parameters", "is_last", "set_buffer")
_ORIGINALS: dict[str, Any] = {
    name: getattr(dist.GradBucket, name) for name in _QUESTIONS if hasattr(dist.GradBucket, name)
}


class EarlyHooks:
    """Of one recorder. Nothing is patched before there is one."""

    def __init__(self, recorder: Recorder, patches: Patches):
        self._recorder = recorder
        self._patches = patches
        #: By the id of each of their parameters, which the Reducer keeps alive.
        self._states: dict[int, ModuleState] = {}
        #: Of which it was said that a hook's return is not seen.
        self._endless: list[ModuleState] = []

    def follow(self, state: ModuleState) -> bool:
        """Whether its buckets can be seen, from now on."""
        if not state.parameters or not {"index", "parameters", "buffer"} <= _ORIGINALS.keys():
            return False
        if not self._states:
            for name in _ORIGINALS:
                self._patches.wrap(dist.GradBucket, name, self._listening)
        self._states.update((id(reference()), state) for reference in state.parameters)
        return True

    def _listening(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def question(bucket: Any, *args: Any, **kwargs: Any) -> Any:
            local = self._recorder.local
            if local.hook_bucket < 0 and not local.cause and not self._recorder.closed:
                self._asked(bucket)
            return call(bucket, *args, **kwargs)

        return question

    def _asked(self, bucket: Any) -> None:
        parameters = _ORIGINALS["parameters"](bucket)
        state = self._states.get(id(parameters[0])) if parameters else None
        index = int(_ORIGINALS["index"](bucket))
        if state is None or not state.in_backward or index < state.launched_buckets:
            return
        recorder, frame = self._recorder, _outermost(sys._getframe(2))
        begin_ns, buffer = recorder.now(), _ORIGINALS["buffer"](bucket)
        state.launched_buckets = index
        bucket_launched(recorder, state, begin_ns, 0)
        recorder.local.early_hook = (frame.f_code, index, state)
        if recorder.fingerprints.due:
            recorder.fingerprints.bucket(state, index, buffer)
        self._until_it_returns(frame, state, index, begin_ns, buffer.nbytes)

    def _until_it_returns(
        self, frame: Any, state: ModuleState, index: int, begin_ns: int, nbytes: int
    ) -> None:
        recorder, iteration = self._recorder, state.backward_iteration
        if sys.getprofile() is not None:  # somebody else's, which must not be disturbed
            if state not in self._endless:
                self._endless.append(state)
                why = "another profiler follows its thread, and it is older than the recording"
                recorder.note(Unavailable(state.id, "comm hook", time.time_ns(), why))
            return

        def followed(of: Any, event: str, argument: Any) -> None:
            if event == "return" and of is frame:
                sys.setprofile(None)
                if not recorder.closed:
                    recorder.write(
                        Kind.COMM_HOOK,
                        begin_ns,
                        recorder.now(),
                        nbytes=nbytes,
                        iteration=iteration,
                        index=index,
                        module=state.id,
                    )

        sys.setprofile(followed)


def bucket_of(recorder: Recorder, frame: Any) -> tuple[int, ModuleState] | None:
    """Of the early hook that runs in this frame or called it; None in none."""
    early = recorder.local.early_hook
    if early is None:
        return None
    code, index, state = early
    return (index, state) if state.in_backward and _outermost(frame).f_code is code else None


def _outermost(frame: Any) -> Any:
    """The first frame that C++ called on this thread, or that autograd's engine did."""
    while frame.f_back is not None and frame.f_back.f_code.co_name != "_engine_run_backward":
        frame = frame.f_back
    return frame
