"""torch's own lines, as installed here, and links to them. Imports no torch."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib.util
import linecache
import re
from collections.abc import Iterator
from pathlib import Path

#: The commit that the article's line numbers are of.
ARTICLE_COMMIT = "9b980e3f"
_REPOSITORY = "https://github.com/pytorch/pytorch/blob"


@dataclasses.dataclass(frozen=True)
class Installed:
    """The torch of this Python. ``git``: its revision, "" where it doesn't say."""

    folder: Path
    version: str
    git: str


@dataclasses.dataclass(frozen=True)
class Source:
    """A function of the installed torch. ``lines``: (number, text), without its docstring."""

    file: str
    function: str
    first_line: int
    last_line: int
    lines: tuple[tuple[int, str], ...]

    @property
    def link(self) -> str:
        """Where these lines are on the web; "" where torch doesn't say its revision."""
        return link(self.file, self.first_line, self.last_line)


@functools.cache
def installed() -> Installed:
    """What is installed here. Raises ModuleNotFoundError where there is no torch."""
    found = importlib.util.find_spec("torch")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("found no torch here, expected the one that ddpviz needs")
    folder = Path(found.submodule_search_locations[0])
    try:
        said = (folder / "version.py").read_text(encoding="utf-8")
    except OSError:
        said = ""
    values = dict(re.findall(r"^(__version__|git_version)\s*=\s*['\"]([^'\"]*)", said, re.M))
    return Installed(folder, values.get("__version__", ""), values.get("git_version", ""))


def source(file: str, function: str, line: int = 0) -> Source | None:
    """The lines of a function in the installed torch; None where it hasn't got it.

    ``file``: from "torch/" on. ``function``: with its class; without one, ``line`` (any of its
    lines) tells several of that name apart.
    """
    at = _find(file, function, line)
    if at is None:
        return None
    path = str(_path(file))
    numbers = [
        number
        for number in range(at.first_line, at.last_line + 1)
        if not at.docstring[0] <= number <= at.docstring[1]
    ]
    lines = tuple((number, linecache.getline(path, number).rstrip()) for number in numbers)
    return Source(file, at.function, at.first_line, at.last_line, lines)


def line_of(file: str, number: int) -> str:
    """One line of the installed torch, without its indent; "" where there is none."""
    return linecache.getline(str(_path(file)), number).strip() if number > 0 else ""


def link(file: str, first_line: int, last_line: int = 0) -> str:
    """Lines of a file at the installed torch's revision."""
    git = installed().git
    if not git or not file:
        return ""
    end = f"-L{last_line}" if last_line > first_line else ""
    return f"{_REPOSITORY}/{git}/{file}#L{first_line}{end}"


def article_link(file: str, line: int | None) -> str:
    """A line of a file at the article's commit, or the file where the line is not known."""
    return f"{_REPOSITORY}/{ARTICLE_COMMIT}/{file}{'' if line is None else f'#L{line}'}"


# --- functions of a file -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _At:
    function: str
    first_line: int
    last_line: int
    docstring: tuple[int, int]


def _find(file: str, function: str, line: int) -> _At | None:
    known = _functions(file)
    exact = [at for at in known if at.function == function]
    named = exact or [at for at in known if at.function.rpartition(".")[2] == function]
    around = [at for at in named if at.first_line <= line <= at.last_line]
    if around:
        return max(around, key=lambda at: at.first_line)
    return named[0] if len(named) == 1 or exact else None


@functools.cache
def _functions(file: str) -> tuple[_At, ...]:
    """Functions and classes of a file with their qualified names, as Python makes them."""
    try:
        text = _path(file).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ()
    return tuple(_below(ast.parse(text), ""))


def _below(node: ast.AST, outer: str) -> Iterator[_At]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = outer + child.name
            first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
            yield _At(name, first, child.end_lineno or first, _docstring(child))
            inner = "." if isinstance(child, ast.ClassDef) else ".<locals>."
            yield from _below(child, name + inner)
        else:
            yield from _below(child, outer)


def _docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> tuple[int, int]:
    first = node.body[0]
    if ast.get_docstring(node) is None or len(node.body) == 1:
        return 0, -1
    return first.lineno, first.end_lineno or first.lineno


def _path(file: str) -> Path:
    return installed().folder / file.removeprefix("torch/")


def qualified(file: str, function: str, line: int) -> str:
    """A function's name with its class, where Python (before 3.11) gave it without."""
    if "." in function or not file:
        return function
    at = _find(file, function, line)
    return function if at is None else at.function
