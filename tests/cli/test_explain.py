"""``ddpviz explain`` and ``ddpviz claims``."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from ddpviz.demonstrations import demonstrations
from ddpviz.explain import claims
from tests.cli.command import ddpviz
from tests.cli.conftest import Demo
from tests.cli.test_errors import assert_one_line


def test_a_recordings_last_step_is_explained(demo: Demo) -> None:
    done = ddpviz("explain", demo.folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"step {demo.steps - 1} of rank 0, ")
    assert "note: no functions were followed in this step" in done.stdout
    assert "DistributedDataParallel._sync_buffers" in done.stdout
    assert "torch/nn/parallel/distributed.py:" in done.stdout
    assert "Cost: " in done.stdout and "Change: " in done.stdout and "Risk: " in done.stdout


def test_as_json_and_of_another_step_and_rank(demo: Demo) -> None:
    done = ddpviz("explain", demo.folder, "--step", "-1", "--rank", "1", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["step"], found["rank"]) == (-1, 1)
    assert found["stations"][0]["name"] == "DistributedDataParallel.__init__"


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--step", "99"], "found no step 99"), (["--rank", "7"], "found no rank 7")],
)
def test_what_was_not_recorded(demo: Demo, options: list[str], said: str) -> None:
    assert_one_line(ddpviz("explain", demo.folder, *options), said)


def test_a_trace_without_events_is_refused_in_a_sentence(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text('{"traceEvents": []}')
    with gzip.open(tmp_path / "other.pt.trace.json.gz", "wt") as file:
        file.write('{"traceEvents": []}')
    for path in (trace, tmp_path / "other.pt.trace.json.gz", tmp_path):
        assert_one_line(
            ddpviz("explain", path),
            "ddpviz explain: found ",
            "expected a profiler trace of some steps: record it again",
        )


def test_what_is_no_recording(tmp_path: Path) -> None:
    assert_one_line(ddpviz("explain", tmp_path), "expected a directory that ddpviz recorded into")
    assert_one_line(ddpviz("explain", tmp_path / "nothing"), "found nothing at")


def test_claims_prints_every_claim_with_its_verdict_and_proof() -> None:
    done = ddpviz("claims")
    assert done.returncode == 0, done.stderr
    for claim in claims():
        assert f"{claim.id}  [{claim.verdict}]" in done.stdout
        assert claim.proof in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    one = ddpviz("claims", "two-in-flight")
    assert "two-in-flight" in one.stdout and "six-steps" not in one.stdout
    wrong = ddpviz("claims", "two-in-fligth")
    assert wrong.returncode == 2
    assert "found no claim 'two-in-fligth': did you mean 'two-in-flight'?" in wrong.stderr
    found = json.loads(ddpviz("claims", "--json").stdout)
    assert [one["id"] for one in found["claims"]] == [claim.id for claim in claims()]
    named = {name for one in found["claims"] for name in one["demonstrations"]}
    assert named == {one.name for one in demonstrations() if one.claims}
    assert all(f'session.demonstrate("{name}")' in done.stdout for name in named)
    assert {one["verdict"] for one in found["claims"]} == {
        "true",
        "true with a caveat",
        "outdated",
        "wrong",
    }


def test_a_torch_that_claims_were_not_checked_on_is_said() -> None:
    first = claims()[0]
    assert first.checked_text("2.13.0+cpu") == "2.13.0, 2.15.0"
    assert first.checked_text("2.99.0") == "2.13.0, 2.15.0; not on 2.99.0, which is installed here"
