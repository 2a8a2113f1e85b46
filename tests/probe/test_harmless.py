"""What users do with a DDP module besides training it works while it is recorded, and after."""

from __future__ import annotations

import copy
import ctypes
import io
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

from ddpviz.events import Batch, Cause, Flag, Kind, Module, Plan
from ddpviz.probe import Recorder
from tests.fidelity import scenarios
from tests.ranks import run_ranks


def install() -> tuple[Recorder, list[Batch]]:
    batches: list[Batch] = []
    return Recorder(sinks=[batches.append]).install(), batches


def records(batches: list[Batch], kind: Kind) -> np.ndarray:
    found = np.concatenate([batch.records for batch in batches])
    return found[found["kind"] == kind]


def notes(batches: list[Batch], cls: type) -> list[Any]:
    return [note for batch in batches for note in batch.notes if isinstance(note, cls)]


def copies(rank: int, world_size: int) -> list[int]:
    recorder, _ = install()
    modules = scenarios.build("python_hook")
    scenarios.train("python_hook", rank, modules, 2)
    sizes = []
    for closed in (False, True):
        if closed:
            recorder.close()
        buffer = io.BytesIO()
        torch.save(modules[0], buffer)
        sizes.append(len(buffer.getvalue()))
        assert type(copy.deepcopy(modules[0])) is DDP
        modules[0].load_state_dict(modules[0].state_dict())
    scenarios.train("python_hook", rank, modules, 2)
    return sizes


def test_pickle_and_deepcopy_work_while_recorded_and_after() -> None:
    for sizes in run_ranks(copies, 1):
        assert min(sizes) > 1000


def oddly_built(rank: int, world_size: int) -> dict[str, Any]:
    recorder, batches = install()
    sparse = DDP(nn.Embedding(5, 3, sparse=True))
    for _ in range(3):
        sparse(torch.tensor([1, 2])).sum().backward()
    partly = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2).requires_grad_(False))
    trained = [item for item in partly.named_parameters() if item[1].requires_grad]
    delayed = DDP(
        partly,
        delay_all_reduce_named_params=trained,
        param_to_hook_all_reduce=partly[0].weight,
    )
    refused = ""
    try:
        recorder.adopt(delayed)
    except ValueError as error:
        refused = str(error)
    root = nn.Linear(3, 2)
    DDP._set_params_and_buffers_to_ignore_for_model(root, ["bias"])
    ignoring = DDP(root)
    for _ in range(2):
        ignoring(torch.ones(1, 3)).sum().backward()
    recorder.close()
    return {
        "refused": refused,
        "plans": [note.module for note in notes(batches, Plan)],
        "names": [[p.name for p in note.parameters] for note in notes(batches, Module)],
        "group": delayed.process_group is dist.group.WORLD,
    }


def test_what_cannot_be_described_is_left_out_and_trains_on() -> None:
    for outcome in run_ranks(oddly_built, 2):
        assert "without a Reducer" in outcome["refused"]
        assert 0 not in outcome["plans"]  # sparse gradients: no flat bucket
        assert outcome["plans"]
        assert outcome["names"][0] == ["weight"]
        assert outcome["group"]


def frozen(rank: int, world_size: int) -> list[int]:
    modules = scenarios.build("plain")
    scenarios.train("plain", rank, modules, 3)
    for parameter in modules[0].module.conv.parameters():
        parameter.requires_grad_(False)
    recorder, batches = install()
    recorder.adopt(modules[0])
    recorder.close()
    return [len(note.parameters) for note in notes(batches, Module)]


def test_parameters_frozen_after_wrapping_keep_the_reducers_indices() -> None:
    assert run_ranks(frozen, 2) == [[10], [10]]


def joined_with_hook(rank: int, world_size: int) -> list[int]:
    recorder, batches = install()
    modules = scenarios.build("python_hook")
    with Join(modules):
        for _ in range(3 * rank):  # rank 0 has no batch at all
            modules[0](torch.randn(2, 3, 8, 8)).sum().backward()
    recorder.close()
    return [int(i) for i in records(batches, Kind.COMM_HOOK)["index"]]


