"""The notebooks that follow the article, as tests read and run them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "notebooks"
PARTS = ("part-1-construction.ipynb", "part-2-a-step.ipynb", "part-3-compile.ipynb")


@dataclasses.dataclass(frozen=True)
class Chapter:
    """``title``: of its heading; ``cells``: all from that heading to the next."""

    title: str
    cells: list[Any]

    @property
    def outputs(self) -> list[Any]:
        return [out for cell in self.cells for out in cell.get("outputs", [])]


def chapters(notebook: Any) -> list[Chapter]:
    """Cells by their heading of the second order; what stands before the first is left out."""
    found: list[Chapter] = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            found.append(Chapter(cell.source.splitlines()[0][3:], []))
        if found:
            found[-1].cells.append(cell)
    return found


def prose(notebook: Any) -> list[str]:
    """Texts of markdown, without code and addresses."""
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    return [re.sub(r"`[^`]*`|\]\([^)]*\)", "", text) for text in texts]


def code(notebook: Any) -> str:
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
