"""What goes wrong while a failure's records are saved is added to the error, never put for it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ddpviz
from ddpviz.engines import RankFailed, Session
from ddpviz.events import Failure
from tests.faults.expect import base, failing_run, whole, works_again
from tests.faults.workload import FAULT_STEP, faulty


def test_a_directory_that_cannot_be_used_hides_nothing(session: Session, tmp_path: Path) -> None:
    session.load(faulty, mode="exit", fault=str(tmp_path / "fault"))
    first = base(session)
    away = session.directory.with_name("away")
    session.directory.rename(away)
    session.directory.write_text("a file where the directory was")
    error = failing_run(session, tmp_path / "fault")
    assert error.rank == 1 and error.reason == "its process exited with status 3"
    assert " or later" in error.summary
    assert error.step <= first + FAULT_STEP and error.doing == ""
    remarks = "\n".join(f"  {remark}" for remark in error.remarks)
    assert "the records of rank 1 were not made whole (FileExistsError" in remarks
    assert "what had not been sent yet was not taken in (NotADirectoryError" in remarks
    assert f"call session.recording.merge('{session.directory}')" in remarks
    assert remarks in str(error)
    assert session.recording.notes(Failure)[-1].rank == 1

    # The new ranks cannot write there either; that is said too, and ends nothing for good.
    with pytest.raises(RankFailed, match="FileExistsError"):
        session.restart()
    session.directory.unlink()
    away.rename(session.directory)
    session.recording.merge(session.directory)
    whole(session, 1, first, first + FAULT_STEP)
    works_again(session)
    assert ddpviz.load(session.directory).last_step == session.recording.last_step


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """For root too: a mount over it. Who has its files open already writes on."""
    mounts = ["mount", "--bind", directory, directory], ["mount", "-oremount,bind,ro", directory]
    if any(subprocess.run(command, capture_output=True).returncode for command in mounts):
        subprocess.run(["umount", directory], capture_output=True)
        pytest.skip("needs the right to mount")
    try:
        yield
    finally:
        subprocess.run(["umount", directory], check=True)


def test_files_that_cannot_be_written_are_read_all_the_same(
    session: Session, tmp_path: Path
) -> None:
    session.load(faulty, mode="exit", fault=str(tmp_path / "fault"))
    first = base(session)
    with read_only(session.directory):
        error = failing_run(session, tmp_path / "fault")
    assert (error.rank, error.step) == (1, first + FAULT_STEP)
    assert error.reason == "its process exited with status 3"
    (remark,) = error.remarks
    assert "the records of rank 1 were not made whole (OSError: [Errno 30]" in remark
    whole(session, 1, first, first + FAULT_STEP)
    again = base(session)
    works_again(session)
    whole(session, 1, first, first + FAULT_STEP)
    whole(session, 1, again, again + 3)
