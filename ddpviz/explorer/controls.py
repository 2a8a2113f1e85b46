"""What a browser may ask for, and what is done then. Any thread; errors are one sentence."""

from __future__ import annotations

import concurrent.futures
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ddpviz.engines import ConfigurationError, RankFailed, Session, SessionError
from ddpviz.engines.compiled import BACKENDS
from ddpviz.engines.work import tell
from ddpviz.explorer import comparisons, decks, demonstrations, frames, registry, switches
from ddpviz.explorer.broadcaster import BROADCASTER, Client, Watch
from ddpviz.explorer.subject import Subject
from ddpviz.views.live_views import VIEWS

#: Steps that were asked for run longer than anybody waits: what goes wrong at once is answered.
_RUN_SECONDS = 2.0
#: What waits for the ranks, and is answered from a thread of its own: the messages of a kernel's
#: control comms come one after another, so it would hold up acknowledgements, and a stop.
_SLOW = frozenset(
    {
        "set",
        "start",
        "stop",
        "restart",
        "close",
        "run",
        "demonstrate",
        "comparable",
        "compare",
        "deck",
    }
)
_WIDTHS_PX = (200, 10_000)

#: Sends a reply and its buffers.
Reply = Callable[[dict[str, Any], list[bytes]], None]


class Refused(Exception):
    """A request that cannot be done: one sentence for the user."""


def handle(client: Client, action: Any, args: Any) -> tuple[Any, list[bytes]]:
    """Do what was asked: the result, and buffers that go with it. Raises Refused."""
    BROADCASTER.heard(client)
    known = _ACTIONS.get(action) if isinstance(action, str) else None
    if known is None:
        raise Refused(f"found the action {action!r}, expected one of {', '.join(sorted(_ACTIONS))}")
    if not isinstance(args, dict):
        raise Refused(f"found arguments of type {type(args).__name__}, expected an object")
    try:
        found = known(client, args)
    except Refused:
        raise
    except Exception as error:
        raise Refused(sentence(error)) from error
    return found if isinstance(found, tuple) else (found, [])


def answer(client: Client, data: Any, reply: Reply, key: str = "id") -> None:
    """Answer a request as it came over a comm, whatever it is. ``key``: of its number.

    ``reply`` is called once: before this returns, or for what is slow from another thread in this
    thread's context. ipykernel takes the parent of a message from there: with the request as
    parent, 7.4 goes on to hand the comm's messages to the shell that this one came to.
    """
    request = data if isinstance(data, dict) else {}
    if request.get("action") in _SLOW:
        context = contextvars.copy_context()
        threading.Thread(
            target=context.run,
            args=(_reply, client, request, reply, key),
            name="ddpviz-request",
            daemon=True,
        ).start()
    else:
        _reply(client, request, reply, key)


def _reply(client: Client, request: dict[str, Any], reply: Reply, key: str) -> None:
    head = {"id" if key == "id" else "reply": request.get(key)}
    try:
        result, buffers = handle(client, request.get("action"), request.get("args") or {})
    except Refused as refused:
        reply({**head, "ok": False, "error": str(refused)}, [])
    else:
        reply({**head, "ok": True, "result": result}, buffers)


def sentence(error: BaseException) -> str:
    """What went wrong, in one line."""
    if isinstance(error, RankFailed):
        return error.summary
    first = next(iter(str(error).strip().splitlines()), "")
    if isinstance(error, (SessionError, ConfigurationError, LookupError, ValueError)) and first:
        return str(error.args[0]) if isinstance(error, KeyError) else first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


# --- looking -------------------------------------------------------------------------------------


def _sessions(client: Client, args: dict[str, Any]) -> Any:
    return [one.state() for one in registry.subjects()]


def _watch(client: Client, args: dict[str, Any]) -> Any:
    id, views = args.get("session"), args.get("views") or []
    if id is None:
        BROADCASTER.watch(client, None)
        return {}
    for view in views:
        _known(view)
    step = args.get("step", "newest")
    if step != "newest" and not isinstance(step, int):
        raise Refused(f'found the step {step!r}, expected "newest" or a number')
    widths = args.get("widths") or {}
    if not isinstance(widths, dict):
        raise Refused(f"found widths of type {type(widths).__name__}, expected an object")
    watch = Watch(
        registry.subject(str(id)),
        tuple(dict.fromkeys(views)),
        None if step == "newest" else step,
        bool(args.get("hidden")),
        _width(args.get("width_px")),
        tuple((view, _width(widths[view])) for view in views if view in widths),
    )
    BROADCASTER.watch(client, watch)
    return {}


def _figure(client: Client, args: dict[str, Any]) -> Any:
    view = _known(args.get("view"))
    watch, subject = client.watch, _subject(args)
    step = watch.step if watch is not None and watch.subject is subject else None
    width = watch.width_of(view) if watch is not None else _width(args.get("width_px"))
    return subject.figure_item(view, step, width)


