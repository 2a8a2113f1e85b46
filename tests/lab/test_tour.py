"""The notebooks run from their first cells to their last; the tour is put where it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpviz.lab import place_tour
from tests.lab.notebooks import FOLDER, executed, read

TOUR = Path(__file__).parents[2] / "notebooks" / "tour.ipynb"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.ipynb")))
def test_every_cell_runs(name: str) -> None:
    """From a kernel that knows nothing; in a run without a browser, too."""
    pytest.importorskip("nbclient")
    cells = [cell for cell in executed(name).cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells if cell.source.strip())
    assert not [o for cell in cells for o in cell.outputs if o["output_type"] == "error"]


@pytest.mark.slow
def test_a_late_rank_is_named_by_the_audit() -> None:
    pytest.importorskip("nbclient")
    cells = executed("debug-your-own-job.ipynb").cells
    (asked,) = [cell for cell in cells if "recording.audit()" in cell.source and cell.outputs]
    said = "".join(out["text"] for out in asked.outputs if out["output_type"] == "stream")
    assert "rank 0 is late by " in said and "and the others wait for it" in said
    shown = [out["data"]["text/plain"] for out in asked.outputs if "data" in out]
    assert "no fingerprints were taken" in "".join(shown)


@pytest.mark.slow
def test_the_tour_shows_its_figures() -> None:
    pytest.importorskip("nbclient")
    assert all(not cell.get("outputs") for cell in read("tour.ipynb").cells), "no outputs"
    notebook = executed("tour.ipynb")
    kinds = {
        kind
        for cell in notebook.cells
        for out in cell.get("outputs", [])
        for kind in out.get("data", {})
    }
    assert {"text/html", "application/javascript"} <= kinds


def test_tour_is_put_into_a_folder(tmp_path: Path) -> None:
    path = place_tour(tmp_path / "new")
    assert path.read_bytes() == TOUR.read_bytes()


def test_a_tour_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "tour.ipynb").write_text("changed by its reader")
    assert place_tour(tmp_path).read_text() == "changed by its reader"
