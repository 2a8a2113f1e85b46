"""The tour runs from its first cell to its last, and is put where it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpviz.lab import place_tour
from tests.lab.notebooks import executed, read

TOUR = Path(__file__).parents[2] / "notebooks" / "tour.ipynb"


@pytest.mark.slow
def test_every_cell_of_the_tour_runs() -> None:
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
