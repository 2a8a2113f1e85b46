"""Where Dynamo broke off, what it compiled again and why, and when it was at work. Checked on
torch 2.13."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torch.nn.parallel import distributed as ddp_file

from ddpviz.events import NO_MODULE, GraphBreak, Kind, Recompile
from ddpviz.probe.compile_graphs import FollowingGraphs
from ddpviz.probe.dynamo import backend_name, compile_id


class FollowingHappenings(FollowingGraphs):
    """Notes them as they come."""

    def _graph_break(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def log_graph_break(self_: Any, code_options: Any, *args: Any, **kwargs: Any) -> Any:
            given = dict(zip(("reason", "exc"), args, strict=False)) | kwargs
            if not getattr(given.get("exc"), "logged", False):
                backend = getattr(getattr(self_, "output", None), "compiler_fn", None)
                self._safely("graph breaks", lambda: self._of_break(backend, code_options, **given))
            return call(self_, code_options, *args, **kwargs)

        return log_graph_break

    def _of_break(
        self, backend: Any, code_options: Any, reason: str = "", exc: Any = None, **_: Any
    ) -> None:
        stack = getattr(exc, "real_stack", None)
        file, line = code_options["co_filename"], int(code_options["co_firstlineno"])
        if stack:
            file, line = stack[-1].filename, int(stack[-1].lineno or 0)
        kind = str(getattr(exc, "gb_type", None) or type(exc).__name__)
        module, states = self._active(), self._recorder.modules.states()
        if module == NO_MODULE and len(states) == 1 and file == ddp_file.__file__:
            module = states[0].id  # Dynamo comes to DDP's forward before it runs
        state = next((one for one in states if one.id == module), None)
        if state is not None and backend is not None:
            self._compiled(state, backend_name(backend), compile_id().startswith("!"))
        self._recorder.note(
            GraphBreak(module, time.time_ns(), compile_id(), kind, str(reason), str(file), line)
        )

    def _recompile(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def get_and_maybe_log_recompilation_reasons(
            entries: Any, frame: Any, *args: Any, **kwargs: Any
        ) -> Any:
            reasons = call(entries, frame, *args, **kwargs)
            self._safely("recompilations", lambda: self._of_recompile(frame.f_code, reasons))
            return reasons

        return get_and_maybe_log_recompilation_reasons

    def _of_recompile(self, code: Any, reasons: Any) -> None:
        self._recorder.note(
            Recompile(
                self._active(),
                time.time_ns(),
                compile_id(),
                code.co_name,
                code.co_filename,
                code.co_firstlineno,
                tuple(str(one) for one in reasons or ()),
            )
        )

    def _begins(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def run_start_callbacks(handler: Any, *args: Any, **kwargs: Any) -> Any:
            begin_ns = time.time_ns()
            self._local.begun_ns.append(begin_ns)
            self._local.module = NO_MODULE
            self._safely("compilations", lambda: self._of_compilation(begin_ns, 0, args))
            return call(handler, *args, **kwargs)

        return run_start_callbacks

    def _ends(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def run_end_callbacks(handler: Any, *args: Any, **kwargs: Any) -> Any:
            result = call(handler, *args, **kwargs)
            if self._local.begun_ns:
                begin_ns = self._local.begun_ns.pop()
                self._safely(
                    "compilations", lambda: self._of_compilation(begin_ns, time.time_ns(), args)
                )
            return result

        return run_end_callbacks

    def _of_compilation(self, begin_ns: int, end_ns: int, given: tuple[Any, ...]) -> None:
        # Torch 2.6 gives its callbacks nothing.
        trigger = getattr(given[0], "callback_trigger", None) if given else None
        label = self._recorder.label(str(getattr(trigger, "name", "dynamo")).lower())
        module = self._active()
        if module == NO_MODULE:
            module = self._local.module
        self._recorder.write(Kind.COMPILE, begin_ns, end_ns, label=label, module=module)
