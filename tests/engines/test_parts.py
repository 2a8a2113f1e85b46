"""The parts of the engines folder that need no engine."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ipyparallel
import numpy as np
import pytest
import torch

from ddpviz.engines import configure, failure, guard, ranks, shipping, tasks, training, wire
from ddpviz.engines.errors import ConfigurationError, RankFailed, SessionError
from ddpviz.engines.feed import Feed
from ddpviz.engines.workloads import WORKLOADS, resnet
from ddpviz.events import RECORD, Batch, Cause, Kind, Label, Process
from ddpviz.recording import Recording

ROOT = Path(__file__).parents[2]
NEW = ("module", "bucket_cap_mb", "broadcast_buffers", "static_graph", "forward_sync_buffers")
OLD = ("module", "bucket_cap_mb", "broadcast_buffers", "static_graph")


def engine(host: str = "a", gpus: int = 0, cores: int = 8, nccl: bool = True) -> ranks.EngineInfo:
    names = tuple(str(i) for i in range(gpus))
    return ranks.EngineInfo(1, 1, host, cores, names, nccl, NEW)


# --- placement -----------------------------------------------------------------------------------


def test_without_a_gpu_ranks_share_the_cores_on_gloo() -> None:
    placements, said = ranks.place({4: engine(), 7: engine()}, None)
    assert [(one.rank, one.engine, one.device) for one in placements] == [
        (0, 4, "cpu"),
        (1, 7, "cpu"),
    ]
    assert {one.backend for one in placements} == {"gloo"}
    assert {one.threads for one in placements} == {4}
    assert said == "gloo on the CPU"


def test_a_gpu_for_each_rank_gives_nccl_and_one_visible_gpu_each() -> None:
    placements, _ = ranks.place({i: engine(gpus=2) for i in range(2)}, None)
    assert [one.visible_gpu for one in placements] == ["0", "1"]
    assert {one.backend for one in placements} == {"nccl"}
    assert {one.device for one in placements} == {"cuda:0"}


def test_two_hosts_number_their_gpus_apart() -> None:
    hosts = {0: engine("a", 1), 1: engine("b", 1)}
    placements, _ = ranks.place(hosts, None)
    assert [one.visible_gpu for one in placements] == ["0", "0"]
    assert {one.backend for one in placements} == {"nccl"}
    assert not any(one.local for one in placements)


def test_more_ranks_than_gpus_gives_gloo_on_cuda_and_says_so() -> None:
    placements, said = ranks.place({i: engine(gpus=1) for i in range(2)}, None)
    assert [(one.backend, one.device, one.visible_gpu) for one in placements] == [
        ("gloo", "cuda:0", "0")
    ] * 2
    assert "more ranks than GPUs" in said


def test_engines_that_each_see_another_gpu_have_it_for_themselves() -> None:
    """As those of a cluster whose scheduler has bound them."""
    found = {i: dataclasses.replace(engine(gpus=1), gpus=(f"MIG-{i}",)) for i in range(3)}
    placements, _ = ranks.place(found, None)
    assert {one.backend for one in placements} == {"nccl"}
    assert [one.visible_gpu for one in placements] == ["MIG-0", "MIG-1", "MIG-2"]


def test_nccl_without_gpus_is_refused_in_one_sentence() -> None:
    with pytest.raises(SessionError, match="NCCL needs a GPU for each rank"):
        ranks.place({0: engine()}, "nccl")
    with pytest.raises(SessionError, match="built without NCCL"):
        ranks.place({0: engine(gpus=1, nccl=False)}, "nccl")
    _, said = ranks.place({0: engine(gpus=1, nccl=False)}, None)
    assert said.endswith("as this torch has no NCCL")
    with pytest.raises(SessionError, match="expected 'nccl', 'gloo' or None"):
        ranks.place({0: engine()}, "mpi")


# --- configuration -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["broadcast_buffers", "forward_sync_buffers"])
def test_both_names_of_the_buffer_flag_reach_the_one_this_torch_has(name: str) -> None:
    assert configure.split({name: False}, NEW, ()) == ({"forward_sync_buffers": False}, {})
    assert configure.split({name: False}, OLD, ()) == ({"broadcast_buffers": False}, {})


def test_both_flag_names_at_once_are_refused() -> None:
    both = {"broadcast_buffers": True, "forward_sync_buffers": False}
    with pytest.raises(ConfigurationError, match="one flag"):
        configure.split(both, NEW, ())


def test_an_unknown_name_is_answered_with_the_nearest_and_the_known_ones() -> None:
    with pytest.raises(ConfigurationError) as caught:
        configure.split({"bucket_cap": 1}, NEW, ("depth",))
    assert "did you mean bucket_cap_mb?" in str(caught.value)
    assert "depth" in str(caught.value) and "static_graph" in str(caught.value)


def test_options_go_to_the_workload_and_knobs_to_ddp() -> None:
    values = {"depth": 50, "bucket_cap_mb": 1}
    assert configure.split(values, NEW, ("depth",)) == ({"bucket_cap_mb": 1}, {"depth": 50})
    assert configure.split({"anything": 1}, NEW, None) == ({}, {"anything": 1})


def test_what_the_session_decides_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigurationError, match="module cannot be set here: it is"):
        configure.split({"module": 1}, NEW, ())


def test_every_argument_of_this_torch_is_a_knob_or_explained() -> None:
    import inspect

    names = list(inspect.signature(torch.nn.parallel.DistributedDataParallel).parameters)
    known = configure.knobs(names)
    for name in names:
        if name not in known:
            with pytest.raises(ConfigurationError, match=f"{name} cannot be set here"):
                configure.split({name: None}, names, ())


# --- batches in order ----------------------------------------------------------------------------


def batch(sequence: int, rank: int = 0) -> bytes:
    return Batch(rank, sequence, np.zeros(1, RECORD)).to_bytes()


def test_batches_reach_the_recording_once_and_in_order_whatever_way_they_came() -> None:
    seen: list[tuple[int, int]] = []
    feed = Feed(lambda one: seen.append((one.rank, one.sequence)))
    for sequence in (0, 2, 1, 1, 0, 4):
        feed.receive(batch(sequence))
    feed.receive(batch(0, rank=1))
    assert seen == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert feed.missing(0, 6) == [3, 5]


def test_a_batch_that_never_comes_is_passed_over_when_released() -> None:
    seen: list[int] = []
    feed = Feed(lambda one: seen.append(one.sequence))
    for sequence in (1, 2, 5):
        feed.receive(batch(sequence))
    feed.release(0)
    feed.receive(batch(3))
    assert seen == [1, 2, 5]


# --- shipping ------------------------------------------------------------------------------------


def defined_here(rank: int, world_size: int, device: torch.device, width: int = 4) -> int:
    return width + helper()


def helper() -> int:
    return 1


def test_a_function_travels_with_its_helpers_and_keeps_its_file_for_tracebacks(
    tmp_path: Path,
) -> None:
    packed = shipping.workload(defined_here)
    assert isinstance(packed, bytes) and training.options(packed) == ("width",)
    (tmp_path / "packed").write_bytes(packed)
    code = (
        "import pickle, sys; f = pickle.load(open(sys.argv[1], 'rb'));"
        "print(f(0, 1, None), f.__code__.co_filename)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "packed")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout.split() == ["5", __file__]


def test_a_function_of_any_options_takes_any() -> None:
    packed = shipping.workload(lambda rank, world_size, device, **rest: None)
    assert training.options(packed) is None
    assert training.options(shipping.workload("resnet")) == (
        "depth",
        "image_size",
        "batch_size",
        "classes",
    )


def test_what_is_no_workload_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="convnet"):
        shipping.workload("convent")
    with pytest.raises(ConfigurationError, match="expected a function or one of"):
        shipping.workload(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="cannot be sent to the engines"):
        shipping.dumps(threading.Lock())


# --- workloads -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_a_built_in_trains_one_step_and_draws_other_batches_on_each_rank(name: str) -> None:
    import importlib

    build = importlib.import_module(WORKLOADS[name]).build
    torch.manual_seed(0)
    model, batch, loss = build(0, 2, torch.device("cpu"))
    loss(model(batch(0)[0]), batch(0)).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert torch.equal(batch(3)[0], batch(3)[0])
    assert not torch.equal(batch(3)[0], batch(4)[0])
    other = build(1, 2, torch.device("cpu"))[1]
    assert not torch.equal(batch(3)[0], other(3)[0])


def count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("depth", "parameters"), [(18, 11_689_512), (50, 25_557_032)])
def test_resnet_has_the_published_number_of_parameters(depth: int, parameters: int) -> None:
    assert count(resnet.resnet(depth, 1000)) == parameters


def test_resnet_50_has_the_published_channels_in_its_batch_norms() -> None:
    norms = [m for m in resnet.resnet(50, 1000).modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert len(norms) == 53 and sum(norm.num_features for norm in norms) == 26_560


def test_resnet_knows_two_depths() -> None:
    with pytest.raises(ValueError, match="expected one of"):
        resnet.resnet(34, 10)


def test_mlp_has_64_parameters() -> None:
    from ddpviz.engines.workloads import mlp

    assert len(list(mlp.build(0, 1, torch.device("cpu"))[0].parameters())) == 64


# --- errors and processes ------------------------------------------------------------------------


def test_the_error_names_rank_step_collective_and_the_way_out() -> None:
    error = RankFailed(3, 7, "allreduce 17 (bucket 2)", "ValueError: x", "trace", {0: "waited"})
    first, *rest = str(error).splitlines()
    assert first == (
        "rank 3 failed in step 7, in allreduce 17 (bucket 2): ValueError: x; "
        "session.restart() gives working engines with the same workload"
    )
    assert rest == ["  rank 0: waited", "", "Traceback of rank 3:", "trace"]


def test_a_reason_of_many_lines_leaves_the_first_line_whole() -> None:
    error = RankFailed(
        0, -1, "", "DistBackendError: NCCL error\nException raised from x.cpp:1", "t"
    )
    assert error.summary == "rank 0 failed: DistBackendError: NCCL error"
    assert str(error).splitlines()[0] == f"{error.summary}; {error.advice}"


def test_an_ipyparallel_that_hides_its_messages_is_named_in_one_sentence() -> None:
    class Client:
        def __getitem__(self, engine: int) -> Client:
            return self

        def apply_async(self, function: object) -> object:
            return concurrent.futures.Future()

    with pytest.raises(SessionError, match=f"found ipyparallel {ipyparallel.__version__}"):
        wire.send(Client(), 0, int, ())


def scene(begun_ns: int, **how: Any) -> failure.Scene:
    """A rank in step 4, in an all-reduce that did not end, by a clock that says ``begun_ns``."""
    recording = Recording()
    process = Process(1, 2, 7, "elsewhere", "2.13", "3.11", "cpu", begun_ns, "default")
    rows = np.zeros(3, RECORD)
    rows["rank"], rows["label"] = 1, 1
    rows["begin_ns"] = begun_ns + np.array([10, 20, 30])
    rows["end_ns"] = rows["begin_ns"] + 1
    rows["kind"] = [Kind.STEP, Kind.COLLECTIVE_LAUNCHED, Kind.COLLECTIVE_LAUNCHED]
    rows["step"] = [3, 4, 4]
    rows["sequence"] = [-1, 8, 9]
    rows["cause"] = Cause.BUCKET
    recording.append(Batch(1, 0, rows, (process, Label(1, "allreduce 2 KiB"))))
    return failure.Scene(recording, **{"lives": {}, "base": 0, "one_clock": False, **how})


def test_the_last_words_of_a_rank_do_not_hang_on_our_clock() -> None:
    an_hour = 3_600_000_000_000
    for begun_ns in (time.time_ns() - an_hour, time.time_ns() + an_hour):
        found = scene(begun_ns)
        assert failure.last_words(found, 1) == (4, "allreduce 8 (bucket 0)")
        assert found.now_ns(1) == begun_ns + 31
        # An earlier life of the rank says nothing about this one.
        assert failure.last_words(scene(begun_ns, lives={1: 1}), 1) == (-1, "")


def test_of_a_rank_whose_last_records_are_missing_no_collective_is_named() -> None:
    assert failure.last_words(scene(1, behind={1}), 1) == (4, "")
    dead = {1: tasks.Outcome(None, 5, "its process ended", gone=True)}
    error = failure.error(dead, scene(1, behind={1}), "advice", "")
    assert str(error) == "rank 1 failed in step 4 or later: its process ended; advice"


def test_between_runs_no_step_is_named() -> None:
    assert failure.last_words(scene(1, stepping=False), 1) == (-1, "")


def test_who_failed_first_goes_by_one_clock_only() -> None:
    def outcome(engine_ns: int, seen_ns: int) -> tasks.Outcome:
        return tasks.Outcome(ranks.Report(problem=ranks.Problem(engine_ns, 1, "", "x")), seen_ns)

    outcomes = {0: outcome(engine_ns=10, seen_ns=2), 1: outcome(engine_ns=9, seen_ns=3)}
    assert failure.first(outcomes, scene(1, one_clock=True)) == 1
    assert failure.first(outcomes, scene(1)) == 0


def test_a_problem_formats_with_lines_that_only_this_side_has() -> None:
    import linecache

    linecache.cache["<cell 1>"] = (8, None, ["one()\n", "two()\n"], "<cell 1>")
    problem = ranks.Problem(0, 1, "", "ValueError: x", (("<cell 1>", 2, "f", ""),))
    assert pickle.loads(pickle.dumps(problem)).text().splitlines() == [
        "Traceback (most recent call last):",
        '  File "<cell 1>", line 2, in f',
        "    two()",
        "ValueError: x",
    ]


def test_a_process_that_has_ended_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ticks = guard.start_ticks(child.pid)
    assert guard.alive(child.pid, ticks)
    assert not guard.alive(child.pid, ticks + 1)  # the number used again by another process
    child.kill()
    deadline = time.monotonic() + 10
    while guard.alive(child.pid, ticks) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not guard.alive(child.pid, ticks)  # a zombie, not yet reaped
    child.wait()


def test_engines_can_be_imported_without_torch_and_ipyparallel() -> None:
    code = (
        "import sys, ddpviz.engines, ddpviz.engines.guard, ddpviz.engines.worker;"
        "print(sorted({'torch', 'ipyparallel', 'IPython'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"
