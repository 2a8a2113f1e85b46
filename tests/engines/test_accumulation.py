"""``accumulation``: several batches in a step, all but the last without a reduction."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ddpviz.engines import Session
from ddpviz.events import Configuration, Flag, Kind
from tests.engines.records import buckets, since


def test_accumulation_sends_with_the_last_batch_of_a_step_only(session: Session) -> None:
    session.load("mlp", accumulation=3).run(1)
    last = session.recording.last_step
    session.run(2)
    forwards = since(session, last, kinds=Kind.FORWARD, ranks=0)
    silent = (forwards["flags"] & Flag.NO_SYNC) > 0
    assert silent.tolist() == [True, True, False] * 2
    assert forwards["step"].tolist() == [last + 1] * 3 + [last + 2] * 3
    assert set(buckets(session, last)["step"].tolist()) == {last + 1, last + 2}
    assert len(set(session.checksums().values())) == 1


def numbered(rank: int, world_size: int, device: torch.device) -> Any:
    def batch(number: int) -> torch.Tensor:
        print("batch", number)
        return torch.full((2, 4), float(number))

    return nn.Linear(4, 4), batch, lambda output, batch: output.square().mean()


def test_each_batch_of_an_accumulated_step_is_another_one(
    session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    session.load(numbered).run(1)
    session.configure(accumulation=2)
    session.run(2)
    said = [line for line in capfd.readouterr().out.splitlines() if line.startswith("[rank 0]")]
    assert said == [f"[rank 0] batch {number}" for number in range(5)]


def test_accumulated_gradients_are_those_of_the_whole_batch(session: Session) -> None:
    def halves(rank: int, world_size: int, device: torch.device, parts: int = 1) -> Any:
        torch.manual_seed(5)
        whole = torch.randn(6, 8, 4)

        def batch(number: int) -> torch.Tensor:
            step, part = divmod(number, parts)
            return whole[step].chunk(parts)[part]

        return nn.Linear(4, 4), batch, lambda output, batch: output.square().mean()

    session.load(halves).run(3)
    whole = session.checksums()
    session.load(halves, parts=2, accumulation=2).run(3)
    halved = session.checksums()
    assert whole[0] == whole[1] and halved[0] == halved[1]
    # The same up to rounding, which a checksum does not forgive: compare on the ranks.
    printed: list[str] = []
    code = "print([round(x, 4) for x in session.model.weight.flatten().tolist()])"
    session.execute(code, [0], lambda rank, stream, text: printed.append(text)).wait(30)
    session.load(halves).run(3)
    session.execute(code, [0], lambda rank, stream, text: printed.append(text)).wait(30)
    assert len(printed) == 2 and printed[0] == printed[1]


def test_what_is_no_argument_of_ddp_is_noted_as_well(session: Session) -> None:
    session.load("mlp").run(1)
    session.configure(accumulation=2)
    session.run(1)
    notes = session.recording.notes(Configuration, rank=0)
    assert notes[-1].values["accumulation"] == 2
    assert notes[-1].values["bucket_bytes_cap"] == 25 * 2**20
    assert "delay_ms" not in notes[-1].values  # it did not change


def test_static_graph_and_accumulation_is_what_torch_cannot_do(session: Session) -> None:
    """Why ddpviz refuses it: a torch that can will fail this test."""
    session.load("mlp")
    found = session.execute(
        "from torch.nn.parallel import DistributedDataParallel as DDP\n"
        "ddp = DDP(torch.nn.Linear(4, 4), static_graph=True)\n"
        "with ddp.no_sync():\n"
        "    ddp(torch.ones(2, 4)).sum().backward()\n"
        "ddp(torch.ones(2, 4)).sum().backward()\n",
        on_output=lambda *_: None,
    )
    assert found.wait(60)
    assert all("expect_autograd_hooks_" in one.message for one in found.errors.values())
    assert set(found.errors) == {0, 1}
