"""Which of several ranks failed by itself, and which only because another one was gone."""

from __future__ import annotations

from ddpviz.events import Failure

#: Of the error that a rank gets because another one is gone.
_PEER_GONE = ("connection closed", "connection reset", "broken pipe", "timed out", "socket")


def on_its_own(failure: Failure) -> bool:
    """Whether a failure is not that of a rank that lost another one."""
    message = failure.message.lower()
    return not any(said in message for said in _PEER_GONE)
