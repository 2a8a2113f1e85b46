"""Two runs side by side: medians of a step, of one rank each."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from ddpviz import analysis
from ddpviz.analysis.units import format_bytes
from ddpviz.explain.story.facts import WARM
from ddpviz.explain.story.telling import Story
from ddpviz.recording import Recording

_MEASURES = (
    ("step", "step_ms"),
    ("forward", "forward_ms"),
    ("backward", "backward_ms"),
    ("optimizer", "optimizer_ms"),
    ("hidden communication", "hidden_communication_ms"),
    ("exposed communication", "exposed_communication_ms"),
    ("buckets", "buckets"),
    ("bytes of buckets", "bucket_bytes"),
    ("buffer broadcasts", "buffer_broadcasts"),
)


@dataclasses.dataclass(frozen=True)
class Row:
    """A measure of both; ``difference``: in percent, "" where there is none to give."""

    name: str
    first: str
    second: str
    difference: str


@dataclasses.dataclass(frozen=True)
class Comparison:
    """``first``, ``second``: what each is, in a sentence."""

    first: str
    second: str
    rows: tuple[Row, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        from ddpviz.explain.story import text

        return text.comparison(self)


def compare(
    first: tuple[Story, Recording],
    second: tuple[Story, Recording],
    names: tuple[str, str] = ("", ""),
) -> Comparison:
    """Medians over steps, of the rank each story is of; the first two steps of many left out.
    ``names``: what the runs are called, as their files."""
    ours, theirs = _medians(*first), _medians(*second)
    rows = [
        Row(
            name,
            _shown(column, ours[column]),
            _shown(column, theirs[column]),
            _difference(column, ours[column], theirs[column]),
        )
        for name, column in _MEASURES
    ]
    titles = (first[0].title, second[0].title)
    told = [
        f"{name}: {title}" if name else title for name, title in zip(names, titles, strict=True)
    ]
    return Comparison(told[0], told[1], tuple(rows))


def _medians(story: Story, recording: Recording) -> dict[str, float]:
    table = analysis.steps(recording)
    table = table[table["rank"] == story.rank]
    if len(table) > 2 * WARM:
        table = table.iloc[WARM:]
    return {
        column: float(table[column].median()) if len(table) else math.nan for _, column in _MEASURES
    }


def _shown(column: str, value: float) -> str:
    if math.isnan(value):
        return "-"
    if column == "bucket_bytes":
        return format_bytes(value) if value else "-"
    return f"{value:.1f} ms" if column.endswith("_ms") else f"{value:g}"


def _difference(column: str, first: float, second: float) -> str:
    unknown = column == "bucket_bytes" and not second  # a step that reduces sends some
    if math.isnan(first) or math.isnan(second) or not first or unknown:
        return ""
    return f"{(second - first) / first:+.0%}"
