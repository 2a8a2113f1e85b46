"""Knobs turned on two real ranks: what they did is read from the recording."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ddpviz.engines import ConfigurationError, RankFailed, Session, SessionError
from ddpviz.events import Cause, Configuration, Flag, Kind


def since(session: Session, step: int, **what: Any) -> np.ndarray:
    """Records of the steps after this one."""
    found = session.recording.records(**what)
    return found[found["step"] > step]


def buckets(session: Session, step: int) -> np.ndarray:
    launched = since(session, step, kinds=Kind.COLLECTIVE_LAUNCHED, ranks=0)
    return launched[launched["cause"] == Cause.BUCKET]


# --- the session's own knobs ---------------------------------------------------------------------


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


@pytest.mark.parametrize("hook", ["allreduce", "fp16", "powersgd"])
def test_comm_hooks_run_on_several_buckets_and_keep_replicas_equal(
    session: Session, hook: str
) -> None:
    session.load("mlp", bucket_cap_mb=1).run(3)
    plain = buckets(session, session.recording.last_step - 1)
    assert len(plain) > 4
    assert session.configure(comm_hook=hook) == "re-wrapped"
    session.run(3)
    last = session.recording.last_step
    session.run(5)
    hooked = buckets(session, last)
    assert ((hooked["flags"] & Flag.FROM_HOOK) > 0).all()
    assert len(set(session.checksums().values())) == 1
    per_step = hooked[hooked["step"] == last + 3]
    share = per_step["bytes"].sum() / plain["bytes"].sum()
    if hook == "allreduce":
        assert share == 1
    elif hook == "fp16":
        assert share == 0.5
    else:
        assert share < 0.2  # rank 1 of matrices of 256 x 256
    assert session.configure(comm_hook=None) == "re-wrapped"
    session.run(1)


def wrongly_annotated(state: object, bucket: int) -> Any:
    """torch looks at annotations, and wants its own."""


def tenth(state, bucket):  # type: ignore[no-untyped-def]
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(bucket.buffer() / 10)
    print("hooked", state)
    return future


def test_a_hook_of_the_users_travels_by_value(
    session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    session.load("mlp")
    with pytest.raises(ConfigurationError, match="bucket annotation should be dist.GradBucket"):
        session.configure(comm_hook=wrongly_annotated)
    assert session.configure(comm_hook=tenth) == "re-wrapped"
    session.run(1)
    assert "[rank 1] hooked None" in capfd.readouterr().out
    knob = next(knob for knob in session.knobs() if knob.name == "comm_hook")
    assert knob.value.endswith("tenth")
    session.configure(comm_hook=None)


def test_a_delayed_rank_is_slow_in_its_own_step_and_the_other_waits_for_it(
    session: Session,
) -> None:
    session.load("mlp").run(3)
    assert session.configure(delay_ms={1: 150}) == "from the next step"
    last = session.recording.last_step
    session.run(3)
    assert session.configure(delay_ms={}) == "from the next step"
    steps = since(session, last, kinds=Kind.STEP)
    took_ms = (steps["end_ns"] - steps["begin_ns"]) / 1e6
    assert (took_ms[steps["rank"] == 1] >= 150).all()
    forwards = since(session, last, kinds=Kind.FORWARD, ranks=1)
    forwards = forwards[np.argsort(forwards["begin_ns"])]
    begun = np.sort(steps["begin_ns"][steps["rank"] == 1])
    assert ((forwards["begin_ns"] - begun) / 1e6 >= 149).all()
    # Rank 0 has nothing to sleep for: it is in its step as long because it waits.
    assert np.median(took_ms[steps["rank"] == 0]) > 100


@pytest.mark.parametrize("rate", [1.5, 20.0])
def test_steps_per_second_are_limited_and_changes_need_not_wait_for_the_next(
    session: Session, rate: float
) -> None:
    session.load("mlp").run(2)
    session.configure(steps_per_second=rate)
    begin, steps = time.monotonic(), max(2, int(rate))
    session.run(steps)
    assert time.monotonic() - begin > 0.9 * (steps - 1) / rate
    session.start()
    begin = time.monotonic()
    assert session.configure(steps_per_second=None) == "from the next step"
    assert time.monotonic() - begin < 30  # a bound for what hangs, on a shared machine
    session.stop()


def test_a_chunk_of_quick_steps_does_not_become_one_of_slow_steps(session: Session) -> None:
    """stop() would take it for a rank that hangs."""
    session.load("mlp", layers=1, width=8).run(200)
    session.start()
    session.configure(delay_ms={0: 900})
    begin = time.monotonic()
    session.stop()
    assert time.monotonic() - begin < 4
    session.configure(delay_ms=None, steps_per_second=1)
    session.run(1)
    session.start()
    session.stop()
    assert session.failure is None


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


# --- the workload --------------------------------------------------------------------------------


def test_another_batch_size_reloads_the_workload(session: Session) -> None:
    session.load("mlp", bucket_cap_mb=1).run(2)
    first = session.checksums()
    session.run(1)
    assert session.configure(batch_size=64) == "reloaded"
    assert session.status().step == 0
    session.run(2)
    assert session.checksums() == first  # 64 is the default, and all else is as it was
    assert session.configure(batch_size=8) == "reloaded"
    session.run(2)
    assert session.checksums() != first


@pytest.mark.parametrize("training", [False, True])
def test_another_workload_keeps_what_is_configured(session: Session, training: bool) -> None:
    session.load("mlp", batch_size=8, bucket_cap_mb=1).run(1)
    if training:
        session.start()
    assert session.configure(workload="convnet", batch_size=4) == "reloaded"
    session.stop()
    session.run(1)
    assert session.status().workload == "convnet"
    assert session.recording.notes(Configuration, rank=0)[-1].values["bucket_bytes_cap"] == 2**20
    assert session.configure(workload="convnet") == "nothing to change"


def test_a_refused_option_leaves_the_workload_as_it_was(session: Session) -> None:
    session.load("resnet", image_size=32, batch_size=2)
    first = session.checksums()
    with pytest.raises(ConfigurationError, match=r"found depth=19.*loaded anew as it was before"):
        session.configure(depth=19)
    assert session.checksums() == first
    session.run(1)
    with pytest.raises(ConfigurationError, match=r"found heads=3, expected a divisor"):
        session.configure(workload="gpt", heads=3)
    assert session.status().workload == "resnet"
    session.run(1)
    with pytest.raises(ConfigurationError, match="resnet cannot be loaded: found depth=19"):
        session.load("resnet", depth=19)
    with pytest.raises(SessionError, match="no workload is loaded"):
        session.run(1)
    assert session.failure is None


def test_what_is_refused_at_a_load_leaves_what_was_loaded(session: Session) -> None:
    session.load("mlp").run(1)
    with pytest.raises(ConfigurationError, match="found bucket_cap_mb='x', expected a number"):
        session.load("convnet", bucket_cap_mb="x")
    assert session.status().workload == "mlp"
    session.run(1)


def frozen(rank: int, world_size: int, device: torch.device, free: bool = True) -> Any:
    model = nn.Linear(4, 4).requires_grad_(free)
    return model, lambda step: torch.ones(2, 4), lambda output, batch: output.sum()


def test_what_ddp_refuses_is_its_first_sentence(session: Session) -> None:
    with pytest.raises(ConfigurationError) as caught:
        session.load(frozen, free=False)
    assert str(caught.value) == (
        "frozen cannot be loaded: DistributedDataParallel is not needed when a module doesn't have "
        "any parameter that requires a gradient"
    )
    session.load(frozen).run(1)
    with pytest.raises(ConfigurationError, match="is not needed.*loaded anew as it was before"):
        session.configure(free=False)
    session.run(1)


# --- prediction ----------------------------------------------------------------------------------

CHANGES: dict[str, dict[str, Any]] = {
    "cap": {"bucket_cap_mb": 2},
    "pace": {"accumulation": 2, "delay_ms": {"1": 1}},
    "both": {"comm_hook": "fp16", "steps_per_second": 100},
    "option": {"batch_size": 2},
    "nothing": {"accumulation": 1},
    "workload": {"workload": "mlp"},
    "negative": {"bucket_cap_mb": -3},
    "static": {"static_graph": True, "accumulation": 2},
    "batchnorm": {"sync_batchnorm": True},
    "unknown": {"workload": "nonsense"},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_prediction_is_what_configure_then_does(session: Session, name: str) -> None:
    session.load("convnet", bucket_cap_mb=1)
    predicted, known = session.predict(**CHANGES[name]), session.knobs()
    assert session.knobs() == known  # asking changed nothing
    try:
        outcome = session.configure(**CHANGES[name])
    except ConfigurationError as error:
        assert predicted.refused == str(error)
        return
    assert predicted.refused is None
    for word, need in {
        "re-wrapped": "re-wraps",
        "from the next step": "from the next step",
        "reloaded": "reloads",
        "nothing": "nothing to change",
    }.items():
        assert (word in outcome) == (need in predicted.needs)
    session.run(2)
    assert len(set(session.checksums().values())) == 1


def test_knobs_show_what_is_configured(session: Session) -> None:
    session.load("convnet", bucket_cap_mb=1, delay_ms={1: 5}, batch_size=4)
    values = {knob.name: knob.value for knob in session.knobs()}
    assert values["bucket_cap_mb"] == 1 and values["batch_size"] == 4
    assert values["workload"] == "convnet" and values["image_size"] == 32
    assert values["delay_ms"] == {0: 0.0, 1: 5.0}
    session.configure(broadcast_buffers=False)
    values = {knob.name: knob.value for knob in session.knobs()}
    names = {"forward_sync_buffers", "broadcast_buffers"} & {*values}
    assert [values[name] for name in names] == [False]


# --- running, and errors -------------------------------------------------------------------------


def test_a_number_of_steps_that_is_none_is_refused(session: Session) -> None:
    session.load("mlp")
    for steps in (0, -1, "a"):
        with pytest.raises(ConfigurationError, match="whole number from 1 on"):
            session.run(steps)  # type: ignore[arg-type]


def test_stop_ends_a_run_of_another_thread(session: Session) -> None:
    session.load("mlp")
    before = session.recording.last_step
    runner = threading.Thread(target=session.run, args=(1_000_000,))
    runner.start()
    while session.recording.last_step < before + 2:
        time.sleep(0.01)
    assert session.status().status == "training"
    with pytest.raises(SessionError, match="call stop"):
        session.start()
    session.stop()
    assert session.status().status == "idle"
    runner.join(10)
    assert not runner.is_alive()


def model_only(rank: int, world_size: int, device: torch.device) -> Any:
    return nn.Linear(4, 4)


def test_a_function_that_returns_something_else_is_told_so_without_our_frames(
    session: Session,
) -> None:
    with pytest.raises(RankFailed) as caught:
        session.load(model_only)
    assert "the workload returned Linear, expected a tuple" in str(caught.value)
    assert "Traceback" not in str(caught.value) and caught.value.rank_traceback == ""
    assert session.failure is None


def failing(rank: int, world_size: int, device: torch.device, at: int = 3) -> Any:
    def batch(step: int) -> torch.Tensor:
        if step == at:
            raise ValueError("no such sample")
        return torch.ones(2, 4)

    return nn.Linear(4, 4), batch, lambda output, batch: output.sum()


@pytest.mark.parametrize("between", ["load", "cell"])
def test_an_error_names_the_step_that_the_user_counts(session: Session, between: str) -> None:
    session.load("mlp").run(2)
    session.load(failing, at=4).run(2)
    if between == "cell":
        # Steps of the user's own code, more of them on one rank.
        code = (
            "model = torch.nn.Linear(4, 4)\n"
            "ddp = torch.nn.parallel.DistributedDataParallel(model)\n"
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "for i in range(3):\n"
            "    ddp(torch.ones(2, 4)).sum().backward()\n"
            "    optimizer.step()\n"
            "if rank == 1:\n"
            "    with session.step(): pass\n"
        )
        cell = session.execute(code, on_output=lambda *_: None)
        assert cell.wait(60) and not cell.errors
    base = session.recording.last_step + 1 - 2
    with pytest.raises(RankFailed) as caught:
        session.run(10)
    error = caught.value
    assert error.workload_step == 4
    assert error.step == base + 4 == session.recording.last_step + 1
    assert f"in step 4 (step {error.step} of the recording): ValueError" in error.summary
    assert [line for line in error.rank_traceback.splitlines() if "File" in line] == [
        line for line in error.rank_traceback.splitlines() if __file__ in line
    ]
    begun = {
        rank: int(session.recording.records(kinds=Kind.STEP, ranks=rank)["step"].max())
        for rank in (0, 1)
    }
    assert begun[0] == begun[1] == error.step - 1
    session.restart()
    assert session.status().step == 0
    session.run(3)


def test_options_of_every_kind_reach_the_function(
    session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    def anything(rank: int, world_size: int, device: torch.device, **rest: Any) -> Any:
        print(sorted(rest.items()))
        return frozen(rank, world_size, device)

    session.load(anything, width=3, name="x", accumulation=2, static_graph=False)
    session.run(1)
    assert "[rank 1] [('name', 'x'), ('width', 3)]" in capfd.readouterr().out
    knobs = {knob.name: knob.value for knob in session.knobs()}
    assert knobs["accumulation"] == 2 and "width" not in knobs  # it has no default to show
