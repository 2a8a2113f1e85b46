"""Reads the package's TOML, and says which file and which entry is wrong where one is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read(name: str) -> dict[str, Any]:
    """A file of ``data/``, by its name without the ending."""
    found = resources.files("ddpviz.explain") / "data" / f"{name}.toml"
    return tomllib.loads(found.read_text(encoding="utf-8"))


def check(where: str, item: Mapping[str, Any], needed: Iterable[str], known: Iterable[str]) -> None:
    """Raises ValueError where a text is missing or empty, or a key is not known."""
    missing = [key for key in needed if not item.get(key)]
    if missing:
        raise ValueError(f"found no {', '.join(missing)} in {where}, expected a text for each")
    unknown = set(item) - set(known)
    if unknown:
        raise ValueError(f"found {', '.join(sorted(unknown))} in {where}, which nothing reads")
