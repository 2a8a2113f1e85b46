"""The view that matters at the step that matters, as a static figure, from an excerpt."""

from __future__ import annotations

from typing import Any, cast

from ddpviz.demonstrations.excerpt import Excerpt
from ddpviz.following.tables import tables_of
from ddpviz.views.follow import colour_plot
from ddpviz.views.live import LiveView, Moment, Picture, show
from ddpviz.views.live_views import VIEWS
from ddpviz.views.palette import AUTO
from ddpviz.views.timeline import timeline

_WIDTH_PX = 960


def view_named(name: str) -> LiveView:
    """The view of that name; the timeline where there is none."""
    return VIEWS.get(name, VIEWS["timeline"])


def picture(excerpt: Excerpt, view: str, step: int) -> Picture:
    """What a view shows of a step by the recording's count; -1: of the construction."""
    outside = excerpt.of(-1)
    moment = Moment(
        source=outside if step < 0 else excerpt.of(step),
        step=step,
        history=tables_of(excerpt).within(excerpt.first, excerpt.last).history(),
        width_px=_WIDTH_PX,
        outside=lambda: outside,
    )
    return view_named(view).picture(moment)


def figure(excerpt: Excerpt, view: str, shown: Picture) -> Any:
    """A Bokeh figure of a picture, in the colours of the page around it."""
    live = view_named(view)
    if live.name == "timeline":
        # A live one has its legend from the browser, which is told of each step there.
        return timeline(cast(Any, excerpt), step=shown.step, theme=AUTO)
    drawn = live.draw()
    show(drawn, shown)
    colour_plot(drawn.plot, drawn.themed, AUTO)
    return drawn.plot
