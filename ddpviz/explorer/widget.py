"""The explorer in a cell's output: a widget that needs nothing but the kernel.

Its browser part is the bundle that the lab extension is made of too. Where no widget can run
(nbclient, a saved notebook without kernel) the output has a still of the newest step.
"""

from __future__ import annotations

import uuid
import weakref
from html import escape
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from ddpviz.engines import Session
from ddpviz.explorer import registry
from ddpviz.explorer.broadcaster import BROADCASTER
from ddpviz.explorer.controls import answer
from ddpviz.explorer.subject import Subject
from ddpviz.recording import Recording
from ddpviz.views import live_still

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

    ``views``: names of those to show, by default the timeline, the steps and the plan.
    """

    _esm = traitlets.Unicode().tag(sync=True)
    #: Id of what is shown.
    session = traitlets.Unicode().tag(sync=True)
    #: A PNG of the timeline as a data URL, which the browser leaves now and then, and the state
    #: that it shows: what a saved notebook has when its kernel is gone.
    snapshot = traitlets.Unicode().tag(sync=True)
    snapshot_state = traitlets.Dict().tag(sync=True)
    views = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(
        self, about: Session | Recording, views: list[str] | None = None, **kwargs: Any
    ) -> None:
        #: Of a recording, this is what keeps it known.
        self._subject = registry.announce(about)
        self._client = BROADCASTER.client(f"widget-{uuid.uuid4().hex}")
        super().__init__(session=self._subject.id, views=views or [], _esm=browser_part(), **kwargs)
        self._client.send = _sender(self)
        self.on_msg(_answer)
        _leave_shell_open(self.comm)

    def close(self) -> None:
        """Take it off the page; the session goes on."""
        client = getattr(self, "_client", None)  # ipywidgets closes also what was never made
        if client is not None:
            BROADCASTER.remove(client)
        super().close()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        return {**data, "text/html": still(self._subject), "text/plain": repr(self)}, metadata

    def __repr__(self) -> str:
        return f"<Explorer of {self._subject.id}>"


def browser_part() -> str:
    """The source of the browser part, as it is installed now."""
    return BUNDLE.read_text(encoding="utf-8") if BUNDLE.exists() else _NOT_BUILT


def still(subject: Subject) -> str:
    """HTML without script: the newest step, and the state in one line."""
    state = subject.state()
    _, picture = subject.pictures(["timeline"], None, 1100)["timeline"]
    parts = [state["name"], f"{state['world_size']} ranks", state["backend"], state["status"]]
    if state["step"] >= 0:
        parts.append(f"step {state['step']}")
    line = " · ".join(escape(str(part)) for part in parts if part)
    reason = f"<br>{escape(state['reason'])}" if state["reason"] else ""
    return f"<div><p>{line}{reason}</p>{live_still.html(picture)}</div>"


def _answer(widget: Explorer, content: Any, buffers: Any) -> None:
    # No decision is taken on messages that are no requests: other anywidget traffic comes here.
    if isinstance(content, dict) and "request" in content:
        answer(widget._client, content, widget.send, key="request")


def _sender(widget: Explorer) -> Any:
    itself = weakref.ref(widget)

    def send(data: dict[str, Any], buffer: bytes | None) -> None:
        found = itself()
        if found is None or found.comm is None:
            raise RuntimeError("the widget was closed")
        found.send(data, [] if buffer is None else [buffer])

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
