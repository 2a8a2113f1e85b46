"""The walk of a step: it is what runs without a recorder, and it changes nothing."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ddpviz.events import Batch, Unavailable, Walk
from ddpviz.probe import Recorder, frames
from tests.fidelity import scenarios
from tests.ranks import run_ranks

_C10D = "torch._C._distributed_c10d"
_DDP = "torch/nn/parallel/distributed.py"
_INLINE = ("<listcomp>", "<dictcomp>", "<genexpr>", "<setcomp>", "<lambda>")
#: Not of c10d's module.
_OF_THE_ENGINE = ("run_backward", "queue_callback")
#: What the scenarios ask a bucket.
_OF_BUCKETS = {"parameters", "buffer"}
#: These change how often or where DDP's functions run.
MODES = ("plain", "find_unused", "static_graph", "no_sync", "join", "python_hook", "two_modules")


def notes(batches: list[Batch], cls: type) -> list[Any]:
    return [note for batch in batches for note in batch.notes if isinstance(note, cls)]


def install() -> tuple[Recorder, list[Batch]]:
    batches: list[Batch] = []
    return Recorder(sinks=[batches.append]).install(), batches


# --- the same as without a recorder --------------------------------------------------------------


def bare(function: Callable[[], Any]) -> list[tuple[str, int]]:
    """DDP's functions and the Reducer's builtins that a call runs, by a profiler of our own."""
    found: list[tuple[str, int]] = []

    def event(frame: Any, what: str, argument: Any) -> None:
        code = frame.f_code
        if what == "call" and code.co_filename.endswith(_DDP) and code.co_name not in _INLINE:
            found.append((code.co_name, frame.f_lineno))
        elif what == "c_call" and getattr(argument, "__module__", "") == _C10D:
            found.append((argument.__name__, 0))

    sys.setprofile(event)
    try:
        function()
    finally:
        sys.setprofile(None)
    return [one for one in found if one[0] not in ("rank", "size")]


def both(rank: int, world_size: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for mode in MODES:
        steps = []
        modules = scenarios.build(mode)
        for step in range(3):
            steps.append(bare(functools.partial(scenarios.train, mode, rank, modules, 1, step)))
        recorder, batches = install()
        modules = scenarios.build(mode)
        for step in range(3):
            recorder.walk_next_step()
            scenarios.train(mode, rank, modules, 1, first=step)
        recorder.close()
        walks = [
            [
                (frame.function.rpartition(".")[2], frame.line)
                for frame in note.frames
                if frame.file == _DDP or not frame.file
            ]
            for note in notes(batches, Walk)
        ]
        found[mode] = steps, walks
    return found


@pytest.fixture(scope="module")
def compared() -> list[dict[str, Any]]:
    return run_ranks(both, 2)


@pytest.mark.parametrize("mode", MODES)
def test_a_walk_is_what_runs_without_a_recorder(compared: list[dict[str, Any]], mode: str) -> None:
    for rank in compared:
        steps, walks = rank[mode]
        assert len(walks) == len(steps) == 3
        for ran, walk in zip(steps, walks, strict=True):
            first = next(i for i, (name, _) in enumerate(ran) if name == "forward")
            seen = [one for one in walk if one[0] not in _OF_THE_ENGINE]
            until, rest = first + len(seen), {name for name, _ in ran[first + len(seen) :]}
            assert seen == ran[first:until]
            assert {"_pre_forward", "_rebuild_buckets", "_post_forward"} <= {n for n, _ in seen}
            # What comes after the optimizer's step is the scenario's own, or Join's.
            assert mode == "join" or rest <= {"_get_zeros_like_grad_buckets"} | _OF_BUCKETS


# --- nothing changes -----------------------------------------------------------------------------


def unchanged(rank: int, world_size: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for mode in scenarios.MODES:
        for walked in (False, True):
            dist.barrier()
            before = len(scenarios.flight())
            recorder, batches = install()
            modules = scenarios.build(mode)
            plans = []
            for step in range(6):
                if walked:
                    recorder.walk_next_step()
                plans += scenarios.train(mode, rank, modules, 1, first=step)
            recorder.close()
            found[mode, walked] = {
                "walks": len(notes(batches, Walk)),
                "not whole": [one.why for one in notes(batches, Unavailable) if one.what == "walk"],
                "collectives": [scenarios.shape(one) for one in scenarios.flight()[before:]],
                "plans": plans,
                "bits": scenarios.fingerprint(modules),
                "profiler": sys.getprofile(),
            }
    return found


def test_following_a_step_changes_nothing() -> None:
    for found in run_ranks(unchanged, 2):
        for mode in scenarios.MODES:
            without, walked = found[mode, False], found[mode, True]
            assert without.pop("walks") == 0
            assert walked.pop("walks") >= 6
            assert walked["not whole"] == []
            assert without == walked
            assert walked["profiler"] is None


# --- what can be in the way ----------------------------------------------------------------------


def far_too_many(rank: int) -> dict[str, Any]:
    frames.MOST_FRAMES = 12
    recorder, batches = install()
    modules = scenarios.build("plain")
    recorder.walk_next_step()
    scenarios.train("plain", rank, modules, 1)
    recorder.close()
    (walk,) = notes(batches, Walk)
    return {
        "frames": len(walk.frames),
        "ended": all(frame.end_ns >= frame.begin_ns for frame in walk.frames),
        "said": [note.why for note in notes(batches, Unavailable) if note.what == "walk"],
    }


def in_the_way(rank: int, world_size: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    recorder, batches = install()
    modules = scenarios.build("plain")

    mine: list[str] = []

    def profiler(frame: Any, event: str, argument: Any) -> None:
        mine.append(event)

    recorder.walk_next_step()
    sys.setprofile(profiler)
    scenarios.train("plain", rank, modules, 1)
    found["kept"] = sys.getprofile() is profiler and len(mine) > 100
    sys.setprofile(None)
    found["said"] = [note.why for note in notes_now(recorder, batches, Unavailable)]
    found["walks of it"] = len(notes_now(recorder, batches, Walk))

    scenarios.train("plain", rank, modules, 2, first=1)
    found["walks unasked"] = len(notes_now(recorder, batches, Walk))

    recorder.walk_next_step()
    with recorder.step():
        scenarios.train("plain", rank, modules, 1, first=3)
    (explicit,) = notes_now(recorder, batches, Walk)
    found["explicit"] = [one.function.rpartition(".")[2] for one in explicit.frames]
    batches.clear()

    recorder.walk_next_step()
    modules[0](torch.randn(4, 3, 8, 8)).square().mean().backward()
    sys.setprofile(profiler)
    recorder.steps.end(1)
    found["taken over"] = [note.why for note in notes_now(recorder, batches, Unavailable)]
    found["left alone"] = sys.getprofile() is profiler
    sys.setprofile(None)
    batches.clear()

    recorder.walk_next_step()
    try:
        modules[0](torch.randn(4, 3, 8, 8)).square().mean().backward()
        raise KeyError("mine")
    except KeyError:
        pass
    found["open"] = sys.getprofile() is not None
    other = threading.Thread(target=recorder.close)  # as at the end of a process
    other.start()
    other.join()
    scenarios.flight()  # any call: the profiler takes itself out
    found["closed"] = sys.getprofile() is None
    found["walks of a step without end"] = [
        len(note.frames) > 10 and max(frame.end_ns for frame in note.frames) > 0
        for note in notes(batches, Walk)
    ]
    found["too many"] = far_too_many(rank)
    return found


def notes_now(recorder: Recorder, batches: list[Batch], cls: type) -> list[Any]:
    recorder.flush()
    return notes(batches, cls)


def test_another_profiler_a_step_without_end_and_too_many_functions() -> None:
    for found in run_ranks(in_the_way, 2):
        assert found["kept"]
        assert found["said"] == ["another profiler follows the training thread: end it before"]
        assert found["walks of it"] == found["walks unasked"] == 0
        assert "zero_grad" in found["explicit"]
        assert {"_pre_forward", "run_backward", "step"} <= set(found["explicit"])
        taken = "another profiler took the training thread over during the step"
        assert found["taken over"] == [taken] and found["left alone"]
        assert found["open"] and found["closed"]
        assert found["walks of a step without end"] == [True]
        too_many = found["too many"]
        assert too_many["frames"] == 12 and too_many["ended"]
        assert too_many["said"] == ["the step ran more than 12 functions: the rest is left out"]


def compiled(rank: int, world_size: int) -> dict[str, Any]:
    """The model inside of DDP is compiled, or DDP with it."""
    return {
        f"{what}, walked {walked}": _train_compiled(rank, what, walked)
        for what in ("model", "DDP")
        for walked in (False, True)
    }


def _train_compiled(rank: int, what: str, walked: bool) -> dict[str, Any]:
    recorder, batches = install()
    torch.manual_seed(0)
    model: Any = scenarios.Net()  # of torch's own modules alone Dynamo would compile nothing
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any, **_: Any) -> Any:
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return graph.forward

    if what == "model":
        model = torch.compile(model, backend=backend)
    ddp = nn.parallel.DistributedDataParallel(model)
    called = torch.compile(ddp, backend=backend) if what == "DDP" else ddp
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(3):
        if walked:
            recorder.walk_next_step()
        torch.manual_seed(10 * rank + step)
        optimizer.zero_grad()
        called(torch.randn(4, 3, 8, 8)).square().mean().backward()
        optimizer.step()
    recorder.close()
    counters = torch._dynamo.utils.counters
    found = {
        "bits": scenarios.fingerprint([ddp]),
        "graphs": graphs,
        "frames": dict(counters["frames"]),
        "breaks": dict(counters["graph_break"]),
        "walks": [
            [(one.file, one.function) for one in note.frames] for note in notes(batches, Walk)
        ],
    }
    torch._dynamo.reset()
    counters.clear()
    return found


@pytest.mark.slow
def test_a_compiled_model_is_compiled_the_same_and_runs_the_same() -> None:
    for found in run_ranks(compiled, 2):
        for what in ("model", "DDP"):
            bare, walked = found[f"{what}, walked False"], found[f"{what}, walked True"]
            walks = walked.pop("walks")
            assert bare.pop("walks") == []
            if what == "DDP":  # Dynamo looks at the recorder's own functions, too: those are more
                for found_of in (bare, walked):
                    del found_of["frames"], found_of["breaks"]
            assert bare == walked
            assert len(walked["graphs"]) >= 1
            assert len(walks) == 3
            for walk in walks:
                assert 10 < len(walk) < 500
                assert not any("convert_frame" in file for file, _ in walk)
                assert (_DDP, "DistributedDataParallel._pre_forward") in walk
            # the first step compiles, by way of DDP's optimizer
            first = {file for file, _ in walks[0]}
            assert "torch/_dynamo/backends/distributed.py" in first


def test_where_the_recorder_lies_decides_what_is_its_own() -> None:
    """Not what a folder above it is called."""
    assert frames._PROBE.endswith(os.path.join("ddpviz", "probe", ""))
    assert not frames._is_probes(scenarios.train.__code__)
    assert frames._is_probes(frames.Walker.begin.__code__)
