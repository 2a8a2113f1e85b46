"""The notebooks, as tests read and run them."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "notebooks"
PARTS = ("part-1-construction.ipynb", "part-2-a-step.ipynb", "part-3-compile.ipynb")

#: Run in a part before its last cell, which ends the session: what the run left in the kernel.
_FACTS = """
import json

def extra():
    if "found" not in globals():
        return {}
    graphs = recording.graphs(rank=0)
    reduces = {role: [int(one) for one in rows["all_reduces"]]
               for role, rows in graphs.groupby("role") if rows["all_reduces"].any()}
    synced = found.table.set_index("configuration")["buffers_synced"]
    return {"all_reduces": reduces, "compared": {name: bool(one) for name, one in synced.items()}}

parts = recording.construction()
buffers = recording.buffers()
plans = recording.plans()
print(json.dumps({
    "collectives": parts.groupby("construction")["collectives"].sum().tolist(),
    "whys": sorted(buffers["why"].unique()),
    "broadcasts": sorted({int(one) for one in buffers["broadcasts"]}),
    "reasons": sorted(plans["reason"].unique()),
    "walked": len(recording.notes(ddpviz.events.Walk)),
    "remarks": [remark for note in recording.notes(ddpviz.events.Walk, rank=0)
                for remark in recording.walk(note.step).remarks],
    "replicas": {what: [bool(one) for one in rows["equal"]]
                 for what, rows in recording.replicas().groupby("what")},
    "missing": recording.missing,
    **extra(),
}))
"""


def read(name: str) -> Any:
    """As it is committed."""
    import nbformat

    return nbformat.read(FOLDER / name, as_version=4)


@functools.cache
def executed(name: str) -> Any:
    """With its outputs and its widgets' state, as it is saved after a run.

    Run once for all tests, which leave it as it is. What a part left in the kernel stands in its
    metadata, under "facts".
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = read(name)
    if name in PARTS:
        notebook.cells.insert(-1, nbformat.v4.new_code_cell(_FACTS))
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=200, resources=resources).execute()
    if name in PARTS:
        asked = notebook.cells.pop(-2)
        notebook.metadata["facts"] = json.loads(asked.outputs[-1]["text"])
    return notebook


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
