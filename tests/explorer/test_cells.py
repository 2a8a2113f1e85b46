"""What ranks print in a cell, and their errors."""

from __future__ import annotations

import threading

from ddpviz.engines.ranks import Problem
from ddpviz.explorer import cells
from ddpviz.explorer.cells import Transcript, errors_text
from tests.waiting import until


def test_each_line_has_its_rank_and_keeps_its_order() -> None:
    shown: list[str] = []
    transcript = Transcript(shown.append)
    transcript.write(0, "stdout", "one\ntw")
    transcript.write(1, "stdout", "other\n")
    transcript.write(0, "stdout", "o\n")
    transcript.finish()
    assert shown[-1] == "[0] one\n[1] other\n[0] two"


def test_an_open_line_is_shown_too() -> None:
    transcript = Transcript(lambda text: None)
    transcript.write(1, "stderr", "no end yet")
    assert transcript.text() == "[1] no end yet"


def test_a_progress_bar_is_one_line() -> None:
    transcript = Transcript(lambda text: None)
    transcript.write(0, "stderr", "10%\r20%\r30%\r\n")
    assert transcript.text() == "[0] 30%"


def test_the_notebook_is_not_filled_by_a_loop() -> None:
    shown: list[str] = []
    transcript = Transcript(shown.append)
    for number in range(3 * cells._MOST_LINES):
        transcript.write(0, "stdout", f"{number}\n")
    transcript.finish("end")
    lines = shown[-1].splitlines()
    assert len(lines) == cells._MOST_LINES + 2
    assert lines[0] == f"… {2 * cells._MOST_LINES} earlier lines left out"
    assert lines[-2:] == [f"[0] {3 * cells._MOST_LINES - 1}", "end"]
    assert len(shown) < 500  # and not one update for every line


def test_what_came_last_is_shown_although_nothing_follows() -> None:
    shown: list[str] = []
    transcript = Transcript(shown.append)
    transcript.write(0, "stdout", "a\n")
    transcript.write(0, "stdout", "b\n")
    until(lambda: shown[-1] == "[0] a\n[0] b")


def test_any_thread_may_write() -> None:
    transcript = Transcript(lambda text: None)

    def write(rank: int) -> None:
        for number in range(200):
            transcript.write(rank, "stdout", f"{number}\n")

    threads = [threading.Thread(target=write, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = transcript.text().splitlines()
    assert len(lines) == 800
    for rank in range(4):
        of_rank = [line for line in lines if line.startswith(f"[{rank}]")]
        assert of_rank == [f"[{rank}] {number}" for number in range(200)]


def problem(message: str) -> Problem:
    return Problem(0, -1, "", message, (("cell", 3, "<module>", "raise"),))


def test_the_same_error_of_several_ranks_is_shown_once() -> None:
    text = errors_text({0: problem("ValueError: x"), 2: problem("ValueError: x")})
    assert text.startswith("ranks 0, 2: ValueError: x\nTraceback (most recent call last):")
    assert text.count("Traceback") == 1


def test_different_errors_are_shown_each() -> None:
    text = errors_text({0: problem("ValueError: x"), 1: problem("KeyError: 'y'")})
    assert "rank 0: ValueError: x\n" in text and "rank 1: KeyError: 'y'\n" in text
    assert errors_text({}) == ""
