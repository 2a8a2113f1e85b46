"""``session.compare``: configurations in turns on the same ranks, each from the same weights."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import ddpviz
from ddpviz.analysis import Comparison
from ddpviz.cli.main import main
from ddpviz.engines import ConfigurationError, Session
from ddpviz.events import Module
from ddpviz.export.slides.deck import slides_page


def _told_again(directory: Path, found: Comparison, capsys: pytest.CaptureFixture[str]) -> bool:
    """From what is on disk, by ``load``, ``ddpviz show`` and a page; and from a copy of it."""
    again = ddpviz.load(directory)
    again.save(directory / "copy")
    for recording in (again, ddpviz.load(directory / "copy")):
        assert recording.compared.verdict == found.verdict
        pd.testing.assert_frame_equal(recording.compared.table, found.table)
    written = directory / "page.html"
    assert main(["show", str(directory), "--html", str(written)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"Compared: {found.verdict}" in printed and "hooks compiled autograd" in printed
    assert main(["show", str(directory), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["comparison"]
    assert told["verdict"] == found.verdict and len(told["rows"]) == len(found.table)
    assert "Configurations compared" in written.read_text()
    assert 'id="comparison"' in slides_page(again, slides=["comparison"])
    return True


def test_modes_and_configurations_are_measured_side_by_side(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    session.load("convnet", bucket_cap_mb=1, batch_size=2, image_size=8)
    first = session.recording.last_step + 1
    found = session.compare(
        modes=["eager", "ddp_optimizer"],
        configurations={
            "no buffers": {"broadcast_buffers": False},
            "cap": {"bucket_cap_mb": 0.25},
            "views": {"gradient_as_bucket_view": True},
            "refused": {"compiled_autograd": True},
        },
        rounds=2,
        steps=3,
        warm=2,
        backend="eager",
    )
    table = found.table.set_index("configuration")
    names = {"eager", "ddp_optimizer", "no buffers", "cap", "views"}
    assert set(table.index) == {*names, "refused"}
    assert "hooks compiled autograd cannot trace" in table.loc["refused", "refused"]
    ran = table.drop("refused")
    assert (ran["rounds"] == 2).all() and (ran["steps"] == 6).all()
    assert session.recording.last_step - first + 1 == 5 * 2 * 5
    ones = sorted(session.recording.trials, key=lambda one: one.first)
    order = [one.name for one in ones if not one.refused]  # in turns, the second time backwards
    assert set(order[:5]) == names and order[5:] == order[4::-1]
    assert ran["graphs"].to_dict() == {**dict.fromkeys(names, 0), "ddp_optimizer": 3}
    assert (ran.loc["ddp_optimizer", "compile_ms"] > 0) and not ran.loc["eager", "compile_ms"]
    synced = {**dict.fromkeys(names, True), "no buffers": False}
    assert ran["buffers_synced"].to_dict() == synced
    steps = session.recording.steps()
    for name, row in ran.iterrows():
        measured = [(one.measured, one.last) for one in ones if one.name == name]
        mine = pd.concat([steps[steps["step"].between(*span)] for span in measured])
        for column in ("hidden_communication_ms", "exposed_communication_ms"):
            assert row[column] == pytest.approx(mine[column].median())
    assert (ran["memory_bytes"] > 0).all()
    assert ran.loc["eager", "gradient_difference"] == 0
    assert (ran["gradient_difference"] < 1e-4).all()
    # Two broadcasts of buffers (float and int64) less; as many bytes in buckets.
    assert ran.loc["eager", "collectives"] == ran.loc["no buffers", "collectives"] + 2
    module = session.recording.notes(Module, rank=0)[-1]  # the session had others before
    nbytes = sum(buffer.bytes for buffer in module.buffers)
    assert ran.loc["eager", "bytes"] - ran.loc["no buffers", "bytes"] == pytest.approx(nbytes)
    assert ran.loc["cap", "collectives"] > ran.loc["eager", "collectives"]
    assert ran.loc["views", "collectives"] == ran.loc["eager", "collectives"]
    assert (ran["step_ms_low"] <= ran["step_ms_high"]).all() and ran["place"].notna().all()
    assert "eager" in found.verdict and found.verdict in str(found)
    assert _told_again(session.directory, found, capsys)
    # It is as it was configured, and begins anew.
    assert session.status().step == 0 and session.failure is None
    session.run(1)


def test_gradients_are_compared_to_those_of_eager_wherever_it_stands(session: Session) -> None:
    session.load("convnet", bucket_cap_mb=1, batch_size=2, image_size=8)
    found = session.compare(
        configurations={"hook": {"comm_hook": "fp16"}, "eager": {}}, rounds=1, steps=1, warm=0
    )
    table = found.table.set_index("configuration")
    assert table.loc["eager", "gradient_difference"] == 0
    assert table.loc["hook", "gradient_difference"] > 0


def test_what_cannot_be_compared_is_said_before_anything_runs(session: Session) -> None:
    session.load("convnet", bucket_cap_mb=1, batch_size=2, image_size=8)
    session.run(1)
    with pytest.raises(ConfigurationError, match="expected two or more"):
        session.compare(modes=["eager"])
    with pytest.raises(ConfigurationError, match="expected one of 'none'"):
        session.compare(modes=["eager", "nonsense"])
    with pytest.raises(ConfigurationError, match="expected a list of modes"):
        session.compare(modes="eager")
    configurations = {"small": {"bucket_cap_mb": 1}, "large": {"bucket_cap_mb": 25}}
    with pytest.raises(ConfigurationError, match=r"bucket_cap_mbs.* \(did you mean bucket_cap_mb"):
        session.compare(configurations={**configurations, "typo": {"bucket_cap_mbs": 1}})
    for name, given, least in (("rounds", 0, 1), ("steps", 0, 1), ("warm", -1, 0)):
        with pytest.raises(ConfigurationError, match=f"{name}={given}.* from {least} on"):
            session.compare(configurations=configurations, **{name: given})
    assert session.status().step == 1


def test_configurations_are_compared_where_nothing_was_ever_compiled(session: Session) -> None:
    """The hook changes no gradient before its third step."""
    session.load("convnet", bucket_cap_mb=1, batch_size=2, image_size=8)
    found = session.compare(
        configurations={"none": {}, "powersgd": {"comm_hook": "powersgd"}},
        rounds=1,
        steps=1,
        warm=0,
    )
    table = found.table.set_index("configuration")
    assert list(table["graphs"]) == [0, 0]
    assert table.loc["none", "gradient_difference"] == 0
    assert table.loc["powersgd", "gradient_difference"] > 0.01
