"""What is refused, in one sentence each."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ddpviz.events import Batch
from ddpviz.recording import RankWriter, Recording, load
from tests.recording.material import batches, python, rows, written


def refused(error: type[Exception], call, *arguments) -> str:
    with pytest.raises(error) as caught:
        call(*arguments)
    message = str(caught.value)
    assert message.startswith("found ") and "\n" not in message
    return message


def test_load_refuses_what_is_no_recording(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "data.csv").write_text("1,2\n")
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "recording.json").write_text('{"tracks": 12}')
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "recording.json").write_text('{"for')
    assert "nothing at" in refused(FileNotFoundError, load, tmp_path / "missing")
    assert "a file at" in refused(NotADirectoryError, load, tmp_path / "file")
    assert "an empty directory at" in refused(ValueError, load, tmp_path / "empty")
    assert "other files at" in refused(ValueError, load, tmp_path / "foreign")
    assert "not ddpviz's" in refused(ValueError, load, tmp_path / "other")
    assert "not ddpviz's" in refused(ValueError, load, tmp_path / "torn")


@pytest.mark.parametrize("kind", ["text", "file format", "other stream"])
def test_load_refuses_a_rank_file_that_is_not_ours(tmp_path, kind):
    path = tmp_path / "rank-0000.arrow"
    table = pa.table({"a": [1, 2]})
    if kind == "text":
        path.write_text("hello")
    elif kind == "file format":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write(table)
    else:
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write(table)
    before = path.read_bytes()
    assert "not an Arrow stream that ddpviz wrote" in refused(ValueError, load, tmp_path)
    refused(ValueError, RankWriter, tmp_path, 0)
    assert path.read_bytes() == before


def test_load_refuses_a_newer_version(tmp_path):
    written(tmp_path, batches(1))
    (tmp_path / "recording.json").write_text('{"format": "ddpviz recording", "version": 99}')
    assert "version 99" in refused(ValueError, load, tmp_path)
    (tmp_path / "recording.json").unlink()
    assert len(load(tmp_path)) == 100  # the rank's file says its version itself
    schema = pa.schema([pa.field("begin_ns", pa.int64())], {b"ddpviz": b"99"})
    with pa.ipc.new_stream(tmp_path / "rank-0000.arrow", schema):
        pass
    assert "version 99" in refused(ValueError, load, tmp_path)


def test_nothing_is_written_over_a_recording(tmp_path):
    written(tmp_path, batches(1))
    assert "already" in refused(FileExistsError, Recording().save, tmp_path)
    assert "already" in refused(FileExistsError, Recording, 100, tmp_path)


def test_a_writer_takes_its_own_rank_and_only_while_open(tmp_path):
    writer = RankWriter(tmp_path, 1)
    assert "expected rank 1" in refused(ValueError, writer, Batch(0, 0, rows(1)))
    writer.close()
    with pytest.raises(ValueError, match="rank 1 is closed: make a new one"):
        writer(Batch(1, 0, rows(1, rank=1)))


def test_the_recording_imports_no_torch_and_nothing_that_draws():
    modules = ("torch", "pandas", "bokeh", "IPython", "ipyparallel")
    program = f"import sys, ddpviz.recording; print([m for m in {modules} if m in sys.modules])"
    done = python(program)
    assert done.stdout.strip() == "[]", done.stderr
