"""SIGUSR1 is taken where it is free, and given back."""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
from collections.abc import Iterator

import pytest

from ddpviz.on_signal import OnSignal
from tests.waiting import until


@pytest.fixture
def before() -> Iterator[list[int]]:
    """A handler of the program's own, and what it was called with."""
    called: list[int] = []
    old = signal.signal(signal.SIGUSR1, lambda number, frame: called.append(number))
    yield called
    signal.signal(signal.SIGUSR1, old)


def test_it_prints_and_calls_who_was_there_before(
    before: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def tell() -> str:
        said.append("asked")
        return "rank 0 is in it\nrank 1 is not"

    ours = OnSignal(tell)
    os.kill(os.getpid(), signal.SIGUSR1)
    until(lambda: bool(said) and bool(before), 10)
    ours.close()
    ours.close()
    assert capfd.readouterr().err == "ddpviz: rank 0 is in it\nddpviz: rank 1 is not\n"
    os.kill(os.getpid(), signal.SIGUSR1)
    until(lambda: len(before) == 2, 10)
    assert said == ["asked"]


def test_a_handler_in_c_stays(capfd: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryFile() as file:
        faulthandler.register(signal.SIGUSR1, file=file, all_threads=False)
        try:
            ours = OnSignal(lambda: "never said")
            os.kill(os.getpid(), signal.SIGUSR1)
            ours.close()
            os.kill(os.getpid(), signal.SIGUSR1)  # and is there afterwards
            file.seek(0)
            assert file.read().count(b"most recent call first") == 2
        finally:
            faulthandler.unregister(signal.SIGUSR1)
    assert capfd.readouterr().err == ""


def test_a_forked_child_asks_nothing_of_its_parent(
    before: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    ours = OnSignal(lambda: "asked")
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGUSR1)
        os._exit(len(before))
    _, status = os.waitpid(child, 0)
    ours.close()
    assert os.waitstatus_to_exitcode(status) == 1  # the program's own handler, in the child
    assert capfd.readouterr().err == "" and before == []


def test_who_asks_after_the_end_does_not_end_the_process(
    capfd: pytest.CaptureFixture[str],
) -> None:
    old = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    try:
        for _ in range(2):  # the second finds what the first left
            ours = OnSignal(lambda: "asked")
            ours.close()
            os.kill(os.getpid(), signal.SIGUSR1)
        assert capfd.readouterr().err == ""
        with tempfile.TemporaryFile() as file:  # what C code sets afterwards is seen
            faulthandler.register(signal.SIGUSR1, file=file, all_threads=False)
            try:
                OnSignal(lambda: "never said").close()
                os.kill(os.getpid(), signal.SIGUSR1)
                file.seek(0)
                assert file.read().count(b"most recent call first") == 1
            finally:
                faulthandler.unregister(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, old)


def test_what_it_prints_is_nothing_that_a_terminal_obeys(
    before: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def tell() -> str:
        said.append("")
        return "corrupt \x1b[31m red"

    ours = OnSignal(tell)
    os.kill(os.getpid(), signal.SIGUSR1)
    until(lambda: bool(said), 10)
    ours.close()
    assert capfd.readouterr().err == "ddpviz: corrupt \\x1b[31m red\n"
