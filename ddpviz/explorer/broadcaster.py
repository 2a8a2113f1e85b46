"""Sends frames to clients: at most ten a second, always the newest, never a queue.

One thread for all clients of the kernel. A client has at most one frame that it has not
acknowledged; without an answer it gets one more after a second, or after three times as long as it
took to answer of late, so that a browser whose acknowledgements are held up (its control comm waits
for a busy cell) still moves. Each next one waits twice as long, up to eight times: a slow browser
must not find a queue.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from ddpviz.explorer import frames, registry
from ddpviz.explorer.subject import Subject, Version

#: Data, and the buffer of a frame (None for what is no frame). Raises where the client is gone.
Send = Callable[[dict[str, Any], bytes | None], None]

_FRAME_SECONDS = 0.1
#: Without an acknowledgement one more frame goes out after this long; then after twice as long, and
#: so on up to eight times.
_BLIND_SECONDS = 1.0
_MOST_BLIND = 8
#: A browser is waited for so many times as long as it took to answer of late: one that is slow is
#: not one whose answers are held up.
_MOST_ANSWERS = 3
#: The state goes out this often although nothing changed: ages grow, and it shows life.
_HEARTBEAT_SECONDS = 1.0
#: A client not heard of for so long is gone without a word (a reloaded page): its connection is
#: closed. Front ends repeat what they watch every 20 s; a browser lets those of hidden tabs do so
#: once a minute.
_LOST_SECONDS = 180.0
#: The thread takes this share of a core at most: training on the same cores comes first. Five
#: views of a convnet take 6 ms, so ten frames a second stay far below it; where frames are dear
#: there are fewer.
_SHARE = 0.25
#: A frame is begun so long before its time as the last one took, but not longer.
_MOST_AHEAD_SECONDS = 0.05

_log = logging.getLogger("ddpviz")


@dataclasses.dataclass(frozen=True)
class Watch:
    """What a client looks at. ``step``: None for the newest.

    ``width_px``: of the widest figure; ``widths``: of the narrowest of each view, where known.
    """

    subject: Subject
    views: tuple[str, ...]
    step: int | None
    hidden: bool
    width_px: int
    widths: tuple[tuple[str, int], ...] = ()

    def width_of(self, view: str) -> int:
        """The width that a view is drawn for."""
        return dict(self.widths).get(view, self.width_px)


class Client:
    """A browser's end. Any thread; what is sent, the broadcaster's thread sends."""

    def __init__(self, id: str, send: Send | None = None) -> None:
        self.id = id
        self.send = send
        self.sequence = 0
        self.acknowledged = 0
        self.sent_at = 0.0
        self._unanswered: dict[int, float] = {}  # when each frame was sent, by its number
        self.took = 0.0  # seconds from when its last frame was begun until it was sent
        #: How long it takes to answer, of late: the longest, less with every answer.
        self.answer_seconds = 0.0
        self.heard_at = time.monotonic()
        self.gone = False
        #: What closes its connection, called when it was not heard of for long.
        self.on_lost: list[Callable[[], None]] = []
        self._watch: Watch | None = None
        #: Per view what was last sent; emptied when the client looks at something else.
        self.sent: dict[str, Version] = {}
        self.sent_state: dict[str, Any] | None = None

    @property
    def watch(self) -> Watch | None:
        """What it looks at; None for nothing."""
        return self._watch

    def look(self, watch: Watch | None) -> None:
        """Look at this from now on."""
        if watch != self._watch:
            self.sent = {}
            self.sent_state = None
        self._watch = watch

    def acknowledge(self, sequence: int) -> None:
        """The browser drew this frame."""
        sent_at = self._unanswered.get(sequence)
        if sent_at is not None:
            took = time.monotonic() - sent_at
            self.answer_seconds = max(took, 0.8 * self.answer_seconds)
        for number in [one for one in list(self._unanswered) if one <= sequence]:
            del self._unanswered[number]
        self.acknowledged = max(self.acknowledged, sequence)

    def sends(self) -> None:
        """A frame leaves now."""
        self.sent_at = self._unanswered[self.sequence] = time.monotonic()

    @property
    def waits(self) -> bool:
        """Whether a frame is out that it has not acknowledged."""
        return self.acknowledged < self.sequence


class Broadcaster:
    """Clients and the thread that serves them. The thread runs while there are clients."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[str, Client] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._followed: weakref.WeakSet[Subject] = weakref.WeakSet()
        self._told: list[str] = []  # ids of the sessions that clients were last told of
        self._complained: set[str] = set()
        registry.listen(self._wake.set)

    def client(self, id: str) -> Client:
        """The client of that id, a new one where it is not known."""
        with self._lock:
            found = self._clients.setdefault(id, Client(id))
        self.heard(found)
        return found

    def heard(self, client: Client) -> None:
        """The client said something; it is served from now on, also if it was given up before."""
        client.heard_at = time.monotonic()
        if client.gone:
            return
        with self._lock:
            self._clients.setdefault(client.id, client)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._work, name="ddpviz-explorer", daemon=True
                )
                self._thread.start()

    def remove(self, client: Client) -> None:
        """It is gone for good."""
        client.gone = True
        self._give_up(client)

    def _give_up(self, client: Client) -> None:
        with self._lock:
            if self._clients.get(client.id) is client:
                del self._clients[client.id]
        self._wake.set()

    @property
    def clients(self) -> list[Client]:
        """Those that are there."""
        with self._lock:
            return list(self._clients.values())

    def watch(self, client: Client, watch: Watch | None) -> None:
        """The client looks at this from now on."""
        if watch is not None:
            with self._lock:
                new = watch.subject not in self._followed
                self._followed.add(watch.subject)
            if new:
                watch.subject.follower.wake(self._wake)
        client.look(watch)
        self._wake.set()

    def acknowledge(self, client: Client, sequence: int) -> None:
        """The client drew this frame."""
        client.acknowledge(sequence)
        self._wake.set()

    # --- the thread ----------------------------------------------------------------------------

    def _work(self) -> None:
        _publish_for_nobody()
        while True:
            began, cpu_began = time.monotonic(), time.thread_time()
            self._wake.clear()
            with self._lock:
                if not self._clients:
                    self._thread = None
                    break
            try:
                wait = self._round()
            except Exception as error:
                # Whatever one round meets, the next one may not.
                self._complain(error)
                wait = _HEARTBEAT_SECONDS
            took = time.monotonic() - began
            rest = min(max((time.thread_time() - cpu_began) / _SHARE - took, 0.005), 1.0)
            time.sleep(rest)
            # A batch, an acknowledgement or another watch wakes it; else what is due first.
            self._wake.wait(min(max(wait - rest, 0.0), _HEARTBEAT_SECONDS))
        self._attend([])

    def _round(self) -> float:
        """Serve every client once; in how many seconds the next is due."""
        clients = self.clients
        sessions = registry.subjects()
        if (ids := [one.id for one in sessions]) != self._told:
            self._tell_sessions(clients, sessions)
            self._told = ids
        self._attend(clients)
        return min((self._serve(client) for client in clients), default=_HEARTBEAT_SECONDS)

    def _serve(self, client: Client) -> float:
        """Send what is due; in how many seconds to come again."""
        now = time.monotonic()
        watch, since = client.watch, now - client.sent_at
        if now - client.heard_at > _LOST_SECONDS:
            self._give_up(client)
            for close in client.on_lost:
                with contextlib.suppress(Exception):
                    close()
            return _HEARTBEAT_SECONDS
        if watch is None or watch.hidden or client.send is None:
            return _HEARTBEAT_SECONDS
        least = _FRAME_SECONDS
        if client.waits:
            blind = client.sequence - client.acknowledged - 1  # sent without an answer before
            first = max(_BLIND_SECONDS, _MOST_ANSWERS * client.answer_seconds)
            least = first * min(2 ** min(blind, _MOST_BLIND), _MOST_BLIND)
        ahead = 0.0 if client.waits else min(client.took, _MOST_AHEAD_SECONDS)
        if since < least - ahead:
            return least - ahead - since
        try:
            frame = self._frame(client, watch, since >= _HEARTBEAT_SECONDS)
        except Exception as error:
            self._complain(error)
            return _HEARTBEAT_SECONDS
        if frame is None:
            return max(_HEARTBEAT_SECONDS - since, _FRAME_SECONDS)
        client.took = time.monotonic() - now
        time.sleep(max(0.0, client.sent_at + least - time.monotonic()))
        client.sends()
        self._send(client, *frame)
        return _FRAME_SECONDS - ahead

    def _frame(
        self, client: Client, watch: Watch, heartbeat: bool
    ) -> tuple[dict[str, Any], bytes] | None:
        versions = watch.subject.versions(list(watch.views), watch.step)
        sent = client.sent
        views = [view for view, version in versions.items() if sent.get(view) != version]
        # The pictures first: the timeline's title is the state's too.
        pictures = watch.subject.pictures(views, watch.step, watch.width_of)
        state = watch.subject.state()
        told = {name: value for name, value in state.items() if name != "age_s"}
        if not views and told == client.sent_state and not heartbeat:
            return None
        packed = frames.pack(pictures)
        if client.watch is not watch:
            return None  # it looks at something else by now
        client.sent = {**sent, **versions}
        client.sent_state = told
        client.sequence += 1
        header = {
            "type": "frame",
            "client": client.id,
            "sequence": client.sequence,
            "state": state,
            "views": packed.views,
        }
        return header, packed.buffer

    def _complain(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text not in self._complained:
            self._complained.add(text)
            _log.error("the explorer could not draw; it goes on; said once", exc_info=error)

    def _attend(self, clients: list[Client]) -> None:
        """Let sessions know whether somebody looks at their steps."""
        looked_at = {
            one.watch.subject
            for one in clients
            if one.watch is not None and one.watch.views and not one.watch.hidden
        }
        with self._lock:
            followed = list(self._followed)
        for subject in followed:
            subject.attend(self._wake.set if subject in looked_at else None)

    def _tell_sessions(self, clients: list[Client], sessions: list[Subject]) -> None:
        states = [one.state() for one in sessions]
        for client in clients:
            if client.send is not None:
                self._send(client, {"type": "sessions", "sessions": states}, None)

    def _send(self, client: Client, data: dict[str, Any], buffer: bytes | None) -> None:
        assert client.send is not None
        try:
            client.send(data, buffer)
        except Exception as error:
            _log.info("a client of the explorer is gone: %s", error)
            self.remove(client)


def _publish_for_nobody() -> None:
    """Let frames have no parent message, in this thread only.

    ipykernel 7.4 hands a comm's messages to the shell of the parent of what was last published on
    it: with the main shell's cell as parent, a widget's requests would wait for that cell.
    """
    try:
        from ipykernel.kernelbase import Kernel
    except ImportError:
        return
    if not Kernel.initialized():
        return
    # Private, because set_parent() would take the parent from what users print in their threads.
    parent = getattr(Kernel.instance(), "_shell_parent", None)
    if isinstance(parent, ContextVar):
        parent.set({})


BROADCASTER = Broadcaster()
