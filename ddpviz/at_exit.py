"""What a job that ends is told: findings, once all its ranks have written what they recorded."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from ddpviz.printable import printable
from ddpviz.recording import load
from ddpviz.recording.files import notes_path, ranks_in

#: How long rank 0 waits at its exit for the others to end.
_PATIENCE_S = 3.0
#: The newest records; of a longer run not all is read at its exit.
_ENOUGH_RECORDS = 500_000
_MOST_FINDINGS = 5
#: Characters of one; the audit has all.
_LONGEST = 500
#: The last notes lie in so many, with a failure's traceback.
_TAIL_BYTES = 65_536


def tell_findings(out: Path, world_size: int) -> None:
    """Print on stderr what the audit finds; nothing for a healthy run, and none of what goes wrong
    in here: a job's exit is its own."""
    try:
        if _all_ended(out, world_size) or _says(out, 0, "failure"):
            _tell(out)
    except Exception as error:
        print(f"ddpviz: the run was not audited ({type(error).__name__}: {error})", file=sys.stderr)


def _all_ended(out: Path, world_size: int) -> bool:
    """Whether every rank has; waits a little, but not for ranks that have another folder."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        ranks = ranks_in(out)
        if len(ranks) < world_size or time.monotonic() > deadline:
            return False
        if all(_says(out, rank, "ended") for rank in ranks):
            return True
        time.sleep(0.05)


def _says(out: Path, rank: int, note: str) -> bool:
    """Whether such a note is among a rank's last."""
    path = notes_path(out, rank)
    if not path.exists():
        return False
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
        return f'"note": "{note}"'.encode() in file.read()


def _tell(out: Path) -> None:
    from ddpviz.analysis.audit import audit

    found = audit(load(out, bound=_ENOUGH_RECORDS))
    for one in found[:_MOST_FINDINGS]:
        since = f"since step {one.since_step}" if one.since_step >= 0 else "before the first step"
        what = one.what if len(one.what) <= _LONGEST else f"{one.what[:_LONGEST]}…"
        text = " ".join(printable(what).split())
        print(f"ddpviz: {one.severity.text}, {since}: {text}", file=sys.stderr)
    if found:
        count = "1 finding" if len(found) == 1 else f"{len(found)} findings"
        print(f"ddpviz: {count}; `ddpviz audit {out}` says how to mend it", file=sys.stderr)
