"""The tables of the last steps, as rows that those of new steps are joined to."""

from __future__ import annotations

import dataclasses

import numpy as np

from ddpviz.analysis.buffers import buffer_rows, buffers_table, decided_rows
from ddpviz.analysis.calls import calls
from ddpviz.analysis.naming import label_texts
from ddpviz.analysis.source import Source
from ddpviz.analysis.steps import step_rows, steps_table
from ddpviz.analysis.tables import row_type, rows, stacked, table
from ddpviz.events import Cause
from ddpviz.views.live import HISTORY_STEPS, Change, History

_SENT = {
    "step": "int64",
    "rank": "int64",
    "op": "object",
    "dtype": "object",
    "collectives": "int64",
    "bytes": "int64",
}
_SENT_ROW = row_type(_SENT)


@dataclasses.dataclass(frozen=True)
class Tables:
    """The rows of :class:`ddpviz.views.live.History`, each with its step."""

    steps: np.ndarray
    buffers: np.ndarray
    sent: np.ndarray

    def within(self, first: int, last: int) -> Tables:
        """Those of the steps from ``first`` to ``last``."""
        parts = (self.steps, self.buffers, self.sent)
        return Tables(*(p[(p["step"] >= first) & (p["step"] <= last)] for p in parts))

    def joined(self, new: Tables, first: int, last: int) -> Tables:
        """These up to the step before ``first``, then the new ones; of both the last steps."""
        kept = self.within(last - HISTORY_STEPS + 1, first - 1)
        return Tables(
            stacked(kept.steps, new.steps),
            stacked(kept.buffers, new.buffers),
            stacked(kept.sent, new.sent),
        )

    def history(self, changes: tuple[Change, ...] = ()) -> History:
        """As views take them."""
        return History(
            steps_table(self.steps),
            buffers_table(self.buffers),
            table(_SENT, self.sent),
            changes,
        )


def tables_of(source: Source) -> Tables:
    """The rows of all steps of a source."""
    found = calls(source)
    forwards = buffer_rows(source, None, found)
    return Tables(
        step_rows(source, None, found, forwards),
        decided_rows(source, None, forwards),
        _sent_rows(source, found),
    )


def _sent_rows(source: Source, found: np.ndarray) -> np.ndarray:
    """Collectives of buffers by step, rank, op and dtype: how many, and their bytes."""
    found = found[found["cause"] == Cause.BUFFERS]
    texts, position = label_texts(source, found)
    labels, of_text = np.unique(np.array(texts, str), return_inverse=True)
    op, _, dtype = np.array([str(one).partition(" ") for one in labels], object).reshape(-1, 3).T
    # In the order of step, rank and label; steps are from -1 on.
    keys = ((found["step"].astype(np.int64) + 1) << 32) | (found["rank"].astype(np.int64) << 16)
    keys |= of_text[position]
    unique, inverse = np.unique(keys, return_inverse=True)
    return rows(
        _SENT_ROW,
        {
            "step": (unique >> 32) - 1,
            "rank": (unique >> 16) & 0xFFFF,
            "op": op[unique & 0xFFFF],
            "dtype": dtype[unique & 0xFFFF],
            "collectives": np.bincount(inverse, minlength=len(unique)),
            "bytes": np.bincount(inverse, found["bytes"], len(unique)),
        },
    )
