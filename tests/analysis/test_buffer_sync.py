"""When DDP synchronizes buffers and why not, what that overwrites, and from whom."""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd
import pytest

from ddpviz import analysis
from ddpviz.events import Batch, Cause, Configuration, Fingerprints, Kind
from ddpviz.recording import Recording
from tests.analysis import inside
from tests.views.pictures import picture_of
from tests.views.samples import batches_of, on_cuda

#: 8 channels: running mean and variance in float32, the number of batches as int64.
FLOAT_BYTES, COUNT_BYTES = 2 * 8 * 4, 8
DRIFTS = {"norm.running_mean", "norm.running_var"}


def in_order(recording: Recording, rank: int = 0) -> pd.DataFrame:
    table = recording.buffers()
    return table[table["rank"] == rank].sort_values("iteration", ignore_index=True)


def test_broadcasts_around_no_sync_are_1_1_0_0_1_1(recorded: dict[str, Recording]) -> None:
    table = in_order(recorded["around no_sync"])
    assert [bool(fired) for fired in table["fired"]] == [True, True, False, False, True, True]
    assert list(table["broadcasts"]) == [2, 2, 0, 0, 2, 2]
    assert list(table["no_sync"]) == [False, True, True, False, False, False]
    assert list(table["sync_due"]) == list(table["fired"])
    for why in table["why"][2:4]:
        assert why == "none was due: the forward before it was in no_sync"
    assert "a sync was due" in table["why"][4]


def test_the_first_step_after_an_evaluation_broadcasts_nothing(
    recorded: dict[str, Recording],
) -> None:
    table = in_order(recorded["around eval"])
    assert list(table["no_grad"]) == [False, True, True, True, False, False]
    assert [bool(fired) for fired in table["fired"]] == [True, True, False, False, False, True]
    assert table["why"][4] == "none was due: the forward before it was without gradients"


@pytest.mark.parametrize(
    ("case", "condition", "why"),
    [
        ("switched off", "sync_on", "_buffers is off"),
        ("without buffers", "has_buffers", "Linear has no buffers"),
    ],
)
def test_one_condition_that_does_not_hold_is_named(
    recorded: dict[str, Recording], case: str, condition: str, why: str
) -> None:
    table = in_order(recorded[case])
    assert len(table) == 2 and not table["fired"].any() and not table["broadcasts"].any()
    for name in ("has_buffers", "sync_on", "sync_due"):
        assert set(table[name]) == {name != condition}
    assert all(text.endswith(why) for text in table["why"])


def test_num_batches_tracked_is_a_broadcast_of_its_own(recorded: dict[str, Recording]) -> None:
    table = recorded["around no_sync"].collectives()
    sent = table[(table["cause"] == "buffers") & (table["rank"] == 0)]
    assert list(zip(sent["dtype"], sent["bytes"], strict=True)) == 4 * [
        ("float32", FLOAT_BYTES),
        ("int64", COUNT_BYTES),
    ]


def test_a_convnets_buffers_are_far_below_the_250_mib_threshold(
    recorded: dict[str, Recording],
) -> None:
    channels, layers = 32 + 64 + 128 + 256 + 256, 5
    nbytes = channels * 2 * 4 + layers * 8
    table = recorded["convnet"].buffers()
    assert set(table["bytes"]) == {nbytes} == {5928}
    assert set(table["of_threshold"]) == {nbytes / (250 * 2**20)}


def test_rank_0_is_authoritative_and_under_join_the_highest_that_has_not_joined(
    recorded: dict[str, Recording],
) -> None:
    assert set(recorded["drifting"].buffers()["authoritative_rank"]) == {0}
    table = recorded["joined"].buffers()
    found = table.groupby("step")["authoritative_rank"].agg(set)
    assert dict(found) == {0: {1}, 1: {1}, 2: {0}, 3: {0}}
    chosen = recorded["joined"].records(kinds=Kind.COMMON_RANK)
    for rank in range(inside.RANKS):  # a rank that has joined shadows every sync
        of_rank = chosen[(chosen["rank"] == rank) & (chosen["cause"] == Cause.BUFFERS)]
        assert list(of_rank["index"]) == [1, 1, 0, 0]
    final = chosen[chosen["cause"] == Cause.JOIN]
    assert list(final["index"]) == [0, 0, 0]


