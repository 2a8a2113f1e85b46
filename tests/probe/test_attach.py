"""``ddpviz.attach`` in a training script of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpviz.events import Cause, Configuration, Kind, Unavailable
from ddpviz.probe import Recorder
from tests import compiled
from tests.fidelity import scenarios
from tests.ranks import run_ranks


def attach_and_train(rank: int, world_size: int, out: str) -> dict[str, Any]:
    import ddpviz

    modules = scenarios.build("plain")
    scenarios.train("plain", rank, modules, 3)
    with ddpviz.attach(modules[0], out):
        scenarios.train("plain", rank, modules, 6, first=3)
    scenarios.train("plain", rank, modules, 2, first=9)
    errors = []
    for wrong in (modules[0].module, "model"):
        try:
            ddpviz.attach(wrong)
        except TypeError as error:
            errors.append(str(error))
    try:
        ddpviz.attach(modules[0], out)
    except FileExistsError as error:
        errors.append(str(error))
    in_memory = ddpviz.attach(modules[0])
    try:
        ddpviz.attach(modules[0])
    except RuntimeError as error:
        errors.append(str(error))
    scenarios.train("plain", rank, modules, 2, first=11)
    in_memory.close()
    in_memory.close()
    recording = in_memory.recording
    assert recording is not None
    return {"errors": errors, "in_memory": len(recording.records(kinds=[Kind.STEP]))}


def test_attach_records_the_steps_between_and_says_what_is_wrong(tmp_path: Path) -> None:
    import ddpviz

    results = run_ranks(attach_and_train, 2, str(tmp_path / "run"))
    recording = ddpviz.load(tmp_path / "run")
    assert recording.ranks == [0, 1]
    for rank in (0, 1):
        assert len(recording.records(kinds=[Kind.STEP], ranks=[rank])) == 6
    launched = recording.records(kinds=[Kind.COLLECTIVE_LAUNCHED])
    assert set(launched["cause"]) == {Cause.BUFFERS, Cause.BUCKET}  # no rebuild is caused
    for result in results:
        assert result["in_memory"] == 2
        module, text, exists, twice = result["errors"]
        assert "found a Net, expected a DistributedDataParallel" in module
        assert "found a str" in text
        assert "found a recording of rank" in exists
        assert "already active" in twice
    assert not list((tmp_path / "run").glob("*.ring"))


def join(rank: int, world_size: int) -> dict[str, int]:
    """Rank 1 has one batch more than rank 0: rank 0 shadows its last step."""
    batches: list[Any] = []
    recorder = Recorder(sinks=[batches.append]).install()
    modules = scenarios.build("join")
    scenarios.train("join", rank, modules, 3)
    recorder.close()
    records = np.concatenate([batch.records for batch in batches])
    launched = records[records["kind"] == Kind.COLLECTIVE_LAUNCHED]
    causes, counts = np.unique(launched["cause"], return_counts=True)
    return {Cause(c).name: int(n) for c, n in zip(causes, counts, strict=True)}


def test_join_collectives_and_shadows_are_told_apart() -> None:
    early, late = run_ranks(join, 2)
    assert sum(early.values()) == sum(late.values())  # every collective has its counterpart
    assert early["JOIN"] > late["JOIN"]  # rank 0's shadow buckets are Join's doing
    assert early["BUCKET"] < late["BUCKET"]
    assert early["BUFFERS"] == late["BUFFERS"]
    assert "USER" not in early and "UNKNOWN" not in early


def users_own(rank: int, world_size: int) -> list[str]:
    batches: list[Any] = []
    recorder = Recorder(sinks=[batches.append]).install()
    modules = scenarios.build("plain")
    scenarios.train("plain", rank, modules, 1)
    dist.all_reduce(torch.ones(5))
    dist.barrier()
    gathered = [torch.ones(2) for _ in range(world_size)]
    dist.all_gather(gathered, torch.ones(2))
    with dist.distributed_c10d._coalescing_manager():
        for _ in range(2):
            dist.all_gather_into_tensor(torch.ones(3 * world_size), torch.ones(3))
    recorder.close()
    records = np.concatenate([batch.records for batch in batches])
    labels = {n.id: n.text for b in batches for n in b.notes if type(n).__name__ == "Label"}
    own = records[(records["kind"] == Kind.COLLECTIVE_LAUNCHED) & (records["cause"] == Cause.USER)]
    return [f"{labels[int(row['label'])]} {row['bytes']}" for row in own]


@pytest.mark.parametrize("world_size", [2])
def test_a_users_own_collectives_are_recorded_as_such(world_size: int) -> None:
    for seen in run_ranks(users_own, world_size):
        assert seen[:3] == ["allreduce float32 20", "barrier 0", "allgather float32 8"]
        (coalesced,) = seen[3:]  # its name is another one from torch to torch
        assert "coalesced" in coalesced and coalesced.endswith(" float32 24")


def builtin_hook(rank: int, world_size: int) -> dict[str, Any]:
    found = {}
    for registered in ("before", "after"):
        batches: list[Any] = []
        recorder = Recorder(sinks=[batches.append]).install()
        modules = scenarios.build("plain")
        if registered == "before":
            recorder.close()
            modules = scenarios.build("builtin_hook")
            recorder = Recorder(sinks=[batches.append]).install()
            recorder.adopt(modules[0])
        else:
            modules[0]._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
        scenarios.train("plain", rank, modules, 3)
        recorder.close()
        records = np.concatenate([batch.records for batch in batches])
        notes = [note for batch in batches for note in batch.notes]
        found[registered] = {
            "buckets": int((records["cause"] == Cause.BUCKET).sum()),
            "hooks": [n.values["comm_hook"] for n in notes if isinstance(n, Configuration)],
            "unavailable": [(n.what, n.why) for n in notes if isinstance(n, Unavailable)],
        }
    return found


def test_a_builtin_hook_from_before_hides_the_buckets_and_the_recording_says_so() -> None:
    for found in run_ranks(builtin_hook, 2):
        before, after = found["before"], found["after"]
        assert before["buckets"] == 0 and after["buckets"] > 0
        assert before["hooks"][-1] == after["hooks"][-1] == "BuiltinCommHookType.FP16_COMPRESS"
        ((what, why),) = before["unavailable"]
        assert what == "buckets" and "attach first" in why
        assert not after["unavailable"]


def attach_compiled(rank: int, world_size: int) -> dict[str, Any]:
    import ddpviz

    net = compiled.Net()
    ddp: Any = torch.compile(DistributedDataParallel(net), backend="eager")
    with ddpviz.attach([ddp]) as attachment:
        ddp(torch.ones(8, compiled.WIDTH)).sum().backward()
    refused = ""
    try:
        ddpviz.attach(torch.compile(net, backend="eager"))
    except TypeError as error:
        refused = str(error)
    recording = attachment.recording
    assert recording is not None
    return {"recording": recording.compile(), "refused": refused}


def test_a_compiled_ddp_module_is_attached_by_what_is_in_it() -> None:
    for result in run_ranks(attach_compiled, 2):
        (row,) = result["recording"].to_dict("records")
        assert row["order"] == "wrap then compile" and row["graphs"] > 0
        assert result["refused"].startswith("found a ")
        assert "expected a DistributedDataParallel" in result["refused"]
