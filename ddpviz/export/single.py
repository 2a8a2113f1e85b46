"""One view of one step as a Bokeh figure that stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from bokeh.models import LayoutDOM

from ddpviz.analysis.constructions import constructions
from ddpviz.analysis.tables import no_step
from ddpviz.events import Kind
from ddpviz.export.compared import bars
from ddpviz.export.reading import readable
from ddpviz.following.whole import still
from ddpviz.views.follow import colour_plot
from ddpviz.views.live import show
from ddpviz.views.live_views import VIEWS
from ddpviz.views.palette import AUTO
from ddpviz.views.text import count
from ddpviz.views.timeline import timeline

if TYPE_CHECKING:
    from ddpviz.recording import Recording

_WIDTH_PX = 960
#: What was compared last: of no step.
COMPARISON = "comparison"


def single(
    recording: Recording,
    view: str,
    step: int | None = None,
    *,
    theme: str = AUTO,
    width_px: int = _WIDTH_PX,
) -> LayoutDOM:
    """A view of a recording, as the explorer has it: of one step, or of the newest.

    ``view``: a name of :data:`ddpviz.views.live_views.VIEWS`, or :data:`COMPARISON`. ``theme``: as
    for :func:`ddpviz.views.timeline.timeline`. ``width_px``: that its texts are to fit. Steps -1,
    -2, … are the constructions of DDP modules. Raises ValueError for an unknown view, step or
    theme, and for a recording without steps or without a comparison.
    """
    if view == COMPARISON:
        if recording.compared is None:
            raise ValueError(
                "found no comparison in the recording, expected one that session.compare() made"
            )
        return bars(recording.compared, theme, titled=True)
    if view not in VIEWS:
        names = ", ".join((*VIEWS, COMPARISON))
        raise ValueError(f"found the view {view!r}, expected one of {names}")
    if step is not None and not isinstance(step, (int, np.integer)):
        raise ValueError(f"found the step {step!r}, expected its number, or None for the newest")
    if step is not None and step < 0:
        built = len(constructions(recording))
        if -step > built:
            known = np.unique(recording.records()["step"])
            raise ValueError(no_step(int(step), known[known >= 0].tolist(), built))
    moment = still(
        recording, step, "nothing was recorded yet: train a step first", width_px, [VIEWS[view]]
    )
    if moment.step is None:
        forwards = len(recording.records(kinds=Kind.FORWARD))
        if step is None and forwards:
            many = count(forwards, "forward")
            raise ValueError(
                f"found no step with a backward in the recording, only {many} outside of any, "
                "which recording.buffers() has: train a step"
            )
        raise ValueError(moment.hint)
    if view == "timeline":
        # A live one has its legend from the browser, which is told of each step there.
        return timeline(recording, moment.step, theme=theme)
    drawn = VIEWS[view].draw()
    picture = VIEWS[view].picture(moment)
    show(drawn, picture)
    colour_plot(drawn.plot, drawn.themed, theme)
    return readable(view, drawn, [picture], recording, drawn.plot)
