"""What a job prints as it ends: its findings; of a healthy run nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ddpviz

SCRIPT = """
import os, signal, sys, time
import torch, torch.distributed as dist
import ddpviz
rank, out, way = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{out}.rendezvous", rank=rank, world_size=2)
torch.manual_seed(0)
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
ddpviz.attach(ddp, None if way == "memory" else out)
for step in range(4):
    optimizer.zero_grad()
    if way == "raises" and step == 3 and rank == 1:
        raise ValueError("no more data")
    if way == "alike" and step == 3:
        raise StopIteration("enough")
    if way == "killed" and step == 3 and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if way in ("bypassed", "memory") and step > 1:
        ddp.module(torch.ones(2, 8) * (rank + 1)).sum().backward()
    else:
        ddp(torch.ones(2, 8) * (rank + 1)).sum().backward()
    optimizer.step()
dist.barrier()
if way == "late" and rank == 1:
    time.sleep(8)  # longer than rank 0 has patience
"""


@pytest.mark.parametrize(
    "way", ["healthy", "bypassed", "raises", "alike", "killed", "late", "memory"]
)
def test_rank_0_tells_what_was_found(tmp_path: Path, way: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "run"), way],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = [one.communicate(timeout=120)[1] for one in ranks]
    codes = {"raises": [1, 1], "alike": [1, 1], "killed": [1, -9]}
    assert [one.returncode for one in ranks] == codes.get(way, [0, 0])
    lines = [line for line in said[0].splitlines() if line.startswith("ddpviz:")]
    assert "ddpviz:" not in said[1]
    if way == "raises":  # nothing caught it, and no `with` was around it
        assert lines[0] == "ddpviz: failure, since step 3: rank 1 failed: ValueError: no more data"
        return
    if way == "killed":
        (finding,) = ddpviz.load(tmp_path / "run").audit()
        assert (finding.kind, finding.ranks, finding.since_step) == ("rank-failed", (1,), 3)
        what = "rank 1 ended without a word, and rank 0 lost the connection to it"
        assert lines[0] == f"ddpviz: failure, since step 3: {what}"
        return
    if way == "alike":
        what = "all ranks ended by the same exception: StopIteration: enough"
        assert lines[0] == f"ddpviz: note, since step 3: {what}"
        return
    if way == "healthy":
        assert lines == []
        return
    if way == "late":
        (line,) = lines
        assert line.startswith("ddpviz: not audited at this exit: rank 1 had not ended; `ddpviz ")
        return
    assert lines[0].startswith("ddpviz: wrong numbers, since step 2: ")
    if way == "memory":
        assert lines[-1].startswith("ddpviz: 1 finding; of this rank alone: attach every rank with")
        return
    assert lines[-1] == f"ddpviz: 1 finding; `ddpviz audit {tmp_path / 'run'}` says how to mend it"
