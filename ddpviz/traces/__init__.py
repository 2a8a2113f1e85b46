"""Other tools' files: profiler traces and flight recorder dumps, read into a recording; a writer.

May import events, recording and analysis; never views, explain or anything of Jupyter, and no
torch: a trace is read where no job ever ran.
"""

from __future__ import annotations

from ddpviz.traces.errors import MOST_RANKS, NoRank, TraceError
from ddpviz.traces.importing import Imported, read
from ddpviz.traces.opening import is_trace

__all__ = ["MOST_RANKS", "Imported", "NoRank", "TraceError", "is_trace", "read"]
