"""What was not recorded is said to be unknown, by every table of what happens inside DDP."""

from __future__ import annotations

import pytest

from ddpviz import analysis
from ddpviz.events import Flag
from ddpviz.recording import Recording
from tests.analysis.material import construct, described, hanging, step

READY = {3: 20.0, 2: 21.0, 1: 22.0, 0: 23.0}
TABLES = (
    "construction",
    "plan_reasons",
    "finalize",
    "forward_graph",
    "buffer_dtypes",
    "buffer_values",
    "replicas",
    "buffers",
)


@pytest.mark.parametrize("name", TABLES)
def test_a_recording_of_nothing_has_the_columns_and_no_rows(name: str) -> None:
    whole = getattr(analysis, name)
    empty, made = whole(Recording()), whole(hanging())
    assert len(empty) == 0
    assert list(empty.dtypes) == list(made.dtypes) and list(empty) == list(made)


def test_without_a_configuration_no_reason_is_made_up() -> None:
    source = hanging()
    assert analysis.plan_reasons(source)["why"].str.startswith("not known").all()
    graph = analysis.forward_graph(source)
    assert len(graph) == 8 and graph["used"].isna().all()
    assert graph["searched"].str.startswith("not known").all()
    table = analysis.buffers(source)
    assert table["sync_on"].isna().all() and table["sync_due"].isna().all()


def test_a_constructor_that_never_returned_has_parts_that_did_not_run() -> None:
    source = described()
    construct(source, 0, -50, None)
    construct(source, 1, -50, -40)
    table = analysis.construction(source).set_index(["rank", "part"])
    assert table.loc[(0, "verify"), "time_ms"] == 2.0
    for rank in (0, 1):
        assert table.loc[(rank, "sync"), "detail"] == "it did not run"
        assert table.loc[(rank, "sync"), ["time_ms"]].isna().all()


def test_a_completion_that_is_not_known_leaves_finalize_open() -> None:
    source = described()
    step(source, 0, 0, READY, [21, 23], [24, None], (25, 30))
    table = analysis.finalize(source)
    assert list(table["wait_ms"].isna()) == [False, True] and table["rest_ms"].isna().all()
    assert len(analysis.finalize(hanging())) == 0  # nobody got there


def test_on_cuda_nothing_is_told_of_finalize_but_its_length() -> None:
    source = described()
    step(source, 0, 0, READY, [21, 23], [24, 26], (25, 30), flags=Flag.ENQUEUED)
    table = analysis.finalize(source)
    assert list(table["finalize_ms"]) == [5.0, 5.0]
    assert table[["wait_ms", "rest_ms"]].isna().all().all() and set(table["derived"]) == {""}
    assert table["proxy"].str.startswith("on CUDA the host only enqueues it").all()


def test_a_bucket_that_hangs_is_full_and_launched_and_not_done() -> None:
    table = analysis.countdown(hanging(), 1, 0)
    assert list(table[table["bucket"] == 1]["event"]) == ["ready", "ready", "full", "launched"]
    without_times = analysis.countdown(hanging(), 1, 1)
    assert list(without_times["event"]) == ["launched", "done"]
    assert without_times["pending"].isna().all()
