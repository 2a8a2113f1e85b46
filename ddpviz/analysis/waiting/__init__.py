"""What everyone is waiting for: who is in which collective, who has not entered it, and where.

Read from what is open at the end of what was recorded, so it is the same for a job that runs and
for one that was killed. Lines come from the stall watch of each rank. Imports as all of analysis.
"""

from __future__ import annotations

import numpy as np

from ddpviz.analysis.source import Source
from ddpviz.analysis.waiting.rows import NOBODY, RankWaiting, Waiting
from ddpviz.analysis.waiting.scene import Scene
from ddpviz.analysis.waiting.telling import sentence, told

__all__ = ["NOBODY", "RankWaiting", "Waiting", "told", "waiting"]


def waiting(source: Source, now_ns: int = 0) -> Waiting:
    """The collective that holds the job up, at the end of what was recorded.

    Of all that some rank is in and has not left, the one that was launched first among those that
    not every rank of the group has entered; else the first of all. ``now_ns``: for how long it has
    lasted is until then; 0 for until the last that was heard of any rank.
    """
    scene = Scene(source, now_ns)
    found = scene.calls
    still = found[(found["end_ns"] == 0) & ~np.isin(found["rank"], scene.failed)]
    if not len(still):
        return NOBODY
    hung = [scene.beside(call) for call in still[np.argsort(still["begin_ns"], kind="stable")]]
    held = next((rows for rows in hung if any(one.state != "in it" for one in rows)), hung[0])
    return Waiting(sentence(held, until_last=not now_ns), held)
