"""What ``torch.compile`` makes of a DDP module: graphs, splits, breaks, recompilations, fusion.

Dynamo's own functions are wrapped, so nothing is compiled, split or broken that would not be
without. What this torch has not is noted as :class:`ddpviz.events.Unavailable`. Dynamo is never
imported here: DDP's constructor does that. Checked on torch 2.13.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.parallel import distributed as ddp_file

from ddpviz.events import (
    NO_MODULE,
    Argument,
    Compiled,
    Flag,
    Graph,
    GraphBreak,
    Kind,
    Part,
    Recompile,
    Split,
    Unavailable,
)
from ddpviz.probe import dynamo, graphs
from ddpviz.probe.patches import Patches

if TYPE_CHECKING:
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState

#: Graphs whose code is kept: 64 kB each at most.
MOST_GRAPHS = 256
_POST_GRAD = "torch._inductor.fx_passes.post_grad"


class _Local(threading.local):
    """Of a thread that compiles: graphs that are at their backends now, the innermost last."""

    def __init__(self) -> None:
        self.open: list[Graph] = []
        self.begun_ns: list[int] = []


class Compiling:
    """Of one recorder. :meth:`follow` begins it, once Dynamo is there."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder
        self._patches = Patches()
        self._local = _Local()
        self._followed = self._fusion_followed = False
        self._graphs = 0
        self._said: dict[int, Compiled] = {}

    def follow(self) -> None:
        """Follow Dynamo where it has been imported, and keep it out of the recorder. Idempotent.

        To be called whenever a DDP module is there: what python_reducer's constructor tells Dynamo
        changes what it makes of ours.
        """
        if dynamo.loaded() is None:
            return
        missing = dynamo.skip_own_files()
        if missing:
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

    def close(self) -> None:
        """Dynamo is followed no more."""
        self._patches.restore()

    def _wrap(
        self, what: str, module: str, owner: str, name: str, make: Callable[..., Any]
    ) -> None:
        try:
            found = importlib.import_module(module)
            if owner:
                found = getattr(found, owner)
        except (ImportError, AttributeError):
            found = None
        if found is None or not self._patches.wrap(found, name, make):
            path = ".".join(filter(None, (module, owner, name)))
            self._unavailable(what, f"this torch has no {path}")

    def _unavailable(self, what: str, why: str) -> None:
        self._recorder.note(Unavailable(NO_MODULE, what, time.time_ns(), why))
        self._recorder.say(f"{what} of torch.compile are not available here, because {why}")

    # --- what a module is ------------------------------------------------------------------------

    def built(self, ddp: Any, state: ModuleState) -> None:
        """A DDP module is there: it may have a compiled model in it."""
        self.follow()
        backend = _backend_inside(ddp)
        if backend is not None:
            self._compiled(state, backend, False)

    def _compiled(self, state: ModuleState, backend: str, autograd: bool) -> None:
        ddp = state.ddp()
        if ddp is None:
            return
        order = "wrap then compile" if _backend_inside(ddp) is None else "compile then wrap"
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
        # Of two around one model the one that is in its forward, else the later: an earlier one
        # may not have been collected yet.
        states = sorted(self._recorder.states(), key=lambda one: (one is active, one.id))
        for state in reversed(states):
            known = {id(one()): index for index, one in enumerate(state.parameters)}
            known.pop(id(None), None)
            found = graphs.parameters_of(module, known)
            if len(found) > len(best[1]):
                best = state, found
        return best

    def _active_state(self) -> ModuleState | None:
        """As DDPOptimizer finds the module whose forward runs."""
        active = DDP._get_active_ddp_module() if hasattr(DDP, "_get_active_ddp_module") else None
        return None if active is None else self._recorder.state_of(active)

    # --- graphs ----------------------------------------------------------------------------------

    def _note(
        self,
        module: Any,
        state: ModuleState | None,
        arguments: tuple[Argument, ...],
        role: str,
        of: Graph | None,
        where: tuple[str, str, int],
        backend: str,
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

    def _safely(self, what: str, work: Callable[[], Any]) -> Any:
        """What the work gives, None where it fails: compiling must go on."""
        if self._recorder.closed:
            return None
        try:
            return work()
        except Exception as error:
            self._unavailable(what, f"following it failed ({type(error).__name__}: {error})")
            return None

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
        state = next((one for one in self._recorder.states() if one.id == of.module), None)
        arguments = tuple(one for one in of.arguments if one.name in names)
        where, backend = (of.function, of.file, of.line), backend_name(compiler.compiler)
        return self._note(module, state, arguments, "subgraph", of, where, backend)

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
        state = next((one for one in self._recorder.states() if one.id == of.module), None)
        where = of.function, of.file, of.line
        module = graph.owning_module
        self._note(_Readable(graph, module), state, (), role, of, where, of.backend)

    # --- breaks and recompilations ---------------------------------------------------------------

    def _graph_break(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def log_graph_break(self_: Any, code_options: Any, *args: Any, **kwargs: Any) -> Any:
            given = dict(zip(("reason", "exc"), args, strict=False)) | kwargs
            if not getattr(given.get("exc"), "logged", False):
                self._safely("graph breaks", lambda: self._of_break(code_options, **given))
            return call(self_, code_options, *args, **kwargs)

        return log_graph_break

    def _of_break(self, code_options: Any, reason: str = "", exc: Any = None) -> None:
        stack = getattr(exc, "real_stack", None)
        file, line = code_options["co_filename"], int(code_options["co_firstlineno"])
        if stack:
            file, line = stack[-1].filename, int(stack[-1].lineno or 0)
        kind = str(getattr(exc, "gb_type", None) or type(exc).__name__)
        module, states = self._active(), self._recorder.states()
        if module == NO_MODULE and len(states) == 1 and file == ddp_file.__file__:
            module = states[0].id  # Dynamo comes to DDP's forward before it runs
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

    def _active(self) -> int:
        """The DDP module in whose forward or backward this thread is."""
        states = self._recorder.states()
        inside = [one for one in states if one.in_forward] or [
            one for one in states if one.in_backward
        ]
        if inside:
            return max(inside, key=lambda one: one.prepared_ns).id
        state = self._active_state()
        return NO_MODULE if state is None else state.id

    # --- compilations as a whole -----------------------------------------------------------------

    def _begins(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def run_start_callbacks(handler: Any, given: Any, *args: Any, **kwargs: Any) -> Any:
            begin_ns = time.time_ns()
            self._local.begun_ns.append(begin_ns)
            self._safely("compilations", lambda: self._of_compilation(begin_ns, 0, given))
            return call(handler, given, *args, **kwargs)

        return run_start_callbacks

    def _ends(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def run_end_callbacks(handler: Any, given: Any, *args: Any, **kwargs: Any) -> Any:
            result = call(handler, given, *args, **kwargs)
            if self._local.begun_ns:
                begin_ns = self._local.begun_ns.pop()
                self._safely(
                    "compilations", lambda: self._of_compilation(begin_ns, time.time_ns(), given)
                )
            return result

        return run_end_callbacks

    def _of_compilation(self, begin_ns: int, end_ns: int, given: Any) -> None:
        label = self._recorder.label(str(given.callback_trigger.name).lower())
        self._recorder.write(Kind.COMPILE, begin_ns, end_ns, label=label, module=self._active())


class _Readable:
    """A graph that is being rewritten, with the readable code it would have."""

    def __init__(self, graph: Any, module: Any):
        self.graph = graph
        self._module = module

    def print_readable(self, print_output: bool = False) -> str:
        return str(self.graph.python_code("self", verbose=True).src)


# --- what Dynamo says of itself ------------------------------------------------------------------


def compile_id() -> str:
    """Dynamo's number for what it compiles now: "0/1", "!0/0/0" for a backward; "" outside."""
    context = getattr(sys.modules.get("torch._guards"), "CompileContext", None)
    found = context.current_compile_id() if context is not None else None
    return "" if found is None else str(found)


def optimize_ddp_mode() -> str:
    """``torch._dynamo.config.optimize_ddp`` by its name; "" without Dynamo."""
    mode = getattr(sys.modules.get("torch._dynamo.utils"), "get_optimize_ddp_mode", None)
    return "" if mode is None else str(mode())


def backend_name(compiler: Any) -> str:
    """Of a backend as Dynamo has it, behind what it wraps around it."""
    for _ in range(8):
        optimizer: Any = getattr(compiler, "__self__", None)
        if hasattr(optimizer, "backend_compile_fn"):
            compiler = optimizer.backend_compile_fn
            continue
        for name in ("_compiler_name", "compiler_name"):
            found = getattr(compiler, name, None)
            if isinstance(found, str):
                return found
        inner = getattr(compiler, "_torchdynamo_orig_backend", None)
        if inner is None:
            break
        compiler = inner
    return str(getattr(compiler, "__name__", type(compiler).__name__))


def _backend_inside(ddp: Any) -> str | None:
    """The backend of a compiled model that DDP has been put around; None where there is none."""
    for layer in ddp.module.modules():
        if type(layer).__name__ == "OptimizedModule":
            context = getattr(layer, "dynamo_ctx", None)
            return backend_name(getattr(context, "callback", None))
        if getattr(layer, "_compiled_call_impl", None) is not None:
            return ""
    return None
