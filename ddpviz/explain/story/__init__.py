"""What profiler traces tell of DDP: what costs most, what is not wrong, and the tree of frames.

Made from :func:`ddpviz.traces.read`; imports no torch, Bokeh or anything of Jupyter.
"""

from __future__ import annotations

from ddpviz.explain.story.comparison import Comparison, compare
from ddpviz.explain.story.telling import Story, tell, traces

__all__ = ["Comparison", "Story", "compare", "tell", "traces"]
