"""What ``demo`` and ``show`` print: a recording's steps and plans, for eyes or for a script."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpviz.analysis import plans, steps, waiting
from ddpviz.analysis.plans import without_plan
from ddpviz.analysis.waiting import told
from ddpviz.cli import text
from ddpviz.cli.output import say
from ddpviz.events import Process

if TYPE_CHECKING:
    import pandas as pd

    from ddpviz.recording import Recording


def write(recording: Recording, directory: Path, page: Path | None, *, as_json: bool) -> None:
    """Print it on stdout. ``page``: where the timeline page is, if there is one."""
    ranks = recording.ranks
    if not ranks:
        steps_table, plans_table = None, None
    else:
        steps_table, plans_table = steps(recording), plans(recording, rank=ranks[0])
    if as_json:
        found = {
            "recording": str(directory),
            "page": None if page is None else str(page),
            "ranks": ranks,
            "remarks": [*recording.remarks, *_missing(recording)],
            "waiting": _waiting(recording),
            "steps": _rows(steps_table),
            "plans": _rows(plans_table),
            "comparison": _compared(recording),
        }
        print(json.dumps(found, indent=1))
        return
    if hung := told(waiting(recording)):
        say(f"When recording ended, {hung}\n")
    if steps_table is None or plans_table is None:
        say("No rank recorded anything.")
    else:
        say(f"{text.steps(steps_table)}\n")
        say(f"{without_plan(recording) if plans_table.empty else text.plans(plans_table)}\n")
        if (comparison := recording.compared) is not None:
            say(f"{text.compared(comparison)}\n")
    for remark in (*recording.remarks, *_missing(recording)):
        say(f"note       {remark}")
    say(f"recording  {directory}")
    if page is not None:
        say(f"page       {page}")


def _missing(recording: Recording) -> list[str]:
    """That there are ranks of which nothing is here."""
    world = max((note.world_size for note in recording.notes(Process)), default=0)
    ranks = ", ".join(map(str, recording.ranks))
    if not 0 < len(recording.ranks) < world:
        return []
    one = "rank" if len(recording.ranks) == 1 else "ranks"
    return [f"of {world} ranks only {one} {ranks} recorded here: nothing is told of the others"]


def _waiting(recording: Recording) -> dict[str, Any] | None:
    """What everyone waited for when recording ended, None for nothing."""
    found = waiting(recording)
    return {"reason": found.reason, "ranks": _rows(found.table())} if found.ranks else None


def _compared(recording: Recording) -> dict[str, Any] | None:
    """What :meth:`ddpviz.Session.compare` found last, None for nothing."""
    found = recording.compared
    return found and {"verdict": found.verdict, "rows": _rows(found.table)}


def _rows(table: pd.DataFrame | None) -> list[dict[str, Any]]:
    """Rows as JSON has them: numpy's numbers as plain ones, what is not known as null."""
    if table is None:
        return []
    return [
        {str(name): _plain(value) for name, value in row.items()}
        for row in table.to_dict("records")
    ]


def _plain(value: Any) -> Any:
    import pandas as pd

    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return None
    return value.item() if hasattr(value, "item") else value
