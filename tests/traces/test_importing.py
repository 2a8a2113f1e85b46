"""What real traces become: the same facts as a recording of the same run would have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ddpviz
from ddpviz.events import Clock, Flag, Kind, Plan
from ddpviz.export.pictures import title_of
from ddpviz.export.single import single
from ddpviz.export.tables import plans_section
from ddpviz.recording import Recording
from ddpviz.views.source import read_run
from tests.traces.made import event, trace, written
from tests.traces.recorded import BYTES, MODES, PARAMETERS, STEPS
from tests.views.frames import Framed


def both(own: Path, mode: str) -> Recording:
    return ddpviz.load([own / f"{mode}.rank{rank}.json" for rank in (0, 1)])


@pytest.mark.parametrize("mode", MODES)
def test_every_step_of_both_ranks_is_there(own: Path, mode: str) -> None:
    recording = both(own, mode)
    steps = recording.steps()
    assert len(steps) == 2 * STEPS and set(steps["rank"]) == {0, 1}
    assert steps[["step_ms", "forward_ms", "backward_ms", "optimizer_ms"]].notna().all(axis=None)
    parts = steps["forward_ms"] + steps["backward_ms"] + steps["optimizer_ms"]
    assert (parts <= steps["step_ms"]).all()
    records = recording.records()
    assert set(records["clock"]) == {Clock.PROFILER}
    inferred = (Kind.STEP, Kind.BACKWARD, Kind.FINALIZE, Kind.GRAD_READY, Kind.BUFFER_SYNC)
    assert ((records["flags"] & Flag.INFERRED) != 0)[np.isin(records["kind"], inferred)].all()


@pytest.mark.parametrize("mode", ["stack", "views"])
def test_buckets_of_the_first_step_and_after_the_rebuild(own: Path, mode: str) -> None:
    recording = both(own, mode)
    plans = recording.notes(Plan, rank=1)
    assert [plan.reason for plan in plans] == ["attached", "rebuild"]
    assert [len(plan.buckets) for plan in plans] == [1, 2]
    assert all(sum(bucket.bytes for bucket in plan.buckets) == BYTES for plan in plans)
    assert [[len(bucket.parameters) for bucket in plan.buckets] for plan in plans] == [[8], [4, 4]]
    found = recording.collectives()
    mine = found[(found["rank"] == 0) & (found["step"] == 1)]
    assert mine["cause"].tolist() == ["rebuild_order"] * 2 + ["buffers"] * 2 + ["bucket"] * 2
    assert mine["dtype"].tolist()[:4] == ["int32", "int32", "float32", "int64"]
    assert mine["bytes"].tolist()[2:4] == [2 * 256 * 4, 8]
    assert set(recording.buckets()["unsplit"]) == {""}
    inferred = [{"cause", "bucket"} & set(one.split(",")) for one in found["derived"]]
    of = [{"cause", "bucket"} if bucket >= 0 else {"cause"} for bucket in found["bucket"]]
    assert inferred == of  # no trace says either
    assert all("bucket,parameters" in of for of in recording.buckets()["derived"])
    hovers = Framed(read_run(recording).source(1)).spans["detail"]
    assert hovers.str.contains("which bucket and parameters: inferred from the trace").sum() >= 4


def test_without_shapes_causes_are_the_same_and_sizes_are_said_to_be_missing(own: Path) -> None:
    with_shapes, without = both(own, "stack"), both(own, "eager")
    columns = ["rank", "step", "cause", "op", "bucket"]
    assert without.collectives()[columns].equals(with_shapes.collectives()[columns])
    assert any("the trace has no sizes" in one for one in without.remarks)
    assert any("gradients copied in before each launch" in one for one in without.remarks)
    page = plans_section(without)
    assert "0 B" not in page and "<td>–</td>" in page
    assert " KiB</td>" in plans_section(with_shapes)
    assert any("add up to each bucket's bytes" in one for one in with_shapes.remarks)


def test_no_sync_steps_reduce_nothing_and_the_next_forward_syncs_nothing(own: Path) -> None:
    recording = both(own, "no_sync")
    steps = recording.steps()
    mine = steps[steps["rank"] == 0]
    assert mine["buckets"].tolist() == [0, 1, 0, 2, 0]
    assert mine["buffer_broadcasts"].tolist() == [2, 0, 2, 0, 2]
    forward = recording.records(kinds=Kind.FORWARD, ranks=0)
    assert ((forward["flags"] & Flag.NO_SYNC) != 0).tolist() == [True, False, True, False, True]


def test_find_unused_sends_the_map_of_used_parameters_and_never_rebuilds(own: Path) -> None:
    recording = both(own, "unused")
    found = recording.collectives()
    causes = found[found["rank"] == 1].groupby("step")["cause"].apply(list)
    assert set(map(tuple, causes)) == {("buffers", "buffers", "bucket", "bucket", "used_map")}
    assert len(recording.notes(Plan, rank=0)) == 1


@pytest.mark.parametrize("mode", MODES)
def test_gradients_fill_their_buckets(own: Path, mode: str) -> None:
    recording = both(own, mode)
    ready = recording.records(kinds=Kind.GRAD_READY, ranks=0)
    reduced = recording.steps().query("rank == 0 and buckets > 0")["step"]
    for step in reduced:
        assert sorted(ready["index"][ready["step"] == step].tolist()) == list(range(PARAMETERS))
    buckets = recording.buckets()
    assert (buckets["filling_ms"] >= 0).all()
    assert (buckets["launched_ns"] >= buckets["full_ns"]).all()


def test_buckets_are_launched_before_the_finalize_that_waits_for_them_ends(own: Path) -> None:
    recording = both(own, "stack")
    finalize = recording.records(kinds=Kind.FINALIZE, ranks=0)
    done = recording.records(kinds=Kind.COLLECTIVE_DONE, ranks=0)
    for one in finalize:
        mine = done[(done["iteration"] == one["iteration"]) & (done["index"] >= 0)]
        assert len(mine) == one["index"]
        assert (mine["begin_ns"] < one["end_ns"]).all()


def test_views_and_page_are_made_from_a_trace(own: Path) -> None:
    from ddpviz.export.page import page

    recording = both(own, "stack")
    assert recording.timeline(2) is not None
    text = page(recording)
    assert "2 ranks" in text and "5 steps" in text and "bucket plans are inferred" in text


def test_views_of_what_a_trace_does_not_tell_say_so(own: Path) -> None:
    """And not how a recording would have had it."""
    recording = both(own, "stack")
    for view, what in (
        ("construction", "how a DDP module was constructed"),
        ("forward_graph", "which parameters a forward uses"),
        ("compile", "what was compiled"),
        ("replicas", "whether the replicas are equal"),
    ):
        told = title_of(single(recording, view, None))
        assert f"a trace does not tell {what}: a session or ddpviz.attach" in told
    assert set(recording.finalize()["copy"]) == {"a trace does not tell its module's configuration"}


def test_saved_and_loaded_again_it_is_the_same(own: Path, tmp_path: Path) -> None:
    recording = both(own, "stack")
    recording.save(tmp_path / "saved")
    again = ddpviz.load(tmp_path / "saved")
    assert again.steps().equals(recording.steps())


def test_traces_of_others_gpu(handed_over: Path) -> None:
    recording = ddpviz.load(handed_over / "gpu_nccl_ddp_rank0of2.json.gz")
    steps = recording.steps()
    assert steps["step"].tolist() == [4, 5, 6]
    assert set(steps["buckets"]) == {5} and set(steps["buffer_broadcasts"]) == {2}
    assert set(steps["bucket_bytes"]) == {102_228_128} and set(steps["buffer_bytes"]) == {212_904}
    assert steps["exposed_communication_ms"].notna().all()
    (plan,) = recording.notes(Plan)
    assert [len(bucket.parameters) for bucket in plan.buckets] == [2, 15, 12, 51, 81]
    assert any("times are those of the GPU's streams" in one for one in recording.remarks)


def test_traces_of_others_cpu(handed_over: Path) -> None:
    paths = sorted(handed_over.glob("cpu_gloo_ddp_rank*of2.json.gz"))
    recording = ddpviz.load(paths)
    steps = recording.steps()
    assert len(steps) == 80
    assert set(steps["buckets"]) == {4} and set(steps["buffer_broadcasts"]) == {2}
    (plan,) = recording.notes(Plan, rank=1)
    assert sum(len(bucket.parameters) for bucket in plan.buckets) == 64


def test_a_row_that_is_missing_leaves_other_steps_as_they_are(tmp_path: Path) -> None:
    """One run of an all-reduce is not in the trace: nothing says which of its step's it was."""
    whole = trace(steps=6)
    lost = {**whole, "traceEvents": list(whole["traceEvents"])}
    runs = [at for at, one in enumerate(lost["traceEvents"]) if one["name"] == "gloo:all_reduce"]
    del lost["traceEvents"][runs[5]]  # the second of step 2
    recordings = {
        name: ddpviz.load(written(tmp_path / f"{name}.rank0.json", content))
        for name, content in {"whole": whole, "lost": lost}.items()
    }
    tables = {
        name: one.collectives().set_index(["step", "cause", "sequence"])["duration_ms"]
        for name, one in recordings.items()
    }
    lacking = tables["lost"][tables["lost"].isna()]
    assert len(lacking) == 2 and set(lacking.index.get_level_values("step")) == {2}
    known = tables["lost"].dropna()
    assert known.equals(tables["whole"].loc[known.index])
    said = [one for one in recordings["lost"].remarks if "lacks rows of collectives" in one]
    assert len(said) == 1 and "2 of " in said[0]
    assert not [one for one in recordings["whole"].remarks if "lacks rows" in one]


