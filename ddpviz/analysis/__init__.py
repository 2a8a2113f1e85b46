"""Pure functions from a recording to pandas tables, and the finding of a step in one sentence.

May import events, numpy and pandas, and read any :class:`Source`; never the probe, views, Jupyter.
The same recording always gives the same table; nothing here keeps state or writes.
"""

from __future__ import annotations

from ddpviz.analysis import audit
from ddpviz.analysis.buckets import buckets
from ddpviz.analysis.buffer_dtypes import buffer_dtypes
from ddpviz.analysis.buffer_values import buffer_values
from ddpviz.analysis.buffers import buffers
from ddpviz.analysis.collectives import collectives
from ddpviz.analysis.compare import Comparison, comparison
from ddpviz.analysis.compile_table import compile_table
from ddpviz.analysis.construction_parts import construction
from ddpviz.analysis.countdown import countdown
from ddpviz.analysis.finalizes import finalize
from ddpviz.analysis.finding import finding
from ddpviz.analysis.forward_graph import forward_graph
from ddpviz.analysis.graphs import borders, graphs
from ddpviz.analysis.overlap import overlap
from ddpviz.analysis.plan_reasons import plan_reasons
from ddpviz.analysis.plans import plans
from ddpviz.analysis.replicas import replicas
from ddpviz.analysis.source import Source
from ddpviz.analysis.steps import steps
from ddpviz.analysis.units import format_bytes, format_duration
from ddpviz.analysis.waiting import Waiting, waiting

__all__ = [
    "Comparison",
    "Source",
    "Waiting",
    "audit",
    "borders",
    "buckets",
    "buffer_dtypes",
    "buffer_values",
    "buffers",
    "collectives",
    "comparison",
    "compile_table",
    "construction",
    "countdown",
    "finalize",
    "finding",
    "format_bytes",
    "format_duration",
    "forward_graph",
    "graphs",
    "overlap",
    "plan_reasons",
    "plans",
    "replicas",
    "steps",
    "waiting",
]
