"""The sync of buffers: what fired, which of the conditions held, and what the values did."""

from __future__ import annotations

import pytest

from ddpviz import analysis
from ddpviz.analysis.units import format_bytes, format_duration
from ddpviz.recording import Recording
from tests.views.pictures import in_lane, picture_of, rows_of


def lane_kinds(recording: Recording, name: str) -> dict[int, str]:
    """Kind of each step's cell in a lane."""
    picture = picture_of(recording, "buffers")
    found = {}
    for row in in_lane(picture, rows_of(picture, "bars"), name):
        for step in range(round(row["left"] + 0.45), round(row["right"] - 0.45) + 1):
            found[step] = row["kind"]
    return found


def expected(recording: Recording, column: str, words: dict[str, str]) -> dict[int, str]:
    """The same from the table."""
    found = {}
    table = analysis.buffers(recording)
    for step, rows in table[table["step"] >= 0].groupby("step"):
        values = set(rows[column])
        key = "some" if len(values) > 1 else "all" if values == {True} else "none"
        if key in words:
            found[int(str(step))] = words[key]
    return found


CONDITION = {"all": "holds", "none": "fails", "some": "some"}


@pytest.mark.parametrize(
    "case", ["convnet", "drifting", "around eval", "switched off", "reassigned", "hooked after"]
)
def test_lanes_are_the_tables_conditions(recorded: dict[str, Recording], case: str) -> None:
    recording = recorded[case]
    fired = {"all": "buffers", "some": "some", "none": "fails"}
    assert lane_kinds(recording, "fired") == expected(recording, "fired", fired)
    for lane, column in (
        ("has buffers", "has_buffers"),
        ("switch on", "sync_on"),
        ("sync due", "sync_due"),
    ):
        assert lane_kinds(recording, lane) == expected(recording, column, CONDITION), lane
    hooked = case == "hooked after"
    assert set(lane_kinds(recording, "no hook").values()) == {"fails" if hooked else "holds"}


def test_why_it_did_not_fire_is_the_title(recorded: dict[str, Recording]) -> None:
    off = picture_of(recorded["switched off"], "buffers")
    assert off.title == "no buffer was broadcast in step 1: forward_sync_buffers is off" or (
        off.title == "no buffer was broadcast in step 1: broadcast_buffers is off"
    )
    assert "switched on: no, due: yes, hook: none" in off.facts[0]
    after_eval = picture_of(recorded["around eval"], "buffers", 1)
    why = "none was due: the forward before it was without gradients"
    assert after_eval.title.startswith(f"no buffer was broadcast in step 1: {why}")


def test_a_buffer_hook_is_named_with_its_place(recorded: dict[str, Recording]) -> None:
    title = picture_of(recorded["hooked after"], "buffers").title
    assert title == "step 2: a buffer hook took the place of the broadcast, after the module"
    title = picture_of(recorded["hooked before"], "buffers").title
    assert title.endswith("before the module")


def test_each_dtype_has_its_bytes_and_the_volume_its_threshold(
    recorded: dict[str, Recording],
) -> None:
    picture = picture_of(recorded["convnet"], "buffers")
    told = " | ".join(picture.facts)
    assert "float32: 1 broadcast, 5.75 KiB, " in told and "int64: 1 broadcast, 40 B, " in told
    rows = analysis.buffer_dtypes(recorded["convnet"], 2)
    for row in rows[rows["rank"] == 0].itertuples():
        waited = f"{format_duration(1e6 * row.waited_ms)} of it on the critical path"
        assert f"{row.dtype}: 1 broadcast" in told and waited in told
    assert "all buffers are 5.79 KiB, 0.0023 % of the 250 MiB" in told
    assert "rank 0 is authoritative" in told


def test_bars_are_as_high_as_the_sync_was_long(recorded: dict[str, Recording]) -> None:
    recording = recorded["drifting"]
    picture = picture_of(recording, "buffers")
    means = analysis.buffers(recording).groupby("step")["sync_ms"].mean()
    bars = [row for row in rows_of(picture, "bars", "buffers") if row["bottom"] == 110.0]
    heights = {int(row["step"]): 110.0 - row["top"] for row in bars if row["top"] > 0}
    ratios = {step: height / means[step] for step, height in heights.items()}
    assert len(bars) == 4 and max(ratios.values()) == pytest.approx(min(ratios.values()))


