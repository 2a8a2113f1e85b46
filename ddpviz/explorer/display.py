"""A session as the last line of a cell shows its explorer."""

from __future__ import annotations

from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from ddpviz.engines import Session


def show_sessions(shell: InteractiveShell) -> None:
    """Let this shell display a Session as its explorer; where that fails, as its text."""
    formatter = shell.display_formatter
    if formatter is not None:
        formatter.mimebundle_formatter.for_type(Session, _mimebundle)


def _mimebundle(session: Session, include: Any = None, exclude: Any = None) -> Any:
    from ddpviz.explorer.widget import Explorer

    return Explorer(session)._repr_mimebundle_()
