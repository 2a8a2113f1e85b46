"""Where Dynamo broke off: in DDP's own forward, as always, or in the model's."""

from __future__ import annotations

from collections.abc import Iterable

from ddpviz.events import GraphBreak

_DDP_FILE = "torch/nn/parallel/distributed.py"
_MOST_LETTERS = 200


def of_ddp(note: GraphBreak) -> bool:
    """Whether it was in DDP's own forward, around the model's."""
    in_file = note.file.replace("\\", "/").endswith(_DDP_FILE)
    return in_file or "`DistributedDataParallel." in note.reason


def of_model(notes: Iterable[GraphBreak]) -> tuple[GraphBreak, ...]:
    """The others, each line of code once."""
    others = {(one.file, one.line): one for one in notes if not of_ddp(one)}
    return tuple(others.values())


def told(note: GraphBreak) -> str:
    """Where it was and why, without Dynamo's hints: "a graph break at model.py:12: …"."""
    why = " ".join(note.reason.split())
    why = why.partition(" Explanation: ")[2].partition(" Hint: ")[0] or why
    return f"a graph break at {note.file}:{note.line}: {note.type}: {why[:_MOST_LETTERS]}"
