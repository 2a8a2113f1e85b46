"""``ddpviz explain TRACE…``: what costs most, what is not wrong, and the tree of frames."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddpviz.explain.story import tell
from ddpviz.traces import read
from tests.cli.command import ddpviz
from tests.cli.test_errors import assert_one_line
from tests.traces.recorded import PARAMETERS


@pytest.fixture(scope="module")
def told(own: Path) -> str:
    done = ddpviz("explain", own / "stack.rank0.json", own / "stack.rank1.json")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_first_comes_what_costs_most(told: str) -> None:
    first = told.index("What costs most, per step:")
    assert told.startswith("2 ranks, ") and first < 300
    assert "\n  1. " in told and "\n  2. " in told and "\n  3. " in told
    assert "2 broadcasts (2 KiB of float32, 8 B of int64) are the module's buffers" in " ".join(
        told.split()
    )
    assert "Change: " in told and "Risk: " in told and "What is not wrong:" in told
    assert max(map(len, told.splitlines())) <= 200


def test_the_call_chain_of_the_broadcast_is_in_the_tree(told: str) -> None:
    chain = [
        "DistributedDataParallel.forward ",
        "DistributedDataParallel._pre_forward ",
        "DistributedDataParallel._sync_buffers ",
        "DistributedDataParallel._sync_module_buffers ",
        "DistributedDataParallel._default_broadcast_coalesced ",
        "DistributedDataParallel._distributed_broadcast_coalesced ",
        "_broadcast_coalesced ",
        "c10d::broadcast_ ",
        "gloo:broadcast ",
    ]
    lines = told.splitlines()
    at, indent = 0, -1
    for name in chain:
        at = next(n for n in range(at, len(lines)) if lines[n].lstrip().startswith(name))
        here = len(lines[at]) - len(lines[at].lstrip())
        assert here > indent
        indent = here
    assert "2 ×" in lines[at]


def test_numbers_of_the_tree_are_those_of_the_trace(own: Path) -> None:
    found = tell(read(own / "unused.rank0.json"))
    frames = {frame.name: frame for _, frame in found.tree.all()}
    copies = frames["torch::distributed::reducer::mul_out"]
    assert copies.times == PARAMETERS * found.tree.steps
    assert "torch.distributed.ddp.reducer::search_unused_parameters" in frames
    assert any(cost.name == "searching unused parameters" for cost in found.costs)
    events = json.loads((own / "unused.rank0.json").read_text())["traceEvents"]
    rows = [one for one in events if one["name"] == copies.name][-copies.times :]
    assert copies.total_ns == pytest.approx(sum(one["dur"] for one in rows) * 1000, abs=1000)


def test_as_json_and_html(own: Path, tmp_path: Path) -> None:
    paths = (own / "stack.rank0.json", own / "stack.rank1.json")
    done = ddpviz("explain", *paths, "--json", "--html", tmp_path / "story.html", "--rank", "1")
    found = json.loads(done.stdout)
    assert found["rank"] == 1 and len(found["ranks"]) == len(found["clocks"]) == 2
    assert [one["ms"] for one in found["costs"]] == sorted(
        (one["ms"] for one in found["costs"]), reverse=True
    )
    text = (tmp_path / "story.html").read_text()
    assert "What is not wrong" in text and "http" not in text.partition("<body>")[0]


def test_two_runs_side_by_side(own: Path) -> None:
    done = ddpviz("explain", own / "stack.rank0.json", "--against", own / "unused.rank0.json")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert f"first {own / 'stack.rank0.json'}: rank 0 of 2" in said.replace("- ", "-")
    assert f"second {own / 'unused.rank0.json'}: rank 0 of 2" in said
    assert "exposed communication" in done.stdout


def test_what_is_not_there_is_one_sentence(own: Path) -> None:
    trace = own / "eager.rank0.json"
    assert_one_line(ddpviz("explain", trace, "--step", "99"), "found no step 99")
    assert_one_line(ddpviz("explain", trace, "--rank", "7"), "found no rank 7")
    assert_one_line(ddpviz("explain", own), "found rank 0 in ")
    assert_one_line(ddpviz("show", own / "nothing.json"), "found nothing at")


def test_show_makes_a_page_of_a_trace(own: Path, tmp_path: Path) -> None:
    done = ddpviz("show", own / "stack.rank0.json", "--html", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert "Bucket plan 1" in done.stdout and "note       bucket plans are inferred" in done.stdout
    assert "DDP module" in (tmp_path / "page.html").read_text()
