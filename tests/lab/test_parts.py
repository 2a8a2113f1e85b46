"""The article's parts as notebooks: they run, show all there is to show, and say what is so."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ddpviz.demonstrations import demonstrations
from ddpviz.explain import claims
from tests.lab.notebooks import FOLDER, PARTS, chapters, code, executed, prose, read

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")

#: The first test runs all notebooks: minutes on a quiet machine.
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def ran() -> dict[str, Any]:
    """The parts with their outputs."""
    return {name: executed(name) for name in PARTS}


@pytest.mark.parametrize("name", PARTS)
def test_it_is_committed_without_outputs(name: str) -> None:
    notebook = read(name)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    assert notebook.cells[-1].source == "session.close()"
    assert len({cell["id"] for cell in notebook.cells}) == len(notebook.cells)


@pytest.mark.parametrize("name", PARTS)
def test_numbers_are_shown_and_not_written(name: str) -> None:
    for text in prose(read(name)):
        # Names of the parts and of a rank are no measured numbers.
        assert re.findall(r"\d+", re.sub(r"[Pp]art \d|[Rr]ank 0", "", text)) == [], text


def test_every_claim_and_every_demonstration_has_its_chapter() -> None:
    source = "\n".join(code(read(name)) for name in PARTS)
    assert {*re.findall(r'demonstrate\("([^"]+)"\)', source)} == {d.name for d in demonstrations()}
    assert [one.id for one in claims() if f'"{one.id}"' not in source] == []


def test_the_tour_points_to_them_and_they_to_each_other() -> None:
    texts = {name: (FOLDER / name).read_text(encoding="utf-8") for name in ("tour.ipynb", *PARTS)}
    for name in PARTS:
        assert f"({name})" in texts["tour.ipynb"]
    for before, after in itertools.pairwise(PARTS):
        assert f"({after})" in texts[before] and f"({before})" in texts[after]


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
def test_every_chapter_shows_something_and_no_cell_fails(ran: dict[str, Any], name: str) -> None:
    notebook = ran[name]
    for chapter in chapters(notebook):
        kinds = {out["output_type"] for out in chapter.outputs}
        assert "error" not in kinds, chapter.title
        assert any(_shows(out) for out in chapter.outputs), chapter.title
    tables = [out for one in chapters(notebook) for out in one.outputs if "<table" in _html(out)]
    drawn = [out for one in chapters(notebook) for out in one.outputs if _is_drawn(out)]
    assert len(tables) > 10 and len(drawn) > 3


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
def test_only_the_first_cell_brings_bokehjs(ran: dict[str, Any], name: str) -> None:
    first, *others = [cell for cell in ran[name].cells if cell.cell_type == "code"]
    assert len(json.dumps(first.outputs)) > 1_000_000
    assert max(len(json.dumps(cell.outputs)) for cell in others) < 300_000


@pytest.mark.slow
def test_part_1_is_what_the_constructor_does(ran: dict[str, Any]) -> None:
    facts = ran[PARTS[0]].metadata["facts"]
    said = _said(ran[PARTS[0]])
    assert facts["missing"] == {}
    # init_sync=False leaves out every collective of one construction, and of no other.
    assert facts["collectives"].count(0) == 1
    assert "1 distinct among 2 replicas" in said and "2 distinct among 2 replicas" in said
    assert "17 of 17 parameters were ready" in said
    assert "1 bucket: all parameters of one dtype and device" in said
    assert facts["reasons"] == ["construction", "rebuild"]
    assert "re-wrapped" in said


@pytest.mark.slow
def test_part_2_is_what_a_step_does(ran: dict[str, Any]) -> None:
    facts = ran[PARTS[1]].metadata["facts"]
    said = _said(ran[PARTS[1]])
    assert facts["missing"] == {}
    assert (facts["walked"], facts["remarks"]) == (2, [])
    # Cut at a small threshold the same buffers go out in more broadcasts than one per dtype.
    assert "10 broadcasts of 5928 bytes" in said and facts["broadcasts"] == [0, 1, 2, 10]
    for why in ("without gradients", "in no_sync", "forward_sync_buffers is off", "it fired"):
        assert any(why in one for one in facts["whys"]), why
    assert all(facts["replicas"]["buffers after"])
    assert not all(facts["replicas"]["buffers before"])
    assert "2 of 12 parameters had no part in the forward" in said
    before = said.index("set_runtime_stats_and_log"), said.index("_check_sync_bufs_pre_fwd")
    assert before == tuple(sorted(before))


@pytest.mark.slow
def test_part_3_is_what_each_mode_does(ran: dict[str, Any]) -> None:
    facts = ran[PARTS[2]].metadata["facts"]
    said = _said(ran[PARTS[2]])
    assert facts["missing"] == {}
    assert "all 17 gradients came in one burst" in said
    assert "split into 3 subgraphs by DDPOptimizer" in said
    assert "DDPOptimizer found no place to split it, with a first limit of 1 MiB" in said
    assert "first limit is lowered from 1 to 0.5 MiB" in said
    assert "torch 2.13 reads this mode nowhere" in said
    # python_reducer: the replicas' buffers go apart, their parameters do not.
    assert not any(facts["replicas"]["buffers"]) and all(facts["replicas"]["parameters"])
    assert facts["all_reduces"] == {
        "backward": [17, 4, 17, 17],  # the last two are of the comparison
        "before fusion": [4],
        "after fusion": [1],
    }
    assert facts["compared"] == {
        "eager": True,
        "ddp_optimizer": True,
        "no_optimization": True,
        "python_reducer": False,
    }


def _said(notebook: Any) -> str:
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    return "\n".join(out.get("text", "") + _html(out) for out in outputs)


def _html(out: Any) -> str:
    return str(out.get("data", {}).get("text/html", ""))


def _is_drawn(out: Any) -> bool:
    return "Bokeh" in str(out.get("data", {}).get("application/javascript", "")) + _html(out)


def _shows(out: Any) -> bool:
    found = _html(out)
    return "<table" in found or "ddpviz-walk" in found or _is_drawn(out)


def test_all_are_put_into_a_folder_and_kept(tmp_path: Path) -> None:
    from ddpviz.lab import place_tour

    (tmp_path / PARTS[0]).write_text("changed by its reader")
    place_tour(tmp_path)
    assert (tmp_path / PARTS[0]).read_text() == "changed by its reader"
    assert (tmp_path / PARTS[1]).read_bytes() == (FOLDER / PARTS[1]).read_bytes()
    written = [*PARTS, "debug-your-own-job.ipynb", "teach-with-it.ipynb", "tour.ipynb"]
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(written)
