"""Real recordings of two ranks, with a step whose functions were followed."""

from __future__ import annotations

import pytest

from ddpviz.events import Batch
from ddpviz.recording import Recording
from tests.fidelity import scenarios
from tests.ranks import run_ranks

MODES = ("plain", "python_hook", "static_graph", "find_unused", "join", "no_sync")
#: Of the three steps, the one whose functions were followed.
WALKED = 1


def record(rank: int, world_size: int) -> dict[str, list[bytes]]:
    from ddpviz.probe import Recorder

    found: dict[str, list[bytes]] = {}
    for mode in MODES:
        batches: list[Batch] = []
        recorder = Recorder(sinks=[batches.append]).install()
        modules = scenarios.build(mode)
        scenarios.train(mode, rank, modules, 1)
        recorder.walk_next_step()
        scenarios.train(mode, rank, modules, 2, first=1)
        recorder.close()
        found[mode] = [batch.to_bytes() for batch in batches]
    return found


@pytest.fixture(scope="session")
def recordings() -> dict[str, Recording]:
    """By mode of ``scenarios``."""
    ranks = run_ranks(record, 2)
    found = {}
    for mode in MODES:
        recording = found[mode] = Recording()
        for rank in ranks:
            for data in rank[mode]:
                recording.append(Batch.from_bytes(data))
    return found
