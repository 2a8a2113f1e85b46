"""Puts the tour notebook into a folder and opens JupyterLab at it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

TOUR_NAME = "tour.ipynb"


def place_tour(folder: Path) -> Path:
    """Make sure that ``folder`` has the tour; its path there.

    A tour that is there already is left as it is: its reader may have changed it. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / TOUR_NAME
    if not path.exists():
        shutil.copyfile(_source(), path)
    return path


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
    """The tour in the installed package; in a checkout, where it is written."""
    shipped = Path(__file__).parent / TOUR_NAME
    return shipped if shipped.exists() else Path(__file__).parents[2] / "notebooks" / TOUR_NAME
