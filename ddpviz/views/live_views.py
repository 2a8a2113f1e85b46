"""The live views by name."""

from __future__ import annotations

from ddpviz.views import buffers, history, live_timeline, overlap, plan
from ddpviz.views.live import LiveView

VIEWS: dict[str, LiveView] = {
    one.VIEW.name: one.VIEW for one in (live_timeline, history, plan, buffers, overlap)
}
