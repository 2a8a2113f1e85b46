"""What the Jupyter server answers under ``/ddpviz/``; every handler wants a signed-in user.

::

    GET  /ddpviz/sessions                   {"sessions": [...]} of this user, from the registry
    POST /ddpviz/sessions/<id>/interrupt    SIGINT to its ranks    {"ranks": [0, 1], "message"}
    POST /ddpviz/sessions/<id>/kill         SIGKILL to its ranks
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from ddpviz.lab import processes

_ACTIONS: dict[str, Callable[[str], processes.Done]] = {
    "interrupt": processes.interrupt,
    "kill": processes.kill,
}


class _Handler(APIHandler):
    #: Who may interrupt and restart kernels may do so to the engines that they started.
    auth_resource = "kernels"


class SessionsHandler(_Handler):
    """Live sessions of all kernels of this user."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        found = await asyncio.to_thread(processes.listed)
        self.finish(json.dumps({"sessions": found}))


class SignalHandler(_Handler):
    """Interrupts or kills the engines of one session."""

    @web.authenticated
    @authorized("execute")
    async def post(self, session: str, action: str) -> None:
        try:
            done = await asyncio.to_thread(_ACTIONS[action], session)
        except LookupError as error:
            raise web.HTTPError(404, str(error)) from error
        except processes.NotSignalled as error:
            raise web.HTTPError(409, str(error)) from error
        self.log.info("ddpviz: session %s: %s", session, done.message)
        self.finish(json.dumps({"ranks": done.ranks, "message": done.message}))


def add_handlers(app: Any) -> None:
    """Add them to a server's web application."""
    base = app.settings["base_url"]
    app.add_handlers(
        ".*$",
        [
            (url_path_join(base, "ddpviz", "sessions"), SessionsHandler),
            (
                url_path_join(base, "ddpviz", "sessions", r"([\w.-]+)", "(interrupt|kill)"),
                SignalHandler,
            ),
        ],
    )
