"""What a test looks up in a session's recording: the steps since it began."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpviz.engines import Session
from ddpviz.events import Cause, Kind


def since(session: Session, step: int, **what: Any) -> np.ndarray:
    """Records of the steps after this one."""
    found = session.recording.records(**what)
    return found[found["step"] > step]


def buckets(session: Session, step: int) -> np.ndarray:
    """Launches of buckets on rank 0 in the steps after this one."""
    launched = since(session, step, kinds=Kind.COLLECTIVE_LAUNCHED, ranks=0)
    return launched[launched["cause"] == Cause.BUCKET]