@pytest.mark.parametrize("after_us", [350.0, 600.0, 850.0])
def test_a_step_that_the_trace_cuts_has_no_end_and_changes_no_median(
    tmp_path: Path, after_us: float
) -> None:
    """It ends in the middle of a backward, before its buckets or after some of them."""
    whole = trace(steps=5)
    until = 1000.0 + 2000 * 4 + after_us
    kept = [one for one in whole["traceEvents"] if one["ts"] + one["dur"] <= until]
    full = ddpviz.load(written(tmp_path / "full.rank0.json", trace(steps=4)))
    cut = ddpviz.load(written(tmp_path / "cut.rank0.json", {**whole, "traceEvents": kept}))
    steps = cut.steps()
    assert steps["step"].tolist() == [0, 1, 2, 3, 4]
    assert steps["step_ms"].isna().tolist() == [False] * 4 + [True]
    columns = ["step_ms", "hidden_communication_ms", "exposed_communication_ms"]
    assert steps[:4][columns].equals(full.steps()[columns])
    assert cut.plans().equals(full.plans())
    assert not (cut.records(kinds=Kind.FORWARD, steps=4)["flags"] & Flag.NO_SYNC).any()
    assert any("ends within step 4, which has no optimizer" in one for one in cut.remarks)
    assert not any("buckets were launched with no gradient" in one for one in cut.remarks)
    assert not any("ends within step" in one for one in full.remarks)