@pytest.mark.parametrize("case", ["hooked on the group", "hooked after"])
def test_a_buffer_hook_has_a_bar_of_its_own(recorded: dict[str, Recording], case: str) -> None:
    recording = recorded[case]
    picture = picture_of(recording, "buffers")
    table = analysis.buffers(recording)
    bars = [row for row in rows_of(picture, "bars", "hooked") if row["bottom"] == 110.0]
    steps = sorted({int(step) for step in table[table["fired"]]["step"] if step >= 0})
    assert sorted(int(row["step"]) for row in bars) == steps and steps
    assert not [row for row in rows_of(picture, "bars", "buffers") if row["bottom"] == 110.0]
    for row in bars:
        assert row["head"] == f"step {row['step']:.0f}: a buffer hook in place of the broadcast"
        mine = table[table["step"] == row["step"]].groupby("rank")["sync_ms"].sum()
        assert row["time"] == f"{format_duration(1e6 * mine.mean())} (mean of ranks)"
    sent = analysis.buffer_dtypes(recording, steps[-1])
    sent = sent[sent["rank"] == 0]
    told = "\n".join(row["detail"] for row in bars if row["step"] == steps[-1])
    assert told == "\n".join(
        f"{row.dtype}: {row.collectives} {row.op}{'s' if row.collectives > 1 else ''}, "
        f"{format_bytes(row.bytes)}"
        for row in sent.itertuples()
    )
    assert told


def test_without_any_sync_there_is_no_axis_of_its_time(recorded: dict[str, Recording]) -> None:
    off = picture_of(recorded["switched off"], "buffers")
    assert not [row for row in rows_of(off, "bars") if row["kind"] in ("buffers", "hooked")]
    assert [label for _, label in off.y_labels or ()][0] == "fired"
    assert "ms" not in " ".join(label for _, label in off.y_labels or ())


def test_drift_and_what_is_sent_for_nothing_are_told(recorded: dict[str, Recording]) -> None:
    recording = recorded["drifting"]
    picture = picture_of(recording, "buffers")
    told = " | ".join(picture.facts)
    assert "2 buffers differed: norm.running_mean, norm.running_var; furthest had drifted" in told
    assert " on rank 0, " in told and " on rank 2, and " in told  # its norm on every rank
    assert "sent for nothing, unchanged since 3 sampled syncs: constant" in told
    assert "state_dict() differs on rank 1, 2: norm.running_mean, norm.running_var" in told
    assert lane_kinds(recording, "equal before") == {0: "holds", 1: "drift", 2: "drift", 3: "drift"}


def test_reassigned_buffers_are_named_in_their_step(recorded: dict[str, Recording]) -> None:
    recording = recorded["reassigned"]
    table = analysis.buffers(recording)
    steps = {int(row.step) for row in table.itertuples() if row.reassigned}
    assert len(steps) == 1
    lanes = lane_kinds(recording, "same tensors")
    assert {step for step, kind in lanes.items() if kind == "fails"} == steps
    told = " | ".join(picture_of(recording, "buffers", steps.pop()).facts)
    assert "other tensor objects than at the sync before: late, norm.running_mean" in told


def test_under_join_another_rank_is_authoritative(recorded: dict[str, Recording]) -> None:
    first = " | ".join(picture_of(recorded["joined"], "buffers", 0).facts)
    assert "rank 1 is authoritative, under Join the highest that has not joined" in first


def test_without_fingerprints_drift_is_not_known(recorded: dict[str, Recording]) -> None:
    from tests.views.samples import sample_recording

    told = picture_of(sample_recording(), "buffers").facts
    assert any("session.fingerprints(every=1)" in fact for fact in told)


def test_on_the_timeline_a_hook_is_no_broadcast(recorded: dict[str, Recording]) -> None:
    told = {
        case: {
            row["head"]
            for row in rows_of(picture_of(recorded[case], "timeline", 1), "spans", "buffers")
        }
        for case in ("hooked on the group", "convnet")
    }
    hooked = "buffer hook, no broadcast, of rank"
    assert told["hooked on the group"] == {f"{hooked} {rank}" for rank in range(3)}
    assert told["convnet"] == {f"buffer broadcast of rank {rank}" for rank in range(3)}
    # In step 1 what takes longest may be the broadcast of the rebuilt order.
    assert "broadcasting" not in analysis.finding(recorded["hooked on the group"], 0)
