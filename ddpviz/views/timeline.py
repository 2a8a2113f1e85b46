"""The timeline: per rank a compute lane and a lane for every bucket, one figure per step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bokeh.models import LayoutDOM

from ddpviz.views.figure import step_figure
from ddpviz.views.follow import colour
from ddpviz.views.rows import build_rows
from ddpviz.views.selector import selectable
from ddpviz.views.source import read_run

if TYPE_CHECKING:
    from ddpviz.recording import Recording


def timeline(
    recording: Recording,
    step: int | None = None,
    *,
    theme: str = "auto",
    open_ranks: list[int] | None = None,
) -> LayoutDOM:
    """The timeline of a recording: of one step, or with a selector of steps if ``step`` is None.

    ``theme``: "light", "dark", or "auto": as the page that it is shown in, JupyterLab or another,
    also when that changes. ``open_ranks``: which ranks show their buckets; by default all up
    to 8, beyond that the slowest, the fastest and the median. Steps -1, -2, … are the constructions
    of DDP modules. Raises ValueError for an unknown step or theme and for a recording without
    steps.
    """
    if step is None:
        selected = selectable(recording, open_ranks)
        colour(selected.drawn, theme)
        return selected.layout
    drawn = step_figure(build_rows(read_run(recording).source(step), open_ranks))
    colour(drawn, theme)
    return drawn.plot