def test_a_rank_without_batches_runs_hooks_for_the_others() -> None:
    none, some = run_ranks(joined_with_hook, 2)
    assert none == []
    assert min(some) == 0 and max(some) < 4


def evaluating(rank: int, world_size: int) -> dict[str, Any]:
    recorder, batches = install()
    modules = scenarios.build("no_buffers")
    optimizer = torch.optim.SGD(modules[0].parameters(), lr=0.1)
    for _ in range(3):
        loss = modules[0](torch.randn(2, 3, 8, 8)).sum()
        with torch.no_grad():
            modules[0](torch.randn(2, 3, 8, 8))
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            modules[0](torch.randn(2, 3, 8, 8))
    recorder.close()
    forward = records(batches, Kind.FORWARD)
    return {
        "steps": records(batches, Kind.STEP)["step"].tolist(),
        "unsteady": forward[forward["step"] == -1]["flags"].tolist(),
        "trained": set(forward[(forward["flags"] & Flag.NO_GRAD) == 0]["iteration"].tolist()),
        "backward": set(records(batches, Kind.BACKWARD)["iteration"].tolist()),
        "ready": set(records(batches, Kind.GRAD_READY)["iteration"].tolist()),
        "finalize": set(records(batches, Kind.FINALIZE)["iteration"].tolist()),
    }


def test_evaluation_is_no_training_step_and_takes_no_backward() -> None:
    for outcome in run_ranks(evaluating, 2):
        assert outcome["steps"] == [0, 1, 2]
        assert outcome["unsteady"] == [Flag.NO_GRAD] * 3
        for kind in ("backward", "ready", "finalize"):
            assert outcome[kind] == outcome["trained"]


def tables(rank: int, world_size: int) -> list[int]:
    world = dist.distributed_c10d._world
    before = len(world.pg_map)
    recorder, _ = install()
    for _ in range(3):
        scenarios.train("plain", rank, scenarios.build("plain"), 1)
    try:
        DDP(nn.ReLU())
    except RuntimeError:
        pass
    kept = scenarios.build("plain")
    recorder.close()
    assert kept[0].process_group is dist.group.WORLD
    return [before, len(world.pg_map)]


def test_no_tap_stays_in_torchs_tables() -> None:
    for before, after in run_ranks(tables, 1):
        assert after == before


def many_groups(rank: int, world_size: int) -> int:
    recorder, batches = install()
    for _ in range(260):
        dist.all_reduce(torch.ones(1), group=dist.new_group([rank]))
    recorder.close()
    return len(records(batches, Kind.COLLECTIVE_LAUNCHED))


def test_more_groups_than_ids_break_nothing() -> None:
    assert run_ranks(many_groups, 1) == [260]


def from_a_bare_thread(rank: int, world_size: int) -> list[int]:
    """Call the tap as CUDA's autograd threads do: from a thread without Python frames."""
    recorder, batches = install()
    modules = scenarios.build("plain")
    group = modules[0].process_group
    begin = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    errors = []

    def call(_: Any) -> int:
        try:
            group.allreduce([torch.ones(4)], dist.AllreduceOptions()).wait()
        except Exception as error:
            errors.append(error)
        return 0

    entry = begin(call)
    pthread = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    pthread.pthread_create(ctypes.byref(thread), None, entry, None)
    library = ctypes.CDLL(None)
    library.pthread_join(thread, None)
    recorder.close()
    assert not errors, errors
    launched = records(batches, Kind.COLLECTIVE_LAUNCHED)
    return [int(cause) for cause in launched["cause"] if cause in (Cause.USER, Cause.BUCKET)]


def test_a_thread_without_python_frames_can_launch() -> None:
    assert len(run_ranks(from_a_bare_thread, 1)[0]) == 1
