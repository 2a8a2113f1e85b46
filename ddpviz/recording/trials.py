"""What a comparison ran, in turns: which steps were whose. A small side table of a recording."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddpviz.events import VERSION

FILE = "comparison.json"
_FORMAT = "ddpviz comparison"


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run of one configuration. ``first``, ``last``: steps by the recording's count, of which
    those before ``measured`` warm up. ``difference``: of the first step's gradients (and the
    third's, of PowerSGD) against those of "eager", else of the first configuration, the norm of it
    as a part of their norm; NaN where not compared.
    ``memory_bytes``: the most of any rank. ``refused``: why it could not be run, "" where it was.
    """

    name: str
    round: int
    first: int
    measured: int
    last: int
    difference: float
    memory_bytes: int
    refused: str = ""


_FIELDS = dataclasses.fields(Trial)
_TYPES = {"str": str, "int": int, "float": float}


def write_trials(directory: Path, trials: Sequence[Trial]) -> None:
    """Whole or not at all, in place of what an earlier comparison left. Raises OSError."""
    rows = [dataclasses.asdict(trial) for trial in trials]
    for row in rows:
        row["difference"] = None if math.isnan(row["difference"]) else row["difference"]
    draft = directory / f".{FILE}.{os.getpid()}"
    draft.write_text(json.dumps({"format": _FORMAT, "version": VERSION, "trials": rows}) + "\n")
    os.replace(draft, directory / FILE)


def read_trials(directory: Path, remarks: list[str]) -> tuple[Trial, ...]:
    """The trials of a recording's last comparison, none where there was none. ``remarks`` receives
    a sentence where the file is not what :func:`write_trials` leaves."""
    try:
        held: Any = json.loads((directory / FILE).read_bytes())
        if held["format"] != _FORMAT or held["version"] > VERSION:
            raise ValueError
        return tuple(_trial(row) for row in held["trials"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        remarks.append(f"{FILE} is damaged or of a later version: what was compared is left out")
        return ()


def _trial(row: dict[str, Any]) -> Trial:
    """Raises ValueError for a row that holds anything else."""
    difference = math.nan if row["difference"] is None else float(row["difference"])
    trial = Trial(**{**row, "difference": difference})
    for field in _FIELDS:
        value = getattr(trial, field.name)
        if type(value) is not _TYPES[str(field.type)] or (
            isinstance(value, int) and not -1 <= value < 2**63
        ):
            raise ValueError
    return trial
