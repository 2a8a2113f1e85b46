"""Puts the notebooks into a folder and opens JupyterLab at the tour."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

TOUR_NAME = "tour.ipynb"


def place_tour(folder: Path) -> Path:
    """Make sure that ``folder`` has the tour and the notebooks that it points to; the tour's path.

    One that is there already is left as it is: its reader may have changed it. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for notebook in sorted(_source().glob("*.ipynb")):
        path = folder / notebook.name
        if not path.exists():
            shutil.copyfile(notebook, path)
    return folder / TOUR_NAME


def open_lab(tour: Path, *, browser: bool, allow_root: bool) -> NoReturn:
    """Become JupyterLab, in the tour's folder. Raises ModuleNotFoundError where it is missing."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise ModuleNotFoundError(
            "JupyterLab is not installed in this environment: pip install 'ddpviz[lab]'"
        )
    tour = tour.absolute()
    arguments = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={tour.parent}"]
    arguments.append(f"--LabApp.default_url=/lab/tree/{tour.name}")
    if not browser:
        arguments.append("--no-browser")
    if allow_root:
        arguments.append("--allow-root")
    sys.stdout.flush()
    os.execv(sys.executable, arguments)


def _source() -> Path:
    """The notebooks in the installed package; in a checkout, where they are written."""
    shipped = Path(__file__).parent / "notebooks"
    return shipped if shipped.exists() else Path(__file__).parents[2] / "notebooks"
