"""The live views by name."""

from __future__ import annotations

from ddpviz.views import (
    buffers,
    compile,
    construction,
    countdown,
    finalize,
    forward_graph,
    history,
    live_timeline,
    overlap,
    plan,
    replicas,
)
from ddpviz.views.live import LiveView

VIEWS: dict[str, LiveView] = {
    one.VIEW.name: one.VIEW
    for one in (
        live_timeline,
        history,
        construction,
        plan,
        countdown,
        buffers,
        finalize,
        overlap,
        forward_graph,
        compile,
        replicas,
    )
}
