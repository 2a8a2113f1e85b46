"""What a step did, in words: stations of a recording, with torch's own lines and links to them.

The knowledge lies in ``data/*.toml``, keyed by (file, function) and by the names of a profile's
rows, never by line. Nothing here imports torch, Bokeh or anything of Jupyter.
"""

from __future__ import annotations

from ddpviz.explain.knowledge import Entry, entry, operation
from ddpviz.explain.lines import Source, installed, source
from ddpviz.explain.register import Claim, claims
from ddpviz.explain.station import Station, Walk
from ddpviz.explain.story import traces
from ddpviz.explain.walking import walk

__all__ = [
    "Claim",
    "Entry",
    "Source",
    "Station",
    "Walk",
    "claims",
    "entry",
    "installed",
    "operation",
    "source",
    "traces",
    "walk",
]
