"""A job under torchrun: recorded by each rank, also on after torchrun has restarted them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ddpviz
from ddpviz.events import Ended, Failure, Process

SCRIPT = """
import os, sys
import torch, torch.distributed as dist
import ddpviz
out, marker = sys.argv[1], sys.argv[1] + ".failed"
dist.init_process_group("gloo")
torch.manual_seed(0)
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
with ddpviz.attach(ddp, out):
    for step in range(4):
        if dist.get_rank() == 1 and step == 2 and not os.path.exists(marker):
            open(marker, "w").close()
            raise ValueError("once")
        optimizer.zero_grad()
        ddp(torch.ones(2, 8)).sum().backward()
        optimizer.step()
    dist.barrier()
dist.destroy_process_group()
"""


def test_torchrun_restarts_ranks_and_the_recording_goes_on(tmp_path: Path) -> None:
    script, out = tmp_path / "train.py", tmp_path / "run"
    script.write_text(SCRIPT)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [sys.executable, *launcher, "--max-restarts=1", str(script), str(out)],
        # Else the ranks of both lives share one store, and gloo may find the address of a rank
        # that has ended before its successor has written its own.
        env=os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    recording = ddpviz.load(out)
    assert recording.ranks == [0, 1]
    assert [len(recording.notes(Process, rank=rank)) for rank in (0, 1)] == [2, 2]
    assert {one.world_size for one in recording.notes(Process)} == {2}
    (failure,) = [one for one in recording.notes(Failure) if "once" in one.message]
    assert failure.rank == 1 and "ValueError" in failure.message
    assert len(recording.notes(Ended, rank=1)) >= 1
    steps = recording.steps()
    of_rank = steps[steps["rank"] == 1]["step"].tolist()
    assert len(of_rank) == 2 + 4 and of_rank == sorted(set(of_rank))
    last = steps[steps["step"] == recording.last_step]
    assert sorted(last["rank"]) == [0, 1]  # both lives number their steps alike
