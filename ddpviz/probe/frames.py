"""The functions of torch that one step really ran: ``sys.setprofile`` on its thread, for that step.

Python functions of DDP, ``torch.distributed``, autograd and optimizers, and builtins of the C
extension that they call. What the recorder itself calls is left out, so the walk is that of a step
without one. Backward's Python parts are seen where autograd runs on the calling thread, as it does
on the CPU. Checked on torch 2.13, Python 3.11.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import CodeType, FrameType
from typing import Any

import torch

from ddpviz.events import Frame
from ddpviz.probe.comm_hooks import RecordedHook
from ddpviz.probe.dynamo import keep_out

#: More than a step of DDP's own has; compilation inside a step can have any number.
MOST_FRAMES = 5000

_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_PROBE = os.path.join(os.path.dirname(__file__), "")
_MODULE = "torch/nn/modules/module.py"
#: Of these files a function is recorded where there is something recorded inside it: a module that
#: has a DDP in it, a call that comes to a collective.
_AROUND = (_MODULE, "torch/distributed/distributed_c10d.py")
#: Beginnings of the files whose functions are recorded.
_FILES = (
    "torch/nn/parallel/distributed.py",
    "torch/distributed/",
    "torch/autograd/__init__.py",
    "torch/autograd/graph.py",
    "torch/autograd/function.py",
    "torch/optim/",
    "torch/nn/modules/_functions.py",
)
#: Where a compilation begins, and what of it is DDP's.
_COMPILER = "torch/_dynamo/convert_frame.py"
_COMPILED = ("torch/_dynamo/backends/distributed.py", "torch/_inductor/fx_passes/ddp_fusion.py")
_NOT = ("torch/distributed/c10d_logger.py",)
#: Of these files only some functions.
_FUNCTIONS = {
    _MODULE: ("_wrapped_call_impl", "_call_impl"),
    "torch/_tensor.py": ("backward",),
}
_INLINE = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<lambda>")
_EXTENSION = "torch._C._distributed_c10d"
_ASKED = ("rank", "size")
_ENGINE = ("run_backward", "queue_callback")

#: A call that is open: its frame, or the frame that called a builtin; its row; a builtin's name.
_Open = tuple[FrameType, int, str]


class Walker:
    """Follows one step. ``originals``: the functions that the recorder has wrapped.

    ``missing``: why it is not whole, "" where it is.
    """

    def __init__(self, originals: list[Any]):
        self.begun = False
        self.missing = ""
        self._ended = False
        self._rows: list[list[Any]] = []
        self._open: list[_Open] = []
        self._muted: FrameType | None = None
        self._compiling: FrameType | None = None
        self._thread = 0
        self._files: dict[tuple[str, str], str] = {}
        self._codes = {getattr(one, "__code__", None) for one in originals} - {None}
        self._codes_of_hooks = {RecordedHook.__call__.__code__}
        self._builtins = {getattr(one, "__name__", "") for one in originals} - {""}

    def begin(self) -> None:
        """Watch this thread from here on, with what it is in already."""
        self.begun, self._thread = True, threading.get_ident()
        if sys.getprofile() is not None:
            self.missing = "another profiler follows the training thread: end it before"
            return
        now_ns = time.time_ns()
        outer: list[FrameType] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            outer.append(frame)
            frame = frame.f_back
        for frame in reversed(outer):
            file = self._file_of(frame.f_code)
            if file and file != _COMPILER:
                self._enter(frame, file, frame.f_code.co_firstlineno, now_ns)
        sys.setprofile(self._event)

    def end(self, end_ns: int) -> tuple[Frame, ...]:
        """Stop; what ran, as it began. What is still running ends here."""
        here = threading.get_ident() == self._thread
        # Before _ended is set: from then on the next call that is followed takes the profiler off.
        followed = here and sys.getprofile() == self._event
        self._ended = True
        if followed:
            sys.setprofile(None)
        elif here and not self.missing:
            self.missing = "another profiler took the training thread over during the step"
        for _, row, _ in self._open:
            self._rows[row][-1] = end_ns
        self._open.clear()
        self._muted = self._compiling = None
        return tuple(Frame(*row) for row in self._rows)

    # --- in the step -----------------------------------------------------------------------------

    def _event(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._ended:  # by another thread
            sys.setprofile(None)
            return
        try:
            self._take(frame, event, argument)
        except Exception as error:  # it would surface in the user's code
            self.missing = f"following the step failed ({type(error).__name__}: {error})"
            self._ended = True
            sys.setprofile(None)

    def _take(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._muted is not None:
            if event == "return" and frame is self._muted:
                self._muted = None
            return
        if self._compiling is not None:  # hundreds of thousands of calls
            if event == "return" and frame is self._compiling:
                self._compiling = None
            elif event == "call" and self._file_of(frame.f_code) in _COMPILED:
                self._called(frame)
            elif event == "return" and self._open and self._open[-1][0] is frame:
                self._left(frame, "")
        elif event == "call":
            self._called(frame)
        elif event == "c_call":
            name = getattr(argument, "__name__", "")
            if _is_extensions(argument, name) and not self._is_ours(frame, name):
                self._enter(frame, "", 0, time.time_ns(), name)
        elif self._open:
            name = "" if event == "return" else getattr(argument, "__name__", "")
            self._left(frame, name)

    def _called(self, frame: FrameType) -> None:
        code, caller = frame.f_code, frame.f_back
        if caller is not None and _is_probes(caller.f_code) and not _is_probes(code):
            stands_in = code in self._codes or caller.f_code in self._codes_of_hooks
            if not stands_in:
                self._muted = frame
                return
        file = self._file_of(code)
        if file == _COMPILER:
            self._compiling = frame
        elif file:
            self._enter(frame, file, frame.f_lineno, time.time_ns())

    def _enter(
        self, frame: FrameType, file: str, line: int, begin_ns: int, builtin: str = ""
    ) -> None:
        if len(self._rows) >= MOST_FRAMES:
            self.missing = f"the step ran more than {MOST_FRAMES} functions: the rest is left out"
            return
        called_at, name = 0, builtin
        if self._open and not self._open[-1][2]:
            called_at = self._open[-1][0].f_lineno or 0
        if not builtin:
            name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
        self._rows.append([len(self._open), file, name, line, called_at, begin_ns, begin_ns])
        self._open.append((_caller(frame) if builtin else frame, len(self._rows) - 1, builtin))

    def _left(self, frame: FrameType, builtin: str) -> None:
        of = _caller(frame) if builtin else frame
        for position in range(len(self._open) - 1, -1, -1):
            opened, row, name = self._open[position]
            if opened is of and name == builtin:
                break
        else:
            return
        end_ns = time.time_ns()
        for _, inner, _ in self._open[position:]:
            self._rows[inner][-1] = end_ns
        del self._open[position:]
        if row == len(self._rows) - 1 and self._rows[row][1] in _AROUND:
            self._rows.pop()

    # --- what is whose ---------------------------------------------------------------------------

    def _file_of(self, code: CodeType) -> str:
        """From "torch/" on, where it is to be looked at; else ""."""
        key = code.co_filename, code.co_name  # a code object's own hash is that of all its parts
        file = self._files.get(key)
        if file is None:
            file = self._files[key] = _recorded_file(*key)
        return file

    def _is_ours(self, frame: FrameType, name: str) -> bool:
        """Whether the recorder calls this builtin for itself, or C++ through its tap."""
        if not _is_probes(frame.f_code):
            return False
        if name not in self._builtins:
            return True
        # A collective that C++ hands to the tap: what called into C++ is still in its builtin.
        return bool(self._open) and bool(self._open[-1][2]) and self._open[-1][0] is _caller(frame)


def _caller(frame: FrameType) -> FrameType:
    """The frame itself, or the one that the recorder's wraps stand in for."""
    found = frame
    while _is_probes(found.f_code) and found.f_back is not None:
        found = found.f_back
    return found


def _is_probes(code: CodeType) -> bool:
    return code.co_filename.startswith(_PROBE)


def _is_extensions(builtin: Any, name: str) -> bool:
    if getattr(builtin, "__module__", None) == _EXTENSION:
        return name not in _ASKED
    return name in _ENGINE and "Engine" in type(getattr(builtin, "__self__", None)).__name__


def _recorded_file(path: str, name: str) -> str:
    if not path.startswith(_TORCH) or name in _INLINE:
        return ""
    file = "torch/" + path[len(_TORCH) :].replace(os.sep, "/")
    if file in _FUNCTIONS:
        return file if name in _FUNCTIONS[file] else ""
    if file == _COMPILER or file in _COMPILED:
        return file
    return file if file.startswith(_FILES) and not file.startswith(_NOT) else ""


keep_out(_caller, _is_probes, _is_extensions, _recorded_file)
keep_out(
    Walker.begin,
    Walker.end,
    Walker._event,
    Walker._take,
    Walker._called,
    Walker._enter,
    Walker._left,
)
keep_out(Walker._file_of, Walker._is_ours)
