"""The server part: who may use it, and that it signals exactly the processes that are meant."""

from __future__ import annotations

import http.cookiejar
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddpviz.engines import guard, registry
from tests.lab.servers import TOKEN, running

pytest.importorskip("jupyter_server")

_ENABLED = "--ServerApp.jpserver_extensions={'ddpviz.lab': True}"
#: Says when it has begun; SIGINT ends it with 3.
_ENGINE = """
import sys, time
try:
    print("up", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    sys.exit(3)
"""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Jupyter's runtime folder, of this process (the sessions' kernel) and of the server."""
    folder = tmp_path_factory.mktemp("runtime")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_RUNTIME_DIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def server(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    with running(folder, "jupyter_server", _ENABLED) as address:
        yield address


@pytest.fixture
def engine() -> Iterator[subprocess.Popen[str]]:
    """A process of ours that stands for an engine."""
    process = subprocess.Popen([sys.executable, "-c", _ENGINE], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def session(runtime: Path) -> Iterator[str]:
    yield "s1-test"
    registry.remove("s1-test")


def register(session: str, *ranks: registry.RegisteredRank) -> None:
    registry.write(session, list(ranks), [], time.time())


def rank_of(process: subprocess.Popen[Any], **other: Any) -> registry.RegisteredRank:
    values = {
        "rank": 0,
        "pid": process.pid,
        "ticks": guard.start_ticks(process.pid),
        "host": registry.host(),
    }
    return registry.RegisteredRank(**{**values, **other})


def ask(
    address: str,
    path: str,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    opener: urllib.request.OpenerDirector | None = None,
) -> tuple[int, dict[str, Any]]:
    """Status and answer; with the token unless ``headers`` are given."""
    request = urllib.request.Request(
        f"{address}{path}",
        method=method,
        data=b"" if method == "POST" else None,
        headers={"Authorization": f"token {TOKEN}"} if headers is None else headers,
    )
    try:
        with (opener or urllib.request.build_opener()).open(request, timeout=20) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        body = error.read()
        return error.code, json.loads(body) if body.startswith(b"{") else {}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/ddpviz/sessions"),
        ("POST", "/ddpviz/sessions/s1-test/interrupt"),
        ("POST", "/ddpviz/sessions/s1-test/kill"),
    ],
)
def test_every_handler_refuses_who_has_no_token(
    server: str, session: str, engine: subprocess.Popen[str], method: str, path: str
) -> None:
    register(session, rank_of(engine))
    for headers in ({}, {"Authorization": "token wrong"}):
        status, answer = ask(server, path, method, headers)
        assert status == 403
        assert "sessions" not in answer
    assert engine.poll() is None


def test_a_cookie_alone_cannot_kill(
    server: str, session: str, engine: subprocess.Popen[str]
) -> None:
    """What another site's page could send from the user's browser."""
    register(session, rank_of(engine))
    jar = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    browser.open(f"{server}/login?token={TOKEN}", timeout=20).close()
    path = f"/ddpviz/sessions/{session}/kill"
    assert ask(server, "/ddpviz/sessions", "GET", {}, browser)[0] == 200
    assert ask(server, path, "POST", {}, browser)[0] == 403
    assert engine.poll() is None
    (token,) = [cookie.value for cookie in jar if cookie.name == "_xsrf"]
    assert ask(server, path, "POST", {"X-XSRFToken": str(token)}, browser)[0] == 200
    assert engine.wait(10) == -signal.SIGKILL


def test_sessions_are_listed_with_which_engines_live(
    server: str, session: str, engine: subprocess.Popen[str]
) -> None:
    gone = rank_of(engine, rank=1, ticks=1)
    register(session, rank_of(engine), gone)
    status, answer = ask(server, "/ddpviz/sessions")
    assert status == 200
    (found,) = answer["sessions"]
    assert found["session"] == session
    assert found["kernel_alive"] is True
    assert [(one["rank"], one["pid"], one["alive"]) for one in found["ranks"]] == [
        (0, engine.pid, True),
        (1, engine.pid, False),
    ]


def test_kill_ends_the_engine(server: str, session: str, engine: subprocess.Popen[str]) -> None:
    register(session, rank_of(engine))
    status, answer = ask(server, f"/ddpviz/sessions/{session}/kill", "POST")
    assert status == 200
    assert answer == {"ranks": [0], "message": "Engines of rank 0 were killed."}
    assert engine.wait(10) == -signal.SIGKILL


def test_interrupt_is_sigint(server: str, session: str, engine: subprocess.Popen[str]) -> None:
    register(session, rank_of(engine))
    status, _ = ask(server, f"/ddpviz/sessions/{session}/interrupt", "POST")
    assert status == 200
    assert engine.wait(10) == 3


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"ticks": 1}, "it has ended already"),
        ({"host": "elsewhere"}, "it runs on elsewhere, not on this machine"),
    ],
)
def test_a_process_that_is_not_the_engine_is_left_alone(
    server: str, session: str, engine: subprocess.Popen[str], other: dict[str, Any], why: str
) -> None:
    """Its pid was used again, or is of another machine."""
    register(session, rank_of(engine, **other))
    status, answer = ask(server, f"/ddpviz/sessions/{session}/kill", "POST")
    assert status == 409
    assert answer["message"] == f"no engine of session {session} was killed: rank 0: {why}"
    assert engine.poll() is None


def test_one_engine_that_ended_does_not_save_the_other(
    server: str, session: str, engine: subprocess.Popen[str]
) -> None:
    register(session, rank_of(engine, ticks=1), rank_of(engine, rank=1))
    status, answer = ask(server, f"/ddpviz/sessions/{session}/kill", "POST")
    assert status == 200
    assert answer["ranks"] == [1]
    assert "Not rank 0: it has ended already." in answer["message"]
    assert engine.wait(10) == -signal.SIGKILL


@pytest.mark.skipif(os.getuid() != 0, reason="only root can own a process of another user")
def test_a_process_of_another_user_is_left_alone(server: str, session: str) -> None:
    other = subprocess.Popen(["sleep", "600"], user="nobody")
    try:
        register(session, rank_of(other))
        status, answer = ask(server, f"/ddpviz/sessions/{session}/kill", "POST")
        assert status == 409
        assert "another user" in answer["message"]
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("name", ["s9-none", "..%2F..%2Fetc%2Fpasswd", "a%20b"])
def test_an_unknown_session_is_not_found(server: str, name: str) -> None:
    assert ask(server, f"/ddpviz/sessions/{name}/kill", "POST")[0] == 404


def test_no_other_action_and_no_other_method(server: str, session: str) -> None:
    assert ask(server, f"/ddpviz/sessions/{session}/exec", "POST")[0] == 404
    assert ask(server, f"/ddpviz/sessions/{session}/kill")[0] == 405


def test_server_finds_the_extension_by_itself() -> None:
    """Once installed; from a checkout alone nothing tells the server."""
    config = Path(sys.prefix, "etc", "jupyter", "jupyter_server_config.d", "ddpviz.json")
    if not config.exists():
        pytest.skip("the server part is not installed: make test does it")
    listed = subprocess.run(
        [sys.executable, "-m", "jupyter", "server", "extension", "list"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    lines = (listed.stdout + listed.stderr).splitlines()
    (place,) = [number for number, line in enumerate(lines) if "ddpviz.lab" in line][:1]
    assert "enabled" in lines[place]
    assert "OK" in "".join(lines[place : place + 3])
