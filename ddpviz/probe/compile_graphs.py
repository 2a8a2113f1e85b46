"""Dynamo's graphs, DDPOptimizer's splits of them, and the fusion of a compiled backward's
all-reduces. Checked on torch 2.13."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpviz.events import NO_MODULE, Argument, Compiled, Flag, Graph, Kind, Part, Split
from ddpviz.probe import graphs
from ddpviz.probe.compile_following import Following
from ddpviz.probe.dynamo import (
    backend_inside,
    backend_name,
    compile_id,
    optimize_ddp_mode,
    passed_over,
)

if TYPE_CHECKING:
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState

#: Graphs whose code is kept: 64 kB each at most.
MOST_GRAPHS = 256
_POST_GRAD = "torch._inductor.fx_passes.post_grad"


class FollowingGraphs(Following):
    """Notes each graph as its backend gets it, and times that."""

    def __init__(self, recorder: Recorder):
        super().__init__(recorder)
        self._fusion_followed = False
        self._graphs = 0
        self._said: dict[int, Compiled] = {}

    def _compiled(self, state: ModuleState, backend: str, autograd: bool) -> None:
        ddp = state.ddp()
        if ddp is None:
            return
        order = "wrap then compile" if backend_inside(ddp) is None else "compile then wrap"
        before = self._said.get(state.id)
        note = Compiled(
            state.id,
            0 if before is None else before.version + 1,
            time.time_ns(),
            optimize_ddp_mode(),
            "Python" if getattr(ddp, "_use_python_reducer", False) else "C++",
            backend,
            order,
            # Once a backward went through it, a forward's graph does not say that it is off.
            autograd or (before is not None and before.compiled_autograd),
            passed_over(ddp),
        )
        if before is None or note != dataclasses.replace(
            before, version=note.version, time_ns=note.time_ns
        ):
            self._said[state.id] = note
            self._recorder.note(note)

    def _owner(self, module: Any) -> tuple[ModuleState | None, tuple[Argument, ...]]:
        """The DDP module whose parameters a graph has, and which inputs these are."""
        active = self._active_state()
        best: tuple[ModuleState | None, tuple[Argument, ...]] = (active, ())
        if active is None and any(one.in_backward for one in self._recorder.modules.states()):
            active = self._recorder.backward_of
        # Of two around one model the one that is in its forward or backward, else the later: an
        # earlier one may not have been collected yet.
        states = sorted(self._recorder.modules.states(), key=lambda one: (one is active, one.id))
        for state in reversed(states):
            known = {id(one()): index for index, one in enumerate(state.parameters)}
            known.pop(id(None), None)
            found = graphs.parameters_of(module, known)
            if len(found) > len(best[1]):
                best = state, found
        return best

    def _note(
        self,
        module: Any,
        state: ModuleState | None,
        arguments: tuple[Argument, ...],
        role: str,
        of: Graph | None,
        where: tuple[str, str, int],
        backend: str,
        siblings: int = 0,
    ) -> Graph:
        def size_of(index: int) -> int:
            parameter = None if state is None else state.parameters[index]()
            return 0 if parameter is None else int(parameter.numel() * parameter.element_size())

        found = graphs.describe(module, arguments, size_of, self._graphs < MOST_GRAPHS)
        note = Graph(
            self._graphs,
            NO_MODULE if state is None else state.id,
            -1 if of is None else of.id,
            time.time_ns(),
            role,
            compile_id(),
            backend,
            *where,
            found.nodes,
            found.operations,
            found.arguments,
            found.bytes,
            found.code,
            found.cut,
            siblings,
        )
        self._graphs += 1
        self._recorder.note(note)
        return note

    def _timed(self, note: Graph | None, call: Callable[[], Any]) -> Any:
        """The call, as what the graph's backend does."""
        if note is None:
            return call()
        opened = self._local.open
        opened.append(note)
        begin_ns, flags = time.time_ns(), int(Flag.FAILED)
        try:
            result = call()
            flags = 0
            return result
        finally:
            opened.pop()
            self._recorder.write(
                Kind.GRAPH,
                begin_ns,
                time.time_ns(),
                index=note.id,
                flags=flags,
                module=note.module,
                label=self._recorder.label(note.role),
            )

    def _graph(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def call_user_compiler(output: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
            note = self._safely("graphs", lambda: self._of_dynamo(output, gm))
            return self._timed(note, lambda: call(output, gm, *args, **kwargs))

        return call_user_compiler

    def _of_dynamo(self, output: Any, module: Any) -> Graph:
        state, arguments = self._owner(module)
        autograd = compile_id().startswith("!")
        backend = backend_name(output.compiler_fn)
        if state is not None:
            self._local.module = state.id
            self._compiled(state, backend, autograd)
        if backend == "inductor" or _POST_GRAD in sys.modules:
            self._follow_fusion()
        code = output.root_tx.f_code
        where = code.co_name, code.co_filename, code.co_firstlineno
        role = "backward" if autograd else "forward"
        return self._note(module, state, arguments, role, None, where, backend)

    def _split(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def compile_fn(optimizer: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
            before = self._graphs
            try:
                return call(optimizer, gm, *args, **kwargs)
            finally:
                self._safely("splits", lambda: self._of_optimizer(optimizer, gm, before))

        return compile_fn

    def _of_optimizer(self, optimizer: Any, module: Any, before: int) -> None:
        buckets = getattr(optimizer, "buckets", None)
        if not buckets or not self._local.open:
            return
        of = self._local.open[-1]
        by_name = graphs.by_target(module, of.arguments)
        parts = tuple(
            Part(
                len(bucket.nodes),
                tuple(sorted({by_name[name] for name in bucket.params if name in by_name})),
                bucket.size,
                bucket.opcount_increased_to_capture_external_output,
                bucket.size - bucket.paramsize_before_opcount_increase
                if bucket.opcount_increased_to_capture_external_output
                else 0,
            )
            for bucket in buckets
        )
        subgraphs = tuple(range(before, self._graphs)) if len(parts) > 1 else ()
        self._recorder.note(
            Split(
                of.id,
                of.module,
                time.time_ns(),
                optimizer.bucket_bytes_cap,
                optimizer.first_bucket_cap,
                parts,
                subgraphs if len(subgraphs) == len(parts) else (),
            )
        )

    def _subgraph(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def compile_submod(compiler: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
            note = self._safely("splits", lambda: self._of_submod(compiler, module))
            return self._timed(note, lambda: call(compiler, module, *args, **kwargs))

        return compile_submod

    def _of_submod(self, compiler: Any, module: Any) -> Graph | None:
        if not self._local.open:
            return None
        of = self._local.open[-1]
        # Inputs keep the names they have in the whole graph.
        names = {node.name for node in module.graph.nodes if node.op in ("placeholder", "get_attr")}
        state = next((one for one in self._recorder.modules.states() if one.id == of.module), None)
        arguments = tuple(one for one in of.arguments if one.name in names)
        where, backend = (of.function, of.file, of.line), backend_name(compiler.compiler)
        whole = getattr(compiler, "module", None)  # which has a call for each subgraph
        nodes = () if whole is None else whole.graph.nodes
        siblings = sum(node.op == "call_module" for node in nodes)
        return self._note(module, state, arguments, "subgraph", of, where, backend, siblings)

    # --- python_reducer --------------------------------------------------------------------------

    def _follow_fusion(self) -> None:
        """Inductor's pass over a backward with all-reduces in it, where DDP has turned it on.

        It takes it by name into a module that Inductor is about to import.
        """
        config = sys.modules.get("torch._inductor.config")
        if self._fusion_followed or not getattr(config, "_fuse_ddp_communication", False):
            return
        self._fusion_followed = True
        self._wrap("fusion", _POST_GRAD, "", "fuse_ddp_communication", self._fusion)

    def _fusion(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def fuse_ddp_communication(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self._safely("fusion", lambda: self._of_fusion(graph, "before fusion"))
            result = call(graph, *args, **kwargs)
            self._safely("fusion", lambda: self._of_fusion(graph, "after fusion"))
            return result

        return fuse_ddp_communication

    def _of_fusion(self, graph: Any, role: str) -> None:
        reduces = any("all_reduce" in graphs.operation(node) for node in graph.nodes)
        if not self._local.open or not reduces:
            return
        of = self._local.open[-1]
        state = next((one for one in self._recorder.modules.states() if one.id == of.module), None)
        where = of.function, of.file, of.line
        self._note(_Readable(graph), state, (), role, of, where, of.backend)


class _Readable:
    """A graph that is being rewritten, with the readable code it would have."""

    def __init__(self, graph: Any):
        self.graph = graph

    def print_readable(self, print_output: bool = False) -> str:
        return str(self.graph.python_code("self", verbose=True).src)
