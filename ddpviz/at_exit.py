"""What a job that ends is told: findings, once all its ranks have written what they recorded."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ddpviz.events import Unavailable
from ddpviz.printable import printable
from ddpviz.recording import Recording, load
from ddpviz.recording.files import notes_path, ranks_in

if TYPE_CHECKING:
    from ddpviz.analysis.audit import Finding

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
    """Print on stderr what the audit finds, or why it was not done; nothing for a healthy run.
    What goes wrong in here is no failure of the job: its exit is its own."""
    try:
        deadline = time.monotonic() + _PATIENCE_S
        why = _awaited(out, world_size, deadline)
        if not why or _says(out, 0, "failure"):
            _tell(_audit_of(out, deadline), f"`ddpviz audit {out}` says how to mend it")
        else:
            _say(f"not audited at this exit: {why}; `ddpviz audit {out}` does it then")
    except Exception as error:
        _say(f"the run was not audited ({type(error).__name__}: {error})")


def tell_alone(recording: Recording, world_size: int) -> None:
    """The same of a rank whose records are in its memory alone: of its newest steps."""
    from ddpviz.analysis.audit import audit
    from ddpviz.following.auditing import Recent

    try:
        how = "attach with out=, and `ddpviz audit` says how to mend it"
        if world_size > 1:
            how = (
                "of this rank alone: attach every rank with the same out=, and `ddpviz audit` "
                "compares them"
            )
        _tell(audit(Recent(recording)), how)
    except Exception as error:
        _say(f"the run was not audited ({type(error).__name__}: {error})")


def _say(text: str) -> None:
    """One line on stderr."""
    print(f"ddpviz: {text}", file=sys.stderr)


def _awaited(out: Path, world_size: int, deadline: float) -> str:
    """Why not every rank is known to have ended, "" where each has; waits a little, but not for
    ranks that have another folder."""
    while True:
        ranks = ranks_in(out)
        if len(ranks) < world_size:
            return f"it has {len(ranks)} of {world_size} ranks, the others' files are elsewhere"
        going = [str(rank) for rank in ranks if not _says(out, rank, "ended")]
        if not going:
            return ""
        if time.monotonic() > deadline:
            named = ", ".join(going[:_MOST_FINDINGS])
            more = f" and {len(going) - _MOST_FINDINGS} more" if len(going) > _MOST_FINDINGS else ""
            return f"rank{'s' if len(going) > 1 else ''} {named}{more} had not ended"
        time.sleep(0.05)


def _says(out: Path, rank: int, note: str) -> bool:
    """Whether such a note is among a rank's last."""
    path = notes_path(out, rank)
    if not path.exists():
        return False
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
        return f'"note": "{note}"'.encode() in file.read()


def _audit_of(out: Path, deadline: float) -> tuple[Finding, ...]:
    """Of what is there now; again where a rank is just writing the last of it."""
    from ddpviz.analysis.audit import audit

    before: tuple[str, ...] | None = None
    while True:
        recording = load(out, bound=_ENOUGH_RECORDS)
        lost = any(note.what in ("records", "notes") for note in recording.notes(Unavailable))
        if not lost or recording.remarks == before or time.monotonic() > deadline:
            break
        before = recording.remarks
        time.sleep(0.3)
    found = audit(recording)
    if found and recording.dropped:
        _say(f"of this run's newest {_ENOUGH_RECORDS} records:")
    return found


def _tell(found: tuple[Finding, ...], how: str) -> None:
    for one in found[:_MOST_FINDINGS]:
        since = f"since step {one.since_step}" if one.since_step >= 0 else "before the first step"
        what = one.what if len(one.what) <= _LONGEST else f"{one.what[:_LONGEST]}…"
        text = " ".join(printable(what).split())
        _say(f"{one.severity.text}, {since}: {text}")
    if found:
        count = "1 finding" if len(found) == 1 else f"{len(found)} findings"
        _say(f"{count}; {how}")
