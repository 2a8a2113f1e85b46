"""Which step stands for a recording, and which ranks for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from ddpviz.events import Failure, Process
from ddpviz.views.text import count

if TYPE_CHECKING:
    from ddpviz.recording import Recording

#: That are told apart in the height of a slide.
_MOST_LANES = 44


def step(recording: Recording, table: pd.DataFrame) -> tuple[int | None, str]:
    """The step of median length (of the slowest rank), and why it is that one.

    None where none was completed, or a rank failed: what matters then is another step. ``table``:
    :func:`ddpviz.analysis.steps`.
    """
    if recording.notes(Failure):
        return None, "where a rank failed"
    lengths = table.groupby("step")["step_ms"].agg(lambda ms: ms.max(skipna=False)).dropna()
    if lengths.empty:
        return None, ""
    middle = int(lengths.sort_values(kind="stable").index[len(lengths) // 2])
    return middle, f"the median of {count(len(lengths), 'step')}"


def torch_of(recording: Recording) -> str:
    """Its version, or versions."""
    return ", ".join(dict.fromkeys(note.torch for note in recording.notes(Process) if note.torch))


def inferred(recording: Recording) -> bool:
    """Whether it comes from traces, so that what DDP did was concluded from them."""
    return any(note.level == "trace" for note in recording.notes(Process))


def open_ranks(table: pd.DataFrame, step: int | None) -> list[int] | None:
    """Ranks whose buckets a slide has lanes for; None where it has for all.

    Else the slowest and the fastest of the step, or where that is too much the slowest alone.
    """
    rows = table[table["step"] == (table["step"].max() if step is None else step)]
    if len(rows) < 2 or (rows["buckets"] + 1).sum() <= _MOST_LANES:
        return None
    ordered = rows.sort_values("step_ms", kind="stable")
    ends = ordered.iloc[[-1, 0]]
    shown = ends if (ends["buckets"] + 1).sum() <= _MOST_LANES else ends.iloc[:1]
    return sorted(shown["rank"].tolist())