def test_running_statistics_drift_and_the_next_broadcast_repairs_them(
    recorded: dict[str, Recording],
) -> None:
    table = recorded["drifting"].buffer_values()
    assert len(table) == 4 * inside.RANKS * 4  # steps, ranks, buffers
    later = table[table["step"] > 0]
    assert set(later[later["differed"]]["name"]) == DRIFTS
    others = later[later["rank"] > 0]
    assert set(others[others["overwritten"]]["name"]) == DRIFTS
    assert not table[table["rank"] == 0]["overwritten"].any()
    assert (others[others["name"].isin(DRIFTS)]["drift"] != 0).all()
    after = later.groupby(["step", "name"])["norm_after"].nunique()
    assert set(after) == {1}
    counted = table[(table["name"] == "norm.num_batches_tracked") & (table["rank"] == 2)]
    assert list(counted["norm_before"]) == [0, 1, 2, 3]


def test_a_buffer_that_nobody_writes_to_is_sent_for_nothing_again_and_again(
    recorded: dict[str, Recording],
) -> None:
    table = recorded["drifting"].buffer_values()
    for rank in range(inside.RANKS):
        mine = table[table["rank"] == rank].set_index("name")
        assert list(mine.loc["constant", "unchanged"]) == [0, 1, 2, 3]
        assert list(mine.loc["norm.running_mean", "unchanged"]) == [0, 0, 0, 0]


def test_buffers_of_other_ranks_are_stale_after_the_last_step(
    recorded: dict[str, Recording],
) -> None:
    """What ``state_dict()`` gives on a rank other than 0."""
    table = recorded["drifting"].replicas()
    last = table[(table["what"] == "buffers") & (table["step"] == 3)].iloc[0]
    assert not last["equal"] and set(last["names"]) == DRIFTS
    assert last["different_ranks"] == (1, 2) and last["since_step"] == 0
    assert not last["promised"]


def test_a_reassigned_buffer_is_named_and_sent(recorded: dict[str, Recording]) -> None:
    for rank in range(inside.RANKS):
        table = in_order(recorded["reassigned"], rank)
        assert list(table["reassigned"]) == [(), (), ("late", "norm.running_mean"), ()]
        assert list(table["bytes"]) == 2 * [72] + 2 * [76]
    values = recorded["reassigned"].buffer_values()
    mine = values[(values["name"] == "norm.running_mean") & (values["step"] == 2)]
    assert list(mine["norm_before"]) == [0.0, 8**0.5, 32**0.5]
    assert list(mine["norm_after"]) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("case", "hook"), [("after", "post"), ("before", "pre")])
def test_a_buffer_hook_takes_the_broadcasts_place_where_it_says(
    recorded: dict[str, Recording], case: str, hook: str
) -> None:
    recording = recorded[f"hooked {case}"]
    table = recording.buffers()
    assert set(table["hook"]) == {f"{hook}_forward"} and table["fired"].all()
    assert not table["broadcasts"].any() and table["authoritative_rank"].isna().all()
    assert all(case in why and "took the place" in why for why in table["why"])
    synced = recording.records(kinds=Kind.BUFFER_SYNC)
    module = recording.records(kinds=Kind.MODULE_FORWARD)
    assert len(synced) == len(module) == 3 * inside.RANKS
    for rank in range(inside.RANKS):
        begins = [part[part["rank"] == rank]["begin_ns"] for part in (synced, module)]
        assert ((begins[0] > begins[1]) == (case == "after")).all()


def test_buffers_are_equal_after_a_hook_at_the_end_of_backward(
    recorded: dict[str, Recording],
) -> None:
    table = recorded["hooked after"].replicas().set_index(["step", "what"])["equal"]
    for step in range(3):
        assert not table[step, "buffers before"]
        assert table[step, "buffers after"] and table[step, "buffers"]


def test_of_a_recording_without_the_flag_nothing_is_concluded(
    recorded: dict[str, Recording],
) -> None:
    """As recordings were before it was written: the forward that did not fire may have been due."""
    older = Older(recorded["around no_sync"])
    table = analysis.buffers(older)
    table = table[table["rank"] == 0].sort_values("iteration", ignore_index=True)
    assert list(table["sync_due"].isna()) == [False, False, True, True, False, False]
    assert all(why.startswith("not known") for why in table["why"][2:4])
    assert set(table["hook"]) == {""} and table["of_threshold"].isna().all()