def _bokehjs(client: Client, args: dict[str, Any]) -> tuple[Any, list[bytes]]:
    import bokeh

    folder = Path(bokeh.__file__).parent / "server" / "static" / "js"
    files = [name for name in ("bokeh.min.js", "bokeh-gl.min.js") if (folder / name).exists()]
    if not files:
        raise Refused(f"found no bokeh.min.js in {folder}: reinstall bokeh")
    code = b"\n".join((folder / name).read_bytes() for name in files)
    return {"version": frames.bokeh_version(), "files": files}, [code]


def _read(client: Client, args: dict[str, Any]) -> Any:
    view = _known(args.get("view"))
    read = VIEWS[view].read
    if read is None:
        raise Refused(f"found the view {view!r}, expected one that has something to read in full")
    return {"text": read(_subject(args).recording, str(args.get("key") or ""))}


def _ack(client: Client, args: dict[str, Any]) -> Any:
    BROADCASTER.acknowledge(client, int(args.get("sequence", 0)))
    return {}


def _slides(client: Client, args: dict[str, Any]) -> Any:
    return decks.offered(_subject(args))


def _deck(client: Client, args: dict[str, Any]) -> tuple[Any, list[bytes]]:
    return decks.deck(_subject(args), args)


# --- steering ------------------------------------------------------------------------------------


def _switches(client: Client, args: dict[str, Any]) -> Any:
    return switches.of(_subject(args))


def _predict(client: Client, args: dict[str, Any]) -> Any:
    return switches.predict(_session(args), _values(args))


def _set(client: Client, args: dict[str, Any]) -> Any:
    return {"outcome": switches.apply(_session(args), _values(args))}


def _start(client: Client, args: dict[str, Any]) -> Any:
    _session(args).start()
    return {"outcome": "started"}


def _stop(client: Client, args: dict[str, Any]) -> Any:
    _session(args).stop()
    return {"outcome": "stopped"}


def _restart(client: Client, args: dict[str, Any]) -> Any:
    _session(args).restart()
    return {"outcome": "restarted"}


def _close(client: Client, args: dict[str, Any]) -> Any:
    _session(args).close()
    registry.tell()
    return {"outcome": "closed"}


def _run(client: Client, args: dict[str, Any]) -> Any:
    session, steps = _session(args), args.get("steps")
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise Refused(f"found {steps!r} steps, expected a whole number from 1 on")
    done: Future[Any] = Future()

    def run() -> None:
        try:
            session.run(steps)
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="ddpviz-run", daemon=True).start()
    if not concurrent.futures.wait([done], _RUN_SECONDS).done:
        done.add_done_callback(lambda ended: tell(ended.exception()))
        return {"outcome": f"training {steps} steps"}
    done.result()
    return {"outcome": "done"}


def _demonstrations(client: Client, args: dict[str, Any]) -> Any:
    return demonstrations.listed()


def _demonstrate(client: Client, args: dict[str, Any]) -> Any:
    return demonstrations.run(_session(args), str(args.get("name") or ""))


def _comparable(client: Client, args: dict[str, Any]) -> Any:
    return comparisons.offered(_session(args))


def _compare(client: Client, args: dict[str, Any]) -> Any:
    modes, rounds = args.get("modes"), args.get("rounds", 3)
    if not isinstance(modes, list) or not all(isinstance(mode, str) for mode in modes):
        raise Refused(f"found the modes {modes!r}, expected a list of names")
    backend = str(args.get("backend") or BACKENDS[0])
    return comparisons.run(_session(args), modes, backend, rounds)


# --- arguments -----------------------------------------------------------------------------------


def _subject(args: dict[str, Any]) -> Subject:
    return registry.subject(str(args.get("session") or ""))


def _session(args: dict[str, Any]) -> Session:
    subject = _subject(args)
    if subject.is_recording:
        raise Refused("this is a recording: there is nothing to steer")
    session = subject.session
    if session is None or subject.closed:
        raise Refused("the session is closed: make a new one with ddpviz.Session()")
    return session


def _values(args: dict[str, Any]) -> dict[str, Any]:
    values = args.get("values")
    if not isinstance(values, dict) or not values:
        raise Refused(f"found the values {values!r}, expected names and values")
    return values


def _known(view: Any) -> str:
    if view not in VIEWS:
        raise Refused(f"found the view {view!r}, expected one of {', '.join(VIEWS)}")
    return str(view)


def _width(width: Any) -> int:
    """A width in px, rounded off so that a figure that is made wider is not drawn at each px."""
    least, most = _WIDTHS_PX
    number = int(width) if isinstance(width, (int, float)) and width > 0 else 1100
    return min(max(number // 20 * 20, least), most)


_ACTIONS: dict[str, Callable[[Client, dict[str, Any]], Any]] = {
    "sessions": _sessions,
    "watch": _watch,
    "figure": _figure,
    "bokehjs": _bokehjs,
    "read": _read,
    "slides": _slides,
    "deck": _deck,
    "ack": _ack,
    "switches": _switches,
    "predict": _predict,
    "set": _set,
    "start": _start,
    "stop": _stop,
    "restart": _restart,
    "close": _close,
    "run": _run,
    "demonstrations": _demonstrations,
    "demonstrate": _demonstrate,
    "comparable": _comparable,
    "compare": _compare,
}
