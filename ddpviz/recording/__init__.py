"""The store: what ranks say, appended, found by time, written to disk and read back.

Knows ``ddpviz.events`` and the file format of ``ddpviz.probe.ring``; imports no torch, pandas,
Bokeh, ipyparallel or Jupyter. Analysis and views are imported only inside the methods named so.
"""

from __future__ import annotations

from ddpviz.recording.attachments import UNNUMBERED
from ddpviz.recording.files import ring_path
from ddpviz.recording.recording import Recording, load
from ddpviz.recording.writing import RankWriter

__all__ = ["UNNUMBERED", "RankWriter", "Recording", "load", "ring_path"]
