"""Whether replicas are equal, by fingerprints of real runs."""

from __future__ import annotations

from ddpviz import analysis
from ddpviz.events import Fingerprints
from ddpviz.recording import Recording
from tests.analysis import inside
from tests.views.pictures import picture_of

PARAMETERS = 10


def test_parameters_and_gradients_are_equal_on_all_ranks(recorded: dict[str, Recording]) -> None:
    for case in ("drifting", "hook averages", "explicit cap", "views", "unused here", "joined"):
        table = recorded[case].replicas()
        promised = table[table["promised"] & (table["ranks"] > 1)]
        assert {"parameters", "gradients"} <= set(promised["what"]), case
        assert promised["equal"].all() and promised["since_step"].isna().all(), case
        assert not table["nonfinite"].any()


def test_a_hook_that_forgets_to_divide_on_one_rank_is_found(
    recorded: dict[str, Recording],
) -> None:
    table = recorded["hook forgets"].replicas()
    gradients = table[table["what"] == "gradients"]
    assert not gradients["equal"].any()
    assert set(gradients["different"]) == {PARAMETERS}
    assert set(gradients["different_ranks"]) == {(inside.CHANGED_RANK,)}
    assert list(gradients["since_step"]) == [0, 0, 0]
    parameters = table[(table["what"] == "parameters") & (table["step"] == 0)].iloc[0]
    assert not parameters["equal"] and parameters["different_ranks"] == (inside.CHANGED_RANK,)


def test_one_bit_of_one_weight_is_found_and_since_when(recorded: dict[str, Recording]) -> None:
    table = recorded["changed behind"].replicas()
    parameters = table[table["what"] == "parameters"].set_index("step")
    assert list(parameters["equal"][:4]) == [True, True, False, False]
    for step in (2, 3):
        row = parameters.loc[step]
        assert row["names"] == ("head.weight",)
        assert row["different_ranks"] == (inside.CHANGED_RANK,)
        assert row["since_step"] == inside.CHANGED_STEP


def test_not_a_number_on_all_ranks_alike_is_equal_and_counted(
    recorded: dict[str, Recording],
) -> None:
    """Every loss is NaN from there on, and so is every parameter, with the same bytes."""
    table = recorded["changed behind"].replicas().set_index(["step", "what"])
    assert table.loc[(3, "parameters"), "nonfinite"] == 0
    assert table.loc[(4, "buffers after"), "nonfinite"] == 0
    assert table.loc[(4, "parameters"), "equal"]
    assert table.loc[(4, "parameters"), "nonfinite"] > 700


def test_one_rank_alone_is_compared_with_nobody(recorded: dict[str, Recording]) -> None:
    """The last steps of the rank that others have left by Join."""
    table = recorded["joined"].replicas()
    alone = table[table["step"] > 1]
    assert len(alone) and set(alone["ranks"]) == {1} and alone["equal"].isna().all()


def test_without_fingerprints_there_are_no_rows() -> None:
    for table in (analysis.replicas(Recording()), analysis.buffer_values(Recording())):
        assert len(table) == 0 and len(table.columns) > 5


def test_modules_of_different_process_groups_are_no_replicas(
    recorded: dict[str, Recording],
) -> None:
    recording = recorded["stages"]
    table = recording.replicas()
    mine = table[table["what"] == "parameters"]
    assert sorted(mine["ranks"].unique()) == [1, 2]
    assert set(mine["equal"][mine["ranks"] == 2]) == {True}
    assert mine["equal"][mine["ranks"] == 1].isna().all()
    told = " | ".join(picture_of(recording, "buffers", 1).facts)
    assert "each is authoritative: rank 0 among 0, 1, rank 2 among 2" in told
    assert recording.audit() == ()


def test_gradients_that_are_views_lie_in_the_buckets(recorded: dict[str, Recording]) -> None:
    for case, views in (("views", True), ("explicit cap", False)):
        recording = recorded[case]
        taken = [note for note in recording.notes(Fingerprints, 0) if note.what == "gradients"]
        table = analysis.plans(recording)
        buckets = int((table["version"] == table["version"].max()).sum())
        assert buckets > 1 and len(taken[-1].hashes) > buckets
        assert taken[-1].storages == (buckets if views else len(taken[-1].hashes))
