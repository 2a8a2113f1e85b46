"""What a change will take is known before it is made, and every knob shows what it is at."""

from __future__ import annotations

from typing import Any

import pytest

from ddpviz.engines import ConfigurationError, Session

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
