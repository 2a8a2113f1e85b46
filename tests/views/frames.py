"""The rows of a step with tables as data frames, which are easier to ask."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ddpviz.views.rows import build_rows
from ddpviz.views.source import StepSource


class Framed:
    """:class:`ddpviz.views.rows.Rows`, whose tables are data frames here."""

    def __init__(self, source: StepSource, open_ranks: list[int] | None = None) -> None:
        self._rows = build_rows(source, open_ranks)
        frames = {name: _frame(table) for name, table in self._rows.tables.items()}
        self.spans, self.ticks, self.marks = (frames[n] for n in ("spans", "ticks", "marks"))
        self.exposed, self.labels = frames["exposed"], frames["labels"]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)


def _frame(columns: dict[str, Any]) -> pd.DataFrame:
    made = pd.DataFrame(columns)
    texts = {name: "str" for name, values in columns.items() if isinstance(values, list)}
    return made.astype(texts | ({"derived": bool} if "derived" in columns else {}))