def test_a_micro_batch_without_an_optimizer_is_no_cut_step(tmp_path: Path) -> None:
    """The profiler numbers micro-batches, and every second one has an optimizer."""
    content = trace(steps=5)
    events = [
        one
        for at, one in enumerate(content["traceEvents"])
        if one["name"] != "Optimizer.step#SGD.step" or int(one["ts"] - 1000) // 2000 % 2
    ]
    events += [
        event(f"ProfilerStep#{number}", 990.0 + 2000 * number, 1500, "user_annotation")
        for number in range(5)
    ]
    recording = ddpviz.load(
        written(tmp_path / "trace.rank0.json", {**content, "traceEvents": events})
    )
    assert recording.steps()["step_ms"].notna().all()
    assert not any("ends within step" in one for one in recording.remarks)


def test_a_collective_that_runs_on_into_the_next_forward_is_no_missing_row(tmp_path: Path) -> None:
    """The program reduces something of its own, and waits for it a step later."""
    content = trace(steps=5)
    own = [
        one
        for number in range(5)
        for one in (
            event("c10d::allreduce_", 1000.0 + 2000 * number + 1010, 10),
            event("gloo:all_reduce", 1000.0 + 2000 * number + 2005, 20, "user_annotation", 2),
        )
    ]
    events = [*content["traceEvents"], *own]
    recording = ddpviz.load(
        written(tmp_path / "trace.rank0.json", {**content, "traceEvents": events})
    )
    assert recording.collectives()["duration_ms"].notna().all()
    assert not any("lacks rows" in one for one in recording.remarks)
