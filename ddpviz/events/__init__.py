"""The one vocabulary: what a rank can say about its DDP run, and how it is laid out in bytes.

Two things leave a training process:

* **records**: rows of the fixed-size numpy type :data:`RECORD` (52 bytes), one per event;
* **notes**: small frozen dataclasses for what changes rarely (model, plan, configuration, …).

A :class:`Batch` carries both, with a running number per rank so that a reader sees a gap.
Everything downstream (recording, analysis, views) knows this package and nothing of the probe; it
imports numpy and nothing else.
"""

from __future__ import annotations

from ddpviz.events.batches import Batch
from ddpviz.events.compile_notes import (
    Argument,
    Compiled,
    Graph,
    GraphBreak,
    Part,
    Recompile,
    Split,
)
from ddpviz.events.encoding import Note, note_from_json, note_to_json
from ddpviz.events.notes import (
    Bucket,
    Buffers,
    Configuration,
    DeviceClock,
    Ended,
    Environment,
    Failure,
    Fingerprints,
    Frame,
    Group,
    Label,
    Module,
    Parted,
    Plan,
    Process,
    Projections,
    StackLine,
    Stall,
    StateRead,
    Strides,
    Tensor,
    Unavailable,
    Unused,
    Walk,
)
from ddpviz.events.records import (
    LEVELS,
    NO_GROUP,
    NO_MODULE,
    RECORD,
    RECORD_STRUCT,
    VERSION,
    Cause,
    Clock,
    Flag,
    Kind,
)

__all__ = [
    "Argument",
    "Batch",
    "Bucket",
    "Buffers",
    "Cause",
    "Clock",
    "Compiled",
    "Configuration",
    "DeviceClock",
    "Ended",
    "Environment",
    "Failure",
    "Fingerprints",
    "Flag",
    "Frame",
    "Graph",
    "GraphBreak",
    "Group",
    "Kind",
    "LEVELS",
    "Label",
    "Module",
    "NO_GROUP",
    "NO_MODULE",
    "Note",
    "Part",
    "Parted",
    "Plan",
    "Process",
    "Projections",
    "RECORD",
    "RECORD_STRUCT",
    "Recompile",
    "Split",
    "StackLine",
    "Stall",
    "StateRead",
    "Strides",
    "Tensor",
    "Unavailable",
    "Unused",
    "VERSION",
    "Walk",
    "note_from_json",
    "note_to_json",
]
