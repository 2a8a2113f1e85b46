"""JupyterLab's side: the tour, the start of JupyterLab at it, and the server's part.

The TypeScript of the extension is in ``labextension/``. Imported by cli and by Jupyter servers
(as the server extension ``ddpviz.lab``), and by nothing else; imports no Jupyter by itself.
"""

from __future__ import annotations

from typing import Any

from ddpviz.lab.tour import open_lab, place_tour

__all__ = ["open_lab", "place_tour"]


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """What ``jupyter server extension`` looks for."""
    return [{"module": "ddpviz.lab"}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Add the handlers to a Jupyter server."""
    from ddpviz.lab.handlers import add_handlers

    add_handlers(server.web_app)
