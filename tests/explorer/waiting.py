"""Where :func:`until` was; see ``tests/waiting.py``."""

from tests.waiting import until

__all__ = ["until"]
