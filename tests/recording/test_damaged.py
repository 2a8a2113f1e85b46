"""Files that were renamed, lost or altered: told in one sentence, and never a wrong answer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import ddpviz
from ddpviz.events import Batch, Process
from ddpviz.recording import RankWriter
from tests.recording.material import rows


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    for rank in (0, 1):
        writer = RankWriter(tmp_path, rank)
        process = Process(rank, 2, 10 + rank, "host", "2.13", "3.11", "cpu", 1, "default")
        writer(Batch(rank, 0, rows(3, rank), (process,)))
        writer.close()
    return tmp_path


def copy(directory: Path, end: str) -> None:
    shutil.copy(directory / f"rank-0000.{end}", directory / f"rank-0002.{end}")


def swap(directory: Path, end: str) -> None:
    first, second = (directory / f"rank-000{rank}.{end}" for rank in (0, 1))
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)


@pytest.mark.parametrize("mix", [copy, swap])
@pytest.mark.parametrize("end", ["arrow", "notes.jsonl"])
def test_one_ranks_file_under_anothers_name_is_refused(
    recorded: Path, mix: Callable[[Path, str], None], end: str
) -> None:
    mix(recorded, end)
    with pytest.raises(ValueError, match=r"found rank \d in rank-000\d\..*, expected rank \d"):
        ddpviz.load(recorded)


@pytest.mark.parametrize("end", ["arrow", "notes.jsonl"])
def test_a_file_that_is_not_there_is_remarked(recorded: Path, end: str) -> None:
    (recorded / f"rank-0001.{end}").unlink()
    (remark,) = ddpviz.load(recorded).remarks
    assert remark.startswith(f"rank-0001.{end} is not there: ")


@pytest.mark.parametrize(
    "text",
    [
        '{"format": "ddpviz recording", "version": null}',
        '{"format": "ddpviz recording", "version": [1]}',
        '{"format": "ddpviz recording", "version": "x"}',
        '{"format": "ddpviz recording", "version": 1, "dropped": 1e999}',
        "[" * 100_000,
    ],
)
def test_a_damaged_description_is_one_sentence(recorded: Path, text: str) -> None:
    (recorded / "recording.json").write_text(text)
    with pytest.raises(ValueError, match=r"found a (damaged )?recording\.json"):
        ddpviz.load(recorded)


@pytest.mark.parametrize("value", [None, "x", {}, [1], 1e400, 2**70, True])
@pytest.mark.parametrize("field", ["rank", "started_ns", "batch"])
def test_a_note_of_another_type_is_left_out(recorded: Path, field: str, value: object) -> None:
    path = recorded / "rank-0001.notes.jsonl"
    note = json.loads(path.read_text())
    path.write_text(json.dumps({**note, field: value}) + "\n" + "[" * 100_000 + "\n")
    remarks = ddpviz.load(recorded).remarks
    assert any(remark.startswith("left out line 2 of rank-0001") for remark in remarks)
    assert any(remark.startswith("left out line 1 of rank-0001") for remark in remarks)


def test_of_many_lines_that_are_left_out_a_few_are_told_and_the_rest_counted(
    recorded: Path,
) -> None:
    path = recorded / "rank-0001.notes.jsonl"
    path.write_text('{}\n[]\nnull\n"note"\n' * 100 + path.read_text())
    left_out = [one for one in ddpviz.load(recorded).remarks if one.startswith("left out")]
    lines = [f"left out line {n} of {path.name}: found no note of a batch" for n in range(1, 6)]
    assert left_out == [*lines, f"left out 395 more lines of {path.name}"]


def test_a_directory_that_is_removed_while_it_is_written_is_said(recorded: Path) -> None:
    writer = RankWriter(recorded, 0)
    shutil.rmtree(recorded)
    with pytest.raises(FileNotFoundError, match=r"rank-0000\..* was removed while it was written"):
        writer(Batch(0, 1, rows(3), ()))
    writer.close()
