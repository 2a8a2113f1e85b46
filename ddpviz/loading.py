"""``ddpviz.load``: a recording's directory, or traces that someone hands over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ddpviz.recording import Recording
from ddpviz.recording import load as load_recording
from ddpviz.recording.recording import DEFAULT_BOUND


def load(
    path: str | Path | Sequence[str | Path],
    bound: int = DEFAULT_BOUND,
    rank: int | None = None,
) -> Recording:
    """Reads what ranks recorded, or their profiler traces.

    ``path``: a recording's directory, also while it is being written or after a crash; a trace
    (Chrome or Kineto JSON, plain, .gz or .zst), a directory of traces, or a list of them; a dump
    of the flight recorder. Of a recording with more than ``bound`` records the latest stay.
    ``rank``: of a single trace that doesn't say. Traces of several ranks are put on one clock;
    what was concluded from them has the flag INFERRED, and ``remarks`` say from what.
    Raises FileNotFoundError, NotADirectoryError or ValueError for what is neither.
    """
    from ddpviz import traces

    whole = isinstance(rank, int) and not isinstance(rank, bool)
    if rank is not None and not (whole and 0 <= rank <= traces.MOST_RANKS):
        raise ValueError(f"found rank={rank!r}, expected a number from 0 to {traces.MOST_RANKS}")
    if isinstance(path, (str, Path)) and not traces.is_trace(Path(path)):
        if rank is not None and Path(path).is_dir():
            raise ValueError(
                f"found rank={rank} with {path}, expected it with a single trace that does not say "
                "its rank: leave it out"
            )
        return load_recording(path, bound)
    return traces.read(path, rank).recording
