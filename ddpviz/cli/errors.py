"""What a command says instead of a traceback."""

from __future__ import annotations


class CommandError(Exception):
    """One sentence: what was found, what was expected, what to do."""
