"""Names come from traces and models, and may hold what a terminal or a page obeys."""

from __future__ import annotations

import re

#: What turns the direction of what follows, also of our own words.
_DIRECTION = "\u200e\u200f\u202a-\u202e\u2066-\u2069"
#: These, and control characters but tab and line feed.
_OBEYED = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_DIRECTION}]")
_TURNING = re.compile(f"[{_DIRECTION}]")


def printable(text: str) -> str:
    """The text with each such character as Python would write it: ESC is \\x1b."""
    return _OBEYED.sub(_written, text)


def straight(text: str) -> str:
    """The text, or all of a page, with what turns its direction as Python would write it."""
    return _TURNING.sub(_written, text)


def _written(found: re.Match[str]) -> str:
    return ascii(found.group())[1:-1]