class Older:
    """The recording without what is recorded since."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.ranks, self.label = recording.ranks, recording.label

    def records(self, kinds: Any = None, ranks: Any = None, steps: Any = None) -> Any:
        found = self._recording.records(kinds, ranks, steps).copy()
        found["flags"] &= 511
        return found

    def notes(self, kind: Any, /, rank: int | None = None) -> Any:
        found = self._recording.notes(kind, rank=rank)
        if kind is not Configuration:
            return found
        new = ("buffer_hook", "broadcast_bucket_size")
        return [
            dataclasses.replace(
                note, values={name: value for name, value in note.values.items() if name not in new}
            )
            for note in found
        ]


@pytest.mark.parametrize("case", ["convnet", "drifting", "hooked after", "hooked before"])
def test_per_dtype_it_is_told_what_was_moved_and_waited_for(
    recorded: dict[str, Recording], case: str
) -> None:
    recording = recorded[case]
    table = recording.buffer_dtypes()
    sent = recording.collectives()
    sent = sent[sent["cause"] == "buffers"]
    keys = ["step", "rank", "op", "dtype"]  # a hook's own collectives have no iteration
    whole = sent.groupby(keys)["bytes"].agg(["size", "sum"])
    mine = table.set_index(keys).sort_index()
    assert len(mine) == len(whole) > 0
    assert mine["collectives"].tolist() == whole["size"].tolist()
    assert mine["bytes"].tolist() == whole["sum"].tolist()
    assert (table["waited_ms"] <= table["time_ms"] + 1e-9).all() and (table["time_ms"] > 0).all()
    # In all a rank waits no longer than it is in the sync, and DDP's own waits for what it sends.
    waited = table.groupby(["step", "iteration", "rank"])["waited_ms"].max()
    synced = recording.buffers().set_index(["step", "iteration", "rank"])["sync_ms"]
    assert (waited <= synced.loc[waited.index] + 1e-9).all()
    assert (table["iteration"] >= 0).all() and (table["waited_ms"] > 0).all()


def test_of_what_was_only_enqueued_no_wait_is_told(recorded: dict[str, Recording]) -> None:
    table = on_cuda(recorded["drifting"]).buffer_dtypes()
    assert len(table) and table["time_ms"].isna().all() and table["waited_ms"].isna().all()


def test_what_a_buffer_hook_sends_over_ddps_group_is_no_broadcast_of_ddps(
    recorded: dict[str, Recording],
) -> None:
    recording = recorded["hooked on the group"]
    table = recording.buffers()
    assert table["fired"].all() and not table["broadcasts"].any() and not table["bytes"].any()
    nbytes = FLOAT_BYTES + COUNT_BYTES
    assert set(table["of_threshold"]) == {nbytes / (250 * 2**20)}
    assert set(recording.buffer_dtypes()["op"]) == {"allreduce"}


def test_what_the_sync_repaired_was_not_sent_for_nothing(recorded: dict[str, Recording]) -> None:
    table = recorded["repaired"].buffer_values()
    mine = table[table["name"] == "table"]
    assert set(mine["unchanged"]) == {0}
    assert set(mine["overwritten"][mine["rank"] == 1]) == {True}
    told = " | ".join(picture_of(recorded["repaired"], "buffers", 3).facts)
    assert "sent for nothing" not in told


def test_of_one_rank_nothing_is_said_of_all(recorded: dict[str, Recording]) -> None:
    part = Recording()
    for batch in batches_of(recorded["drifting"]):
        if batch.rank == 0:
            kinds = (Configuration, Fingerprints)
            notes = [n for kind in kinds for n in recorded["drifting"].notes(kind, rank=0)]
            part.append(Batch(0, 0, batch.records, (*batch.notes, *notes)))
    told = " | ".join(picture_of(part, "buffers", 2).facts)
    assert "whether ranks had the same buffers before the sync in step 2 is not known" in told
    assert "all ranks had the same buffers" not in told
