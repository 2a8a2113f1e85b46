"""What leaves the process: by whose thread, when, and what stays when it cannot leave."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
import torch.multiprocessing as mp

import ddpviz
from ddpviz.events import Batch, Kind, Module, Plan
from ddpviz.probe import Recorder
from ddpviz.probe.ring import read_ring
from tests.fidelity import scenarios
from tests.ranks import run_ranks


def threads_of_batches(rank: int, world_size: int) -> list[tuple[bool, int, int]]:
    here = threading.get_ident()
    seen: list[tuple[bool, int, int]] = []

    def sink(batch: Batch) -> None:
        seen.append((threading.get_ident() == here, len(batch.notes), len(batch.records)))

    recorder = Recorder(sinks=[sink], flush_interval_s=0.02).install()
    modules = scenarios.build("plain")  # two rebuilds of the plan to come, and a group to describe
    scenarios.train("plain", rank, modules, 30)
    training = list(seen)
    recorder.close()
    return training


def test_nothing_is_sent_by_the_training_thread_not_even_notes() -> None:
    for training in run_ranks(threads_of_batches, 2):
        installing, *rest = training
        assert installing[1:] == (2, 0)  # who records, and where, before anything else
        assert sum(notes for _, notes, _ in rest) > 4
        assert sum(records for _, _, records in rest) > 300
        assert not any(own for own, _, _ in rest)


def failing_sink(rank: int, world_size: int, folder: str) -> int:
    def sink(batch: Batch) -> None:
        if len(batch.records):
            raise OSError("no space left on device")

    path = Path(folder) / f"rank-{rank:04d}.ring"
    recorder = Recorder(sinks=[sink], ring_path=path).install()
    scenarios.train("plain", rank, scenarios.build("plain"), 4)
    recorder.close()
    return path.stat().st_size


def test_a_ring_whose_sink_failed_stays_on_disk_and_training_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sizes = run_ranks(failing_sink, 2, str(tmp_path))
    assert min(sizes) > 0
    assert capfd.readouterr().err.count("no space left on device") == 2  # once a rank


def killed(rank: int, world_size: int, folder: str) -> None:
    modules = scenarios.build("plain")
    ddpviz.attach(modules, Path(folder) / "run")
    scenarios.train("plain", rank, modules, 5)
    dist.barrier()
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_kill_loses_no_step_and_no_ready_time(tmp_path: Path) -> None:
    with pytest.raises(mp.ProcessExitedException, match="SIGKILL"):
        run_ranks(killed, 2, str(tmp_path))
    assert read_ring(tmp_path / "run" / "rank-0000.ring")[0].size  # no sink had all of it
    recording = ddpviz.load(tmp_path / "run")
    for rank in (0, 1):
        records = recording.records(ranks=rank)
        steps = records[records["kind"] == Kind.STEP]
        assert steps["index"].tolist() == [0, 1, 2, 3, 4]
        ready = records[records["kind"] == Kind.GRAD_READY]
        parameters = len(set(ready["index"].tolist()))
        assert parameters > 1
        counts = np.unique(ready["step"], return_counts=True)[1]
        assert counts.tolist() == [parameters] * 5
        for span, times in ((s, ready[ready["step"] == s["index"]]) for s in steps):
            assert span["begin_ns"] < times["begin_ns"].min()
            assert times["begin_ns"].max() < span["end_ns"]


def attached_midway(rank: int, world_size: int) -> dict[str, Any]:
    """static_graph, attached before and after the reduction of its first step."""
    found = {}
    for before in (0, 1, 2, 5):
        modules = scenarios.build("static_graph")
        scenarios.train("static_graph", rank, modules, before)
        batches: list[Batch] = []
        recorder = Recorder(sinks=[batches.append]).install()
        recorder.adopt(modules[0])
        scenarios.train("static_graph", rank, modules, 4, first=before)
        recorder.close()
        records = np.concatenate([batch.records for batch in batches])
        spans = records[records["kind"] == Kind.FINALIZE]
        found[before] = [bool(flags & 64) for flags in spans["flags"]]
    return found


def test_attached_in_mid_training_only_the_first_static_step_is_delayed() -> None:
    for found in run_ranks(attached_midway, 2):
        assert found == {
            0: [True, False, False, False],
            1: [False] * 4,
            2: [False] * 4,
            5: [False] * 4,
        }


def forked(rank: int, world_size: int, folder: str) -> tuple[int, int]:
    modules = scenarios.build("plain")
    out = Path(folder) / "run"
    attachment = ddpviz.attach(modules, out)
    scenarios.train("plain", rank, modules, 2)
    child = os.fork()
    if child == 0:  # a data loader's worker, say, that ends as scripts end
        attachment.close()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    scenarios.train("plain", rank, modules, 2, first=2)
    attachment.close()
    return status, len(ddpviz.load(out).records(kinds=[Kind.STEP]))


def test_a_forked_child_does_not_end_its_parents_recording(tmp_path: Path) -> None:
    assert run_ranks(forked, 1, str(tmp_path)) == [(0, 4)]


def plan_limits(rank: int, world_size: int) -> list[list[int | None]]:
    """Limits of the plan that is found by attaching, before and after the rebuild."""
    found = []
    for before in (0, 3):
        modules = scenarios.build("plain")
        scenarios.train("plain", rank, modules, before)
        batches: list[Batch] = []
        recorder = Recorder(sinks=[batches.append]).install()
        recorder.adopt(modules[0])
        recorder.close()
        notes = [note for batch in batches for note in batch.notes]
        assert any(isinstance(note, Module) for note in notes)
        plan = next(note for note in notes if isinstance(note, Plan))
        found.append([bucket.limit_bytes for bucket in plan.buckets])
    return found


def test_a_plan_found_before_its_rebuild_has_no_known_limits() -> None:
    before, after = run_ranks(plan_limits, 2)[0]
    assert set(before) == {None}
    assert len(after) > 1 and None not in after
