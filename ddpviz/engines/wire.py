"""One call on one engine: sent, listened to while it runs, answered.

All that reaches into ipyparallel's messages beyond its documented calls stands here: the future
of a reply (``AsyncResult._children``), what it hears on the way (``iopub_callbacks``), on which
thread (``_io_loop``), and when that has ended (``output``).
Checked on ipyparallel 8.8 and 9.2.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import ipyparallel
from ipyparallel import serialize
from ipyparallel.error import EngineError, NoEnginesRegistered, RemoteError

from ddpviz.engines.errors import SessionError

#: The client's thread begins to listen at once; where it has ended there is nothing to hear.
_LISTEN_SECONDS = 5.0


class EngineGone(Exception):
    """The hub has no such engine any more."""


def send(client: Any, engine: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Have an engine call a function; returns the future of its reply, for :func:`answer`.

    Raises EngineGone, and SessionError where the connection to the cluster is closed.
    """
    try:
        result = client[engine].apply_async(function, *arguments)
    except (LookupError, NoEnginesRegistered) as error:
        raise EngineGone(str(error)) from None
    except (OSError, RuntimeError) as error:
        raise SessionError(
            f"found the connection to the cluster closed ({error}), expected an open one: "
            "make a new session"
        ) from None
    return _reply(result)


def listen(
    client: Any,
    reply: Any,
    data: Callable[[dict[str, Any]], None],
    text: Callable[[str, str], None],
) -> None:
    """Take what a call publishes while it runs: data, and what it prints as (stream, text).

    Read message by message: ``AsyncResult.data`` keeps only the last of each key. What was
    published before this begins to listen is printed all the same; its data is missing, as its
    numbers tell.
    """

    def heard(message: dict[str, Any]) -> None:
        kind = message["header"]["msg_type"]
        if kind == "data_message":
            data(serialize.deserialize_object(message["buffers"])[0])
        elif kind == "stream":
            text(message["content"]["name"], message["content"]["text"])

    listening = threading.Event()

    def begin() -> None:
        # On the thread that messages come on: none comes between the two.
        for stream in ("stdout", "stderr"):
            printed = (getattr(reply.output, "metadata", None) or {}).get(stream)
            if printed:
                text(stream, printed)
        reply.iopub_callbacks.append(heard)
        listening.set()

    client._io_loop.add_callback(begin)
    listening.wait(_LISTEN_SECONDS)


def drain(replies: Sequence[Any], seconds: float) -> None:
    """Wait for what calls that are done have printed: it comes on another way than the reply."""
    outputs = [reply.output for reply in replies if getattr(reply, "output", None) is not None]
    concurrent.futures.wait(outputs, seconds)


def answer(reply: Future[Any]) -> Any:
    """What a call returned, of a reply that is done.

    Raises EngineGone where the engine ended before it answered, RuntimeError with what it raised.
    """
    # Not AsyncResult.get(): that one is done a moment later, and may time out.
    value = reply.result()
    if isinstance(value, RemoteError):
        if value.ename == EngineError.__name__:
            raise EngineGone(str(value.evalue))
        raise RuntimeError(f"{value.ename}: {value.evalue}")
    if isinstance(value, Exception):
        raise RuntimeError(f"{type(value).__name__}: {value}")
    return value


def signal(client: Any, engine: int, number: int) -> None:
    """Send a signal through the engine's nanny process, on its own machine, and do not wait."""
    try:
        client.send_signal(number, targets=engine, block=False)
    except (LookupError, NoEnginesRegistered, OSError):
        pass  # gone already, or nobody there to ask


def _reply(result: Any) -> Any:
    replies = getattr(result, "_children", None)
    if not replies or not hasattr(replies[0], "iopub_callbacks"):
        raise SessionError(
            f"found ipyparallel {ipyparallel.__version__}, which does not say what an engine "
            "publishes while it runs, expected one that does, as 8.8 to 9.2: install one of these"
        )
    return replies[0]
