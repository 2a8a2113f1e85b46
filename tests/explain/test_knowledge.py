"""The knowledge base: what it covers, how it is looked up, and that its data is in order."""

from __future__ import annotations

from typing import Any

import pytest

from ddpviz.explain import entry, operation, source, spans, toml
from ddpviz.explain.knowledge import Entry, entries
from ddpviz.explain.lines import installed

DDP = "torch/nn/parallel/distributed.py"
REDUCER = "torch/csrc/distributed/c10d/reducer.cpp"

#: Functions that a profile of a DDP step, or of its compilation, names.
FUNCTIONS = {
    DDP: """__init__ _register_accum_grad_hook _ddp_init_helper _build_params_for_reducer
        _assign_modules_buffers no_sync _inside_ddp_forward _run_ddp_forward _clear_grad_buffer
        _lazy_init _pre_forward _post_forward forward _check_global_requires_backward_grad_sync
        _check_and_sync_module_buffers _sync_final_model _match_all_reduce_for_bwd_pass
        _match_unused_params_allreduce _distributed_broadcast_coalesced _check_sync_bufs_post_fwd
        _check_sync_bufs_pre_fwd will_sync_module_buffers _find_common_rank _sync_buffers
        _sync_module_buffers _default_broadcast_coalesced _DDPSink.forward _DDPSink.backward
        _DDPJoinHook.main_hook _DDPJoinHook.post_hook compiled_accum_grad_hook""",
    "torch/nn/modules/module.py": "_wrapped_call_impl _call_impl",
    "torch/distributed/utils.py": """_to_kwargs _verify_param_shape_across_processes
        _sync_module_states _sync_params_and_buffers""",
    "torch/distributed/algorithms/join.py": "notify_join_context",
    "torch/_tensor.py": "backward",
    "torch/autograd/__init__.py": "backward",
    "torch/autograd/graph.py": "_engine_run_backward",
    "torch/optim/optimizer.py": "wrapper zero_grad",
    "torch/_dynamo/backends/distributed.py": """bucket_has_external_output SubmodCompiler run_node
        FakeifyFirstAOTInvocationGuard DDPOptimizer compile_fn""",
    "torch/_dynamo/convert_frame.py": "CatchErrorsWrapper.__call__",
    "torch/_inductor/fx_passes/ddp_fusion.py": """_bucket_size_fusion _fuse_ddp_communication
        schedule_comm_wait fuse_ddp_communication""",
    "": """prepare_for_forward prepare_for_backward _rebuild_buckets set_runtime_stats_and_log
        _broadcast_coalesced run_backward""",
    REDUCER: """Reducer::Reducer Reducer::mark_variable_ready_dense Reducer::set_divide_factor
        Reducer::delay_all_reduce Reducer::autograd_hook Reducer::all_reduce_local_used_map
        Reducer::mark_variable_ready Engine::queue_callback Reducer::run_comm_hook
        Reducer::all_reduce_bucket Reducer::mark_bucket_ready Reducer::initialize_buckets
        Reducer::prepare_for_forward Reducer::search_unused_parameters
        Reducer::prepare_for_backward Reducer::copy_bucket_to_grad Reducer::finalize_bucket_dense
        Reducer::finalize_backward Reducer::sync_bucket_indices Reducer::rebuild_buckets
        compute_bucket_assignment_by_size verify_params_across_processes""",
    "torch/csrc/distributed/c10d/comm.cpp": """broadcast_coalesced BroadcastWork::BroadcastWork
        BroadcastWork::finish""",
}
#: Rows of a profile that are no functions.
OPERATIONS = [
    "DistributedDataParallel.forward",
    "nn.Module: DistributedDataParallel_0",
    "c10d::broadcast_",
    "c10d::allreduce_",
    "c10d::allgather_",
    "gloo:broadcast",
    "gloo:all_reduce",
    "gloo:all_gather",
    "record_param_comms",
    "nccl:all_reduce",
    "nccl:_broadcast_oop",
    "nccl:coalesced",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "ncclDevKernel_Broadcast_RING_LL",
    "torch::distributed::reducer::mul_out",
    "torch::distributed::reducer::copy_",
    "torch.distributed.ddp.reducer::copy_bucket_to_grad",
    "torch.distributed.ddp.reducer::search_unused_parameters",
    "aten::div_",
    "aten::_foreach_copy_",
    "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
    "torch::autograd::AccumulateGrad",
    "_DDPSinkBackward",
    "Optimizer.step#SGD.step",
    "Optimizer.zero_grad#SGD.zero_grad",
    "CompiledFunction",
    "CompiledFunctionBackward",
    "Torch-Compiled Region: 1/0",
    "Torch-Compiled Region: !0/0",
    "## Call CompiledFxGraph fabc ##",
    "TorchDynamo Cache Lookup",
    "Pregraph bytecode",
    "AOTDispatcher Runtime Wrapper Prologue",
    "_c10d_functional::all_reduce",
    "_c10d_functional::all_reduce_",
    "_c10d_functional::wait_tensor",
    "_wrap_tensor_autograd",
]
NAMES = [(file, name) for file, names in FUNCTIONS.items() for name in names.split()]


