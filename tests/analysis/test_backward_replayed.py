"""A backward event by event, its finalize, and what DDP found out about the forward."""

from __future__ import annotations

import pytest

from ddpviz.recording import Recording
from tests.analysis import inside


@pytest.mark.parametrize("case", ["explicit cap", "hook averages", "convnet", "unused here"])
def test_buckets_count_down_to_zero_and_are_launched_in_order(
    recorded: dict[str, Recording], case: str
) -> None:
    recording = recorded[case]
    plan = recording.plans()
    sizes = plan[plan["version"] == plan["version"].max()].set_index("bucket")["parameters"]
    for rank in range(inside.RANKS):
        table = recording.countdown(2, rank)
        assert table["time_ns"].is_monotonic_increasing
        for bucket, size in sizes.items():
            mine = table[table["bucket"] == bucket]
            ready = mine[mine["event"] == "ready"]
            assert list(ready["pending"]) == list(range(size - 1, -1, -1))
            assert list(mine["event"][mine["event"] != "ready"]) == ["full", "launched", "done"]
            (full,) = mine[mine["event"] == "full"].index
            assert full == ready.index[-1] + 1 and table["derived"][full]
        launched = table[table["event"] == "launched"]
        assert list(launched["bucket"]) == list(sizes.index)
        assert list(launched["next_bucket"]) == [bucket + 1 for bucket in sizes.index]
        assert launched["head_of_line_ms"][launched["bucket"] == 0].item() == 0
        assert (table["since_ms"] > 0).all()


def test_a_full_bucket_waits_for_the_one_before_it(recorded: dict[str, Recording]) -> None:
    """Parameters that are not used are ready at once; the bucket of ``side`` is still not sent."""
    table = recorded["unused here"].countdown(1, 0)
    first = table[table["event"] == "ready"]["name"].head(2)
    assert set(first) == {"side.weight", "side.bias"}
    assert set(table["name"][table["unused"]]) == {"side.weight", "side.bias"}
    assert set(table["bucket"][first.index]) == {1}
    assert table[table["event"] == "launched"]["bucket"].tolist() == [0, 1]


def test_static_graphs_first_backward_has_no_ready_times(recorded: dict[str, Recording]) -> None:
    table = recorded["unused in static"].countdown(0, 0)
    assert list(table["event"]) == ["launched", "done"]
    assert table["pending"].isna().all() and table["head_of_line_ms"].isna().all()
    assert "ready" in set(recorded["unused in static"].countdown(3, 0)["event"])


def test_a_rank_without_the_step_has_no_events(recorded: dict[str, Recording]) -> None:
    assert len(recorded["joined"].countdown(3, 2)) == 0
    with pytest.raises(ValueError, match="found no step 99"):
        recorded["joined"].countdown(99, 0)


def test_waits_of_finalize_and_what_is_left_are_all_of_it(recorded: dict[str, Recording]) -> None:
    for case in ("explicit cap", "views", "convnet", "unused in static"):
        table = recorded[case].finalize()
        assert len(table) == len(recorded[case].buckets())
        assert (table["wait_ms"] >= 0).all() and (table["derived"] == "wait_ms,rest_ms").all()
        whole = table.groupby(["step", "rank"]).agg(
            waits=("wait_ms", "sum"), rest=("rest_ms", "first"), finalize=("finalize_ms", "first")
        )
        known = whole["rest"].notna()
        gap = (whole["waits"] + whole["rest"].fillna(0) - whole["finalize"]).abs()
        assert (gap[known] < 1e-6).all()
        # What ended late ended, as far as is known, with finalize.
        assert (gap[~known] < 1e-6).all()
        assert table["proxy"].str.contains("cannot be seen from outside").all()


@pytest.mark.parametrize(
    ("case", "division", "copy"),
    [
        ("explicit cap", "while each is copied into the bucket", "is copied out"),
        ("views", "in the bucket, as each gradient gets ready", "nothing is copied"),
        ("hook averages", "in the comm hook, hook_averages:", "is copied out"),
        ("hook forgets", "in the comm hook, hook_forgets:", "is copied out"),
        ("hook with views", "in the comm hook", "unless the comm hook's result"),
        ("built-in hook", "in the comm hook, ", "is copied out"),
        ("batched copy", "once per bucket", "is copied out"),
    ],
)
def test_where_it_divides_and_copies_is_told_by_configuration(
    recorded: dict[str, Recording], case: str, division: str, copy: str
) -> None:
    if case not in recorded:
        pytest.skip("this torch has no batched_grad_copy")
    table = recorded[case].finalize(2)
    assert len(table) == 2 * inside.RANKS
    assert table["division"].str.contains(division, regex=False).all()
    assert table["copy"].str.contains(copy, regex=False).all()


def test_unused_parameters_are_named_per_rank(recorded: dict[str, Recording]) -> None:
    table = recorded["unused here"].forward_graph()
    assert len(table) == inside.RANKS * 5 * 10 and table["sink"].all()
    searched = table[table["searched"] == "yes"]
    unused = searched[~searched["used"].astype(bool)]
    assert set(unused["name"]) == {"side.weight", "side.bias"}
    by_step = unused.groupby("step")["rank"].agg(lambda ranks: sorted(set(ranks)))
    assert dict(by_step) == {0: [0, 1], 1: [0, 1, 2]}


def test_what_was_used_in_no_sync_counts_for_the_next_reduction(
    recorded: dict[str, Recording],
) -> None:
    """Step 3: with ``side`` in no_sync, then without: the Reducer has a gradient of it."""
    table = recorded["unused here"].forward_graph(3)
    unsynced = table[table["iteration"] == 3]
    assert unsynced["used"].isna().all() and unsynced["searched"].str.contains("no_sync").all()
    synced = table[table["iteration"] == 4]
    assert synced["used"].all() and set(synced["searched"]) == {"yes"}


def test_a_static_graph_is_searched_once_and_has_its_sink_once(
    recorded: dict[str, Recording],
) -> None:
    table = recorded["unused in static"].forward_graph()
    assert set(table[table["sink"]]["step"]) == {0}
    assert dict(table.groupby("step")["searched"].first()) == {
        0: "no: static_graph counts whose hooks come in its first backward",
        **dict.fromkeys((1, 2, 3), "no: a static_graph stays as it was in its first backward"),
    }
    assert set(table[~table["used"].astype(bool)]["name"]) == {"side.weight", "side.bias"}


def test_by_default_nothing_is_searched(recorded: dict[str, Recording]) -> None:
    table = recorded["explicit cap"].forward_graph()
    assert set(table["searched"]) == {"no: find_unused_parameters is off"}
    assert table["used"].isna().all() and not table["sink"].any()
