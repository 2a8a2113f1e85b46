"""Every command that reads a trace takes the rank of one that does not say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpviz.cli import main
from tests.traces.made import trace, written

#: What each needs beside the trace; {} is where it writes.
COMMANDS = {
    "show": [],
    "audit": [],
    "explain": [],
    "slides": ["-o", "{}/talk.html"],
    "export": ["-o", "{}/trace.json"],
    "pictures": ["-o", "{}/pictures", "--view", "nothing of this name"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_trace_without_a_rank_is_read_once_it_is_given(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "some.json", trace(None))
    more = [one.format(tmp_path) for one in COMMANDS[command]]
    assert main([command, str(path), *more]) == 2
    said = capsys.readouterr().err
    assert f"found no rank in {path}" in said and "or --rank 0" in said
    status = main([command, str(path), "--rank", "3", *more])
    said = capsys.readouterr().err
    if command == "pictures":  # no browser is needed to be refused the view
        assert status == 2 and "found no rank" not in said and "nothing of this name" in said
    else:
        assert status == 0, said


def test_a_recording_knows_its_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(tmp_path), "--rank", "1"]) == 2
    assert "expected it with a single trace" in capsys.readouterr().err
