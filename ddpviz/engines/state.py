"""What an engine holds for its rank, and the sink that sends the rank's batches to the client.

Runs inside an engine; imports ipyparallel only where a batch is published.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddpviz.engines.compiled import Compile
from ddpviz.engines.ranks import Placement

#: What is recorded leaves a rank after so long; where somebody watches, so that they see it move.
FLUSH_SECONDS = 0.25
#: Somebody looks on, and is told where a rank is that others wait for.
STALL_SECONDS = 2.0
LIVE_FLUSH_SECONDS = 0.1
#: Batches kept to be sent again: at 10 a second, more than a minute of a chunk.
_KEPT_BATCHES = 1024


class Outbox:
    """A sink that publishes each batch on the engine's own connection, and keeps the last ones."""

    def __init__(self) -> None:
        #: Batches published so far.
        self.sent = 0
        self._kept: collections.deque[tuple[int, bytes]] = collections.deque(maxlen=_KEPT_BATCHES)

    def __call__(self, batch: Any) -> None:
        from ipyparallel.engine.datapub import publish_data

        data = batch.to_bytes()
        self._kept.append((batch.sequence, data))
        self.sent = batch.sequence + 1
        publish_data({"ddpviz": data})

    def again(self, sequences: list[int]) -> list[bytes]:
        """Packed batches by number, as far as they are still kept."""
        wanted = set(sequences)
        return [data for sequence, data in list(self._kept) if sequence in wanted]


@dataclasses.dataclass
class RankState:
    """Everything of this engine's rank. ``step``: the one it is in, -1 outside any."""

    placement: Placement
    seed: int
    directory: Path
    recorder: Any
    store: Any
    stack_file: Any
    model: Any = None
    batch: Callable[[int], Any] | None = None
    loss: Callable[[Any, Any], Any] | None = None
    ddp: Any = None
    #: What a step calls: ``ddp``, or what it was compiled to; and how that was.
    call: Any = None
    compile: Compile = dataclasses.field(default_factory=Compile)
    backward_compiler: Any = None
    optimizer: Any = None
    step: int = -1
    next_step: int = 0
    next_batch: int = 0
    #: ``Settings.pace``, and when the next step is due by ``time.monotonic``.
    pace: dict[str, Any] = dataclasses.field(default_factory=dict)
    due: float = 0.0
    #: BatchNorm layers whose places SyncBatchNorm has, see ``wrapping``.
    replaced: list[Any] = dataclasses.field(default_factory=list)
    #: Where code of the user's runs, see ``cells``.
    namespace: Any = None

    def watch(self, live: bool) -> None:
        """Whether somebody watches: what is recorded then leaves more often."""
        self.recorder.flush_interval_s = LIVE_FLUSH_SECONDS if live else FLUSH_SECONDS
