"""Text for a terminal: names come from traces and models, and may hold what a terminal obeys."""

from __future__ import annotations

import re

#: Control characters but tab and line feed, and those that turn the direction of what follows.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text with each such character as Python would write it: ESC is \\x1b."""
    return _OBEYED.sub(lambda found: ascii(found.group())[1:-1], text)
