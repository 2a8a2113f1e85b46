"""What ``torch.compile`` makes of a DDP module: graphs, splits, breaks, recompilations, fusion.

Dynamo's own functions are wrapped, so nothing is compiled, split or broken that would not be
without. What this torch has not is noted as :class:`ddpviz.events.Unavailable`. Dynamo is never
imported here: DDP's constructor does that. Checked on torch 2.13.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpviz.probe import dynamo
from ddpviz.probe.compile_happenings import FollowingHappenings

if TYPE_CHECKING:
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState


class Compiling(FollowingHappenings):
    """Of one recorder. :meth:`follow` begins it, once Dynamo is there."""

    def __init__(self, recorder: Recorder):
        super().__init__(recorder)
        self._followed = False

    def follow(self) -> None:
        """Follow Dynamo where it has been imported, and keep it out of the recorder. Idempotent.

        To be called whenever a DDP module is there: what python_reducer's constructor tells Dynamo
        changes what it makes of ours.
        """
        if dynamo.loaded() is None:
            return
        missing = dynamo.skip_own_files()
        if missing and not self._followed:
            self._unavailable("graph breaks", missing)
        if self._followed:
            return
        self._followed = True
        for what, module, owner, name, make in (
            ("graphs", "output_graph", "OutputGraph", "call_user_compiler", self._graph),
            ("splits", "backends.distributed", "DDPOptimizer", "compile_fn", self._split),
            ("splits", "backends.distributed", "SubmodCompiler", "compile_submod", self._subgraph),
            (
                "graph breaks",
                "symbolic_convert",
                "InstructionTranslatorBase",
                "log_graph_break",
                self._graph_break,
            ),
            (
                "recompilations",
                "convert_frame",
                "",
                "get_and_maybe_log_recompilation_reasons",
                self._recompile,
            ),
            (
                "compilations",
                "callback",
                "CompilationCallbackHandler",
                "run_start_callbacks",
                self._begins,
            ),
            (
                "compilations",
                "callback",
                "CompilationCallbackHandler",
                "run_end_callbacks",
                self._ends,
            ),
        ):
            self._wrap(what, f"torch._dynamo.{module}", owner, name, make)

    def built(self, ddp: Any, state: ModuleState) -> None:
        """A DDP module is there: it may have a compiled model in it."""
        self.follow()
        backend = dynamo.backend_inside(ddp)
        if backend is not None:
            self._compiled(state, backend, False)

    def close(self) -> None:
        """Dynamo is followed no more."""
        self._patches.restore()
