"""``ddpviz audit``: its exit status says whether anything is wrong, its text and JSON say what."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ddpviz.analysis.audit import KINDS
from ddpviz.cli import main
from tests.audit import faults
from tests.audit.recorded import recordings
from tests.cli.command import ddpviz
from tests.cli.conftest import Demo


def test_a_healthy_run_has_exit_status_0(demo: Demo) -> None:
    done = ddpviz("audit", demo.folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("No findings.\n")
    assert "unchecked  no fingerprints were taken" in done.stdout


def test_a_fault_has_exit_status_1_and_all_that_is_known_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    recordings({"unused_layer": faults.backwards.unused_layer})["unused_layer"].save(folder)
    done = ddpviz("audit", folder)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("1. wrong numbers: bucket 0 never completed on ranks 0, 1")
    for line in ("since      step 1", "ranks      0, 1", "names      second.weight, second.bias"):
        assert line in done.stdout
    assert "(view countdown, step 1)" in " ".join(done.stdout.split())
    done = ddpviz("audit", folder, "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    (finding,) = told["findings"]
    assert finding["kind"] == "bucket-incomplete" and finding["kind"] in KINDS
    assert finding["names"] == ["second.weight", "second.bias"] and finding["since_step"] == 1
    assert finding["severity"] == "wrong numbers" and finding["sure"] == "certain"
    assert told["ranks"] == [0, 1] and told["not_checked"] == []


def test_the_status_tells_what_was_found_also_where_nobody_reads_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A note is a finding, and `ddpviz audit RECORDING | head` a way to ask."""
    recordings({"local_sgd": faults.replicas.local_sgd})["local_sgd"].save(tmp_path / "run")
    assert main(["audit", str(tmp_path / "run")]) == 1
    assert capfd.readouterr().out.startswith("1. note: ")
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "ddpviz.cli", "audit", str(tmp_path / "run")]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_what_is_no_recording_has_exit_status_2(tmp_path: Path) -> None:
    done = ddpviz("audit", tmp_path / "nothing")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("ddpviz audit: ") and done.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def parted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose replicas part, which its notes alone tell."""
    folder = tmp_path_factory.mktemp("parted") / "run"
    recordings({"learning_rate": faults.replicas.learning_rate})["learning_rate"].save(folder)
    return folder


@pytest.mark.parametrize("damage", ["third", "emptied", "gone"])
def test_of_damaged_notes_it_is_said_what_was_not_checked(
    parted: Path, tmp_path: Path, damage: str
) -> None:
    whole = ddpviz("audit", parted, "--json")
    assert whole.returncode == 1 and json.loads(whole.stdout)["complete"]
    folder = tmp_path / "run"
    shutil.copytree(parted, folder)
    file = folder / "rank-0001.notes.jsonl"
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 3] if damage == "third" else b"")
    if damage == "gone":
        file.unlink()
    told = json.loads(ddpviz("audit", folder, "--json").stdout)
    assert not told["complete"] and told["remarks"]
    not_checked = {one["kind"]: one["why"] for one in told["not_checked"]}
    assert not_checked["replicas-parted"] == "not all notes of rank 1 are here"
    assert {"models-differ", "straggler", "gradients-differ", "hook-not-mean"} <= {*not_checked}


@pytest.mark.parametrize("damage", ["half", "gone"])
def test_of_a_damaged_file_nothing_is_concluded(demo: Demo, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(demo.folder, folder)
    file = folder / "rank-0001.arrow"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    if damage == "gone":
        file.unlink()
    done = ddpviz("audit", folder, "--json")
    told = json.loads(done.stdout)
    assert (told["findings"], done.returncode) == ([], 0)
    not_checked = {one["kind"]: one["why"] for one in told["not_checked"]}
    assert not_checked["step-counts"] == "not all is here that was recorded of rank 1"
    assert len(told["remarks"]) == 1
