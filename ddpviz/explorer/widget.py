"""The explorer in a cell's output: a widget that needs nothing but the kernel.

Its browser part is the bundle that the lab extension is made of too. Where no widget can run, a
still of the newest step is shown: in the same output, for viewers that know no widgets; beside it,
for those that find the widget's model gone, or cannot load what draws widgets (a notebook that is
opened again, a page of nbconvert without network); and in the model, for those that have nothing
else. The browser part hides those beside it as long as it draws.
"""

from __future__ import annotations

import logging
import uuid
import weakref
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from ddpviz.engines import Session
from ddpviz.explorer import registry
from ddpviz.explorer.broadcaster import BROADCASTER, Client
from ddpviz.explorer.controls import answer
from ddpviz.explorer.stills import Stills
from ddpviz.recording import Recording
from ddpviz.views.live_views import VIEWS

_log = logging.getLogger("ddpviz")
#: Of the name that a page gives itself.
_PAGE_LENGTH = 64

BUNDLE = Path(__file__).parent / "static" / "explorer.js"

_NOT_BUILT = """
function render({ el }) {
  el.textContent =
    "The explorer's browser part is not in this installation of ddpviz: in a checkout, " +
    "`make lab` builds it; else install ddpviz from a wheel.";
}
export default { render };
"""


class Explorer(anywidget.AnyWidget):
    """What a session, or a recording, shows live.

    ``views``: names of those to show, one below the other; by default the timeline, and tabs of
    all others below it. Raises ValueError for a view that there is not.
    """

    _esm = traitlets.Unicode().tag(sync=True)
    #: Id of what is shown.
    session = traitlets.Unicode().tag(sync=True)
    #: A PNG of the timeline as a data URL, which the browser leaves now and then, and the state
    #: that it shows: what a saved notebook has when its kernel is gone.
    snapshot = traitlets.Unicode().tag(sync=True)
    snapshot_state = traitlets.Dict().tag(sync=True)
    views = traitlets.List(traitlets.Unicode()).tag(sync=True)
    #: What the stills beside it are marked with.
    stills = traitlets.Unicode().tag(sync=True)

    def __init__(
        self, about: Session | Recording, views: list[str] | None = None, **kwargs: Any
    ) -> None:
        unknown = [view for view in views or [] if view not in VIEWS]
        if unknown:
            raise ValueError(f"found the view {unknown[0]!r}, expected one of {', '.join(VIEWS)}")
        #: Of a recording, this is what keeps it known.
        self._subject = registry.announce(about)
        mark = self._mark = uuid.uuid4().hex
        self._clients: dict[str, Client] = {}
        self._stills = Stills(self._subject, mark)
        super().__init__(
            session=self._subject.id,
            views=views or [],
            stills=mark,
            _esm=browser_part(),
            **self._stills.snapshot(),
            **kwargs,
        )
        self.on_msg(_answer)
        _leave_shell_open(self.comm)

    def close(self) -> None:
        """Take it off the page; the session goes on."""
        clients = getattr(self, "_clients", {})  # ipywidgets closes also what was never made
        for client in clients.values():
            BROADCASTER.remove(client)
        super().close()

    def _client(self, page: str) -> Client:
        """What one page looks at: a notebook may be open in several, each at another step."""
        found = self._clients.get(page)
        if found is None:
            served = BROADCASTER.clients  # the others were given up: their pages are gone
            self._clients = {of: one for of, one in self._clients.items() if one in served}
            found = self._clients[page] = BROADCASTER.client(f"widget-{self._mark}-{page}")
            found.send = _sender(self, page)
        return found

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        if registry.inside_kernel():
            self._stills.leave()
        return {**data, "text/html": self._stills.html(), "text/plain": repr(self)}, metadata

    def __repr__(self) -> str:
        return f"<Explorer of {self._subject.id}>"


def browser_part() -> str:
    """The source of the browser part, as it is installed now."""
    return BUNDLE.read_text(encoding="utf-8") if BUNDLE.exists() else _NOT_BUILT


def _answer(widget: Explorer, content: Any, buffers: Any) -> None:
    # No decision is taken on messages that are no requests: other anywidget traffic comes here.
    if isinstance(content, dict) and "request" in content:
        page = str(content.get("page") or "")[:_PAGE_LENGTH]
        answer(widget._client(page), content, widget.send, key="request")


def _sender(widget: Explorer, page: str) -> Any:
    itself = weakref.ref(widget)

    def send(data: dict[str, Any], buffer: bytes | None) -> None:
        found = itself()
        if found is None or found.comm is None:
            raise RuntimeError("the widget was closed")
        # All pages hear it: it says which is meant.
        found.send({**data, "page": page}, [] if buffer is None else [buffer])
        if "state" in data:
            try:
                found._stills.renew(data["state"]["status"])
            except Exception:  # the widget lives without
                _log.exception("the explorer's still could not be drawn")

    return send


def _leave_shell_open(comm: Any) -> None:
    """Let the browser's requests be answered while a cell runs.

    ipykernel 7.4 hands a comm's messages to the shell that last published on it, which for a
    widget is the main one: it opened the comm from its cell. Without that mark they go to the
    subshell that the front end asks for; the replies, published there, keep it so.
    """
    try:
        vars(comm).pop("_reply_subshell_id", None)
    except TypeError:
        pass
