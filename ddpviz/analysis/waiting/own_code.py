"""Which line of a stack is the user's own."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

from ddpviz.events import StackLine

#: Installed packages, the standard library, what was executed from a string, and what we put
#: around training.
_NOT_OWN = re.compile(
    r"/(site|dist)-packages/|/lib/python\d|/ddpviz/(probe|engines)/\w+\.py$"
    r"|^<(?:frozen .*|string)>$"
)
_STDLIB = str(Path(sysconfig.get_path("stdlib")))


def own_line(stack: tuple[StackLine, ...]) -> StackLine | None:
    """The innermost line that is of no package; else the innermost one; None for an empty stack.

    ``stack``: the innermost call first.
    """
    for line in stack:
        file = line.file.replace("\\", "/")
        if not _NOT_OWN.search(file) and not file.startswith(_STDLIB):
            return line
    return stack[0] if stack else None
