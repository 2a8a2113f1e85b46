"""``workload`` and the options that are its own: built anew, or left as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ddpviz.engines import ConfigurationError, RankFailed, Session, SessionError
from ddpviz.events import Configuration


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
    # After another workload it is a choice still, and the same name is no change.
    assert session.configure(workload="mlp") == "reloaded"
    choices = next(one for one in session.knobs() if one.name == "workload").choices
    assert choices is not None and "anything" in choices
    assert session.predict(workload="anything").refused is None
    assert session.configure(workload="anything") == "reloaded"
    assert session.configure(workload="anything") == "nothing to change"
    assert session.status().workload == "anything"


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
