"""Imports go one way, the probe is light, and ``import ddpviz`` is quick."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "ddpviz"

#: From the bottom up: a part may import itself and those before it.
ORDER = [
    "printable",
    "events",
    "probe",
    "engines",
    "recording",
    "analysis",
    "traces",
    "explain",
    "views",
    "following",
    "export",
    "demonstrations",
    "explorer",
    "lab",
    "cli",
]

#: What composes parts, by name. Session fills a recording as its engines run, is shown by the
#: explorer, and runs demonstrations; a recording's methods are short for functions of analysis,
#: explain, views and export. All import them when called.
ACCEPTED = {
    ("engines", "demonstrations"),
    ("engines", "explorer"),
    ("engines", "recording"),
    ("recording", "analysis"),
    ("recording", "explain"),
    ("recording", "export"),
    ("recording", "views"),
}
#: Modules of the package's root that put parts together; no part may import them.
ROOT = {"__init__", "at_exit", "attachment", "loading", "on_signal"}

SOURCES = sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_parts(path: Path) -> set[str]:
    """Parts of ddpviz that a module imports anywhere, also inside functions and for types."""
    inside = ["ddpviz", *path.relative_to(PACKAGE).with_suffix("").parts[:-1]]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = inside[: len(inside) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            head, _, rest = name.partition(".")
            if head == "ddpviz" and rest:
                found.add(rest.split(".")[0])
    return found & {*ORDER, *ROOT}


def imported_at_once(statement: str) -> set[str]:
    """Top-level names of all modules that a fresh interpreter has after ``statement``."""
    program = (
        f"{statement}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=PACKAGE.parent,
        timeout=120,
    )
    return set(done.stdout.split())


def test_every_part_has_its_place_in_the_order() -> None:
    parts = {part_of(path) for path in SOURCES}
    assert parts - ROOT <= set(ORDER)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_up_the_list_only(path: Path) -> None:
    part = part_of(path)
    if part in ROOT:
        return
    allowed = set(ORDER[: ORDER.index(part) + 1])
    allowed |= {other for importer, other in ACCEPTED if importer == part}
    assert imported_parts(path) <= allowed


def test_probe_imports_torch_and_numpy_only() -> None:
    heavy = {"IPython", "bokeh", "ipykernel", "ipyparallel", "ipywidgets", "jupyter_client"}
    heavy |= {"pandas", "pyarrow", "tornado", "traitlets", "zmq"}
    names = [
        ".".join(("ddpviz", *path.relative_to(PACKAGE).with_suffix("").parts))
        for path in SOURCES
        if part_of(path) in ("events", "probe")
    ]
    everything = "\n".join(f"import {name.removesuffix('.__init__')}" for name in names)
    assert len(names) > 3
    assert imported_at_once(everything) & heavy == set()


def test_attach_needs_nothing_of_jupyter_or_bokeh() -> None:
    heavy = {"IPython", "bokeh", "ipykernel", "ipyparallel", "jupyter_client", "pandas", "zmq"}
    assert imported_at_once("from ddpviz import attach, load") & heavy == set()


def test_import_of_ddpviz_loads_nothing_heavy() -> None:
    heavy = {"bokeh", "ipyparallel", "numpy", "pandas", "pyarrow", "torch"}
    assert imported_at_once("import ddpviz") & heavy == set()


def test_help_of_the_command_loads_nothing_heavy() -> None:
    heavy = {"bokeh", "ipyparallel", "pandas", "pyarrow", "torch"}
    assert imported_at_once("import ddpviz.cli") & heavy == set()


def test_parts_are_there_by_their_names() -> None:
    """As the README has them, in a process that has imported nothing else."""
    program = (
        "import ddpviz\n"
        "assert ddpviz.demonstrations.demonstrations()\n"
        "assert ddpviz.analysis.audit.KINDS and ddpviz.explain.claims()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
