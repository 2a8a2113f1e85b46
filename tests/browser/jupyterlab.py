"""A JupyterLab of its own, with a notebook that a test opens and runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab import servers

NOTEBOOK = "figure.ipynb"


@contextmanager
def jupyterlab(folder: Path, cells: list[str], theme: str = "JupyterLab Light") -> Iterator[str]:
    """The address of a JupyterLab at a notebook with these cells, in a theme."""
    (folder / "root").mkdir()
    (folder / "root" / NOTEBOOK).write_text(servers.notebook(cells))
    with servers.jupyterlab(folder, theme) as address:
        yield f"{address}/lab/tree/{NOTEBOOK}?token={servers.TOKEN}"
