"""The table of steps: what comes first, and a period beside the length of a step."""

from __future__ import annotations

from ddpviz import analysis
from ddpviz.events import Kind, Process
from tests.analysis.material import at_ns, described, step
from tests.analysis.test_tables import two_ranks


def test_what_tells_most_comes_first_in_the_table_of_steps() -> None:
    columns = list(analysis.steps(two_ranks()).columns)
    assert columns[:5] == ["step", "rank", "period_ms", "step_ms", "exposed_communication_ms"]
    assert columns[-1] == "begin_ns"


def test_a_period_is_from_end_to_end_so_a_late_rank_is_not_the_fastest() -> None:
    """Rank 1 loads its batches for 50 ms; rank 0 waits for it in its forward."""
    source = described()
    for number, begin in ((1, 0.0), (2, 100.0)):
        for rank, late in ((0, 0.0), (1, 50.0)):
            step(
                source, rank, begin + late, {}, [begin + 70], [begin + 80],
                (begin + 75, begin + 85), number, 10 + number, end_ms=begin + 100,
            )  # fmt: skip
    table = analysis.steps(source).set_index(["step", "rank"])
    assert table.loc[2, "step_ms"].tolist() == [100, 50]
    assert table.loc[2, "period_ms"].tolist() == [100, 100]
    assert table.loc[1, "period_ms"].isna().all()
    one = analysis.steps(source, 2)
    assert one["period_ms"].tolist() == [100, 100]


def test_a_period_in_which_a_module_or_a_process_was_made_is_none() -> None:
    for number in (1, 2):
        source = described((0,), 1)
        step(source, 0, 0.0, {}, [70], [80], (75, 85), 1, end_ms=100)
        step(source, 0, 200.0, {}, [270], [280], (275, 285), 2, 12, end_ms=300)
        if number == 1:
            source.add(Kind.CONSTRUCTION, 0, 150, 160, module=1, step=-1)
        else:
            source.note(0, Process(0, 1, 2, "a", "2.13.0", "3.11", "cpu", at_ns(150), "default"))
        assert analysis.steps(source)["period_ms"].isna().all()