@pytest.mark.parametrize(("file", "function"), NAMES, ids=lambda part: str(part))
def test_every_function_that_a_profile_names_is_explained(file: str, function: str) -> None:
    found = entry(file, function)
    assert found is not None
    assert found.file == file
    assert function.rpartition(".")[2] in found.function


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_row_that_is_no_function_is_explained(name: str) -> None:
    assert operation(name) is not None


@pytest.mark.parametrize("one", entries(), ids=lambda one: one.function or one.name)
def test_an_entry_says_what_and_at_what_cost_and_a_change_says_its_risk(one: Entry) -> None:
    for text in (one.what, one.cost):
        assert text.endswith(".")
    assert one.title and not one.title.endswith(".")
    assert bool(one.how_to_change) <= bool(one.risk)


@pytest.mark.skipif(
    not installed().version.startswith("2.13"), reason="names were checked on torch 2.13"
)
@pytest.mark.parametrize(
    "one",
    [one for one in entries() if one.file.endswith(".py")],
    ids=lambda one: one.function or one.name,
)
def test_every_python_function_is_there_in_the_installed_torch(one: Entry) -> None:
    if one.whole_class:  # also one inside a function
        text = (installed().folder / one.file.removeprefix("torch/")).read_text(encoding="utf-8")
        assert f"class {one.function}" in text
        return
    found = source(one.file, one.function)
    assert found is not None
    assert f"{one.function.rpartition('.')[2]}(" in "".join(line for _, line in found.lines)


def test_a_file_is_known_by_any_ending_of_its_path() -> None:
    forward = entry(DDP, "DistributedDataParallel.forward")
    assert forward is not None
    for file in ("distributed.py", "parallel/distributed.py", f"/usr/lib/python3/{DDP}"):
        assert entry(file, "DistributedDataParallel.forward") is forward
    assert entry("other/distributed_.py", "DistributedDataParallel.forward") is None


def test_a_function_is_known_without_its_class_and_ddps_own_comes_first() -> None:
    assert entry(DDP, "forward") is entry(DDP, "DistributedDataParallel.forward")
    assert entry(DDP, "backward") is entry(DDP, "_DDPSink.backward")
    sink = entry(DDP, "_DDPSink.forward")
    assert sink is not None and sink is not entry(DDP, "forward")


def test_what_is_not_known_is_none_and_not_something_else_of_that_name() -> None:
    assert entry(DDP, "nothing_like_it") is None
    assert entry(DDP, "Other.forward") is None
    assert entry("", "forward") is None
    assert operation("aten::mm") is None


def test_a_class_speaks_for_its_methods_where_they_have_no_entry() -> None:
    file = "torch/_dynamo/backends/distributed.py"
    found = entry(file, "DDPOptimizer.add_param")
    assert found is not None and found.function == "DDPOptimizer"
    inner = "SubmodCompiler.run_node.<locals>.FakeifyFirstAOTInvocationGuard.__enter__"
    found = entry(file, inner)
    assert found is not None and found.function == "FakeifyFirstAOTInvocationGuard"


def test_places_within_a_cpp_function_have_their_line() -> None:
    hooks = entry(REDUCER, "Reducer::Reducer: hooks")
    assert hooks is not None and hooks.line("2.13.0") == (185, True)
    flight = entry("torch/csrc/distributed/c10d/comm.cpp", "broadcast_coalesced: max_in_flight")
    assert flight is not None and flight.article_line == 79


def test_cpp_lines_are_shifted_where_that_is_known_and_near_elsewhere() -> None:
    hook = entry(REDUCER, "Reducer::autograd_hook")
    assert hook is not None and hook.cpp
    assert hook.line("2.13.0+cpu") == (668, True)
    assert hook.line("2.99.0") == (667, False)
    broadcast = entry("comm.cpp", "broadcast_coalesced")
    assert broadcast is not None and broadcast.line("2.13.0") == (62, False)


def test_every_kind_of_span_is_explained() -> None:
    assert len(spans.kinds()) > 15
    for kind in spans.kinds():
        found = spans.span(kind)
        assert found is not None and found.entry.what
        assert not found.builtin or spans.inside(found.builtin)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"title": "a", "what": "b."}, "found no cost in here"),
        ({"title": "a", "what": "b.", "cost": ""}, "found no cost in here"),
        ({"title": "a", "what": "b.", "cost": "c.", "more": 1}, "found more in here"),
    ],
)
def test_data_that_is_not_in_order_is_refused(item: dict[str, Any], said: str) -> None:
    texts = ("title", "what", "cost")
    with pytest.raises(ValueError, match=said):
        toml.check("here", item, texts, texts)
