"""Pure functions from a recording to pandas tables, and the finding of a step in one sentence.

May import events, numpy and pandas, and read any :class:`Source`; never the probe, views, Jupyter.
The same recording always gives the same table; nothing here keeps state or writes.
"""

from __future__ import annotations

from ddpviz.analysis.buckets import buckets
from ddpviz.analysis.buffers import buffers
from ddpviz.analysis.collectives import collectives
from ddpviz.analysis.finding import finding
from ddpviz.analysis.overlap import overlap
from ddpviz.analysis.plans import plans
from ddpviz.analysis.source import Source
from ddpviz.analysis.steps import steps
from ddpviz.analysis.units import format_bytes, format_duration

__all__ = [
    "Source",
    "buckets",
    "buffers",
    "collectives",
    "finding",
    "format_bytes",
    "format_duration",
    "overlap",
    "plans",
    "steps",
]
