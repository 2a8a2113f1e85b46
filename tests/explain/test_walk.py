"""Walks through real steps: what ran, in which order, what was inside, and in whose words."""

from __future__ import annotations

import inspect
import json

import pytest
from torch.nn.parallel import DistributedDataParallel

from ddpviz.events import Frame, Kind, Process
from ddpviz.events import Walk as WalkNote
from ddpviz.explain import Station, Walk, walk
from ddpviz.explain.station import Seen
from ddpviz.recording import Recording
from tests.explain.conftest import WALKED
from tests.views.samples import batches_of, construct, sample_recording

DDP = "torch/nn/parallel/distributed.py"


def find(found: Walk, name: str) -> Station:
    return next(station for _, station in found.all() if station.name == name)


def names(found: Walk) -> list[str]:
    return [station.name for _, station in found.all()]


def path(found: Walk, name: str) -> list[str]:
    """The names above a station, and its own."""
    above: list[str] = []
    for depth, station in found.all():
        del above[depth:]
        above.append(station.name)
        if station.name == name:
            return above
    raise AssertionError(f"no {name}")


def below(station: Station) -> list[str]:
    return [inner.name for _, inner in station.all()][1:]


CHAIN = [
    "Module._wrapped_call_impl",
    "Module._call_impl",
    "DistributedDataParallel.forward",
    "DistributedDataParallel._pre_forward",
    "DistributedDataParallel._sync_buffers",
    "DistributedDataParallel._sync_module_buffers",
    "DistributedDataParallel._default_broadcast_coalesced",
    "DistributedDataParallel._distributed_broadcast_coalesced",
    "_broadcast_coalesced",
]


def test_the_chain_to_the_buffer_broadcast_and_the_broadcasts_in_it(
    recordings: dict[str, Recording],
) -> None:
    for rank in (0, 1):
        found = walk(recordings["plain"], rank=rank)
        assert (found.step, found.rank, found.profiled) == (WALKED, rank, True)
        assert path(found, "_broadcast_coalesced") == CHAIN
        inner = find(found, "_broadcast_coalesced").stations
        assert [one.name for one in inner] == ["broadcast_coalesced"]
        sent = inner[0].stations
        assert [one.seen for one in sent] == [Seen.COLLECTIVE] * 2
        assert [one.detail for one in sent] == ["64 B, float32", "8 B, int64"]
        assert all(one.end_ns > one.begin_ns for one in sent)


def test_builtins_that_the_recorder_wraps_are_there_with_what_is_inside(
    recordings: dict[str, Recording],
) -> None:
    found = walk(recordings["plain"])
    pre = [one.name for one in find(found, "DistributedDataParallel._pre_forward").stations]
    assert pre == [
        "set_runtime_stats_and_log",
        "prepare_for_forward",
        "Join.notify_join_context",
        "_rebuild_buckets",
        "DistributedDataParallel._check_sync_bufs_pre_fwd",
        "DistributedDataParallel._sync_buffers",
    ]
    rebuild = find(found, "_rebuild_buckets")
    assert rebuild.detail == "bucket plan 1"
    order = find(found, "Reducer::sync_bucket_indices")
    assert order.name in below(rebuild)
    assert [one.detail.split(", ")[1] for one in order.stations] == ["int32", "int32"]


def test_nothing_of_the_recorder_is_in_it(recordings: dict[str, Recording]) -> None:
    for recording in recordings.values():
        for note in recording.notes(WalkNote):
            for frame in note.frames:
                assert frame.file.startswith("torch/") or not frame.file
                assert "ddpviz" not in frame.file
            assert "get_backward_stats" not in [frame.function for frame in note.frames]
            assert "_get_zeros_like_grad_buckets" not in [frame.function for frame in note.frames]


def test_calls_are_at_the_lines_that_make_them(recordings: dict[str, Recording]) -> None:
    found = walk(recordings["plain"])
    lines, first = inspect.getsourcelines(DistributedDataParallel._pre_forward)
    for _, station in found.all():
        if station.called_at is None:
            continue
        file, number = station.called_at
        assert station.call
        if station.name == "DistributedDataParallel._sync_buffers":
            assert (file, station.call) == (DDP, "self._sync_buffers()")
            assert lines[number - first].strip() == station.call
    assert find(found, "run_backward").called_at is not None


def test_a_backward_is_told_by_what_it_left(recordings: dict[str, Recording]) -> None:
    recording = recordings["plain"]
    engine = find(walk(recording), "run_backward")
    inside = below(engine)
    for name in (
        "Reducer::autograd_hook",
        "Reducer::mark_variable_ready",
        "Reducer::mark_variable_ready_dense",
        "Reducer::mark_bucket_ready",
        "Reducer::all_reduce_bucket",
        "Reducer::run_comm_hook",
        "Reducer::finalize_backward",
        "Reducer::copy_bucket_to_grad",
    ):
        assert name in inside
    ready = recording.records(kinds=Kind.GRAD_READY, ranks=0, steps=WALKED)
    hook = find(walk(recording), "Reducer::autograd_hook")
    assert hook.detail.startswith(f"{len(ready)} gradients, from head.bias to ")
    assert hook.begin_ns == ready["begin_ns"].min() and hook.end_ns == ready["begin_ns"].max()
    launched = recording.records(kinds=Kind.COLLECTIVE_LAUNCHED, ranks=0, steps=WALKED)
    buckets = find(walk(recording), "Reducer::run_comm_hook").stations
    assert [one.name.split("(")[1] for one in buckets] == [
        f"bucket {index})" for index in range(len(launched[launched["index"] >= 0]))
    ]


def test_a_comm_hook_stands_where_it_was_called_with_what_it_called(
    recordings: dict[str, Recording],
) -> None:
    found = walk(recordings["python_hook"])
    hooks = find(found, "Reducer::run_comm_hook").stations
    assert [one.name for one in hooks] == ["Your comm hook"] * 3
    for number, hook in enumerate(hooks):
        assert hook.detail.startswith(f"bucket {number}, ")
        (reduced,) = [one for one in hook.stations if one.name == "all_reduce"]
        (handed,) = reduced.stations
        assert (handed.name, handed.seen) == ("allreduce", Seen.RAN)
        assert handed.stations[0].name.endswith(f"(bucket {number})")


def test_what_did_not_run_is_not_there(recordings: dict[str, Recording]) -> None:
    plain = names(walk(recordings["plain"]))
    assert "Reducer::search_unused_parameters" not in plain
    assert "_DDPSink.forward" not in plain
    unused = names(walk(recordings["find_unused"]))
    assert {"Reducer::search_unused_parameters", "_DDPSink.forward"} <= set(unused)
    assert {"_DDPSink.backward", "Reducer::all_reduce_local_used_map"} <= set(unused)
    assert "Reducer::rebuild_buckets" not in unused
    later = names(walk(recordings["plain"], step=2))
    assert "Reducer::rebuild_buckets" not in later


def test_a_static_graphs_first_iteration_reduces_behind_the_backward(
    recordings: dict[str, Recording],
) -> None:
    found = walk(recordings["static_graph"], step=0)
    assert "Reducer::delay_all_reduce" in names(found)
    assert "Reducer::autograd_hook" not in names(found)
    launched = find(found, "Reducer::all_reduce_bucket")
    assert path(found, "Reducer::all_reduce_bucket")[-2] == "Reducer::finalize_backward"
    assert [one.name.split("(")[1] for one in launched.stations] == ["bucket 0)"]


def test_join_and_no_sync_show_what_they_change(recordings: dict[str, Recording]) -> None:
    joined = walk(recordings["join"])
    assert find(joined, "DistributedDataParallel._find_common_rank").detail == "rank 1"
    assert "_set_forward_pass_work_handle" in names(joined)
    twice = walk(recordings["no_sync"])
    forwards = [one for _, one in twice.all() if one.name == "DistributedDataParallel.forward"]
    assert [one.detail for one in forwards] == ["in no_sync", ""]
    assert "prepare_for_backward" not in below(forwards[0])
    assert "prepare_for_backward" in below(forwards[1])


def test_without_followed_functions_it_goes_through_the_spans(
    recordings: dict[str, Recording],
) -> None:
    found = walk(recordings["plain"], step=2)
    assert not found.profiled
    assert "session.walk()" in found.remarks[0]
    assert path(found, "DistributedDataParallel._sync_buffers") == [
        "DistributedDataParallel.forward",
        "DistributedDataParallel._pre_forward",
        "DistributedDataParallel._sync_buffers",
    ]
    assert {one.seen for _, one in found.all()} == {Seen.RECORDED, Seen.SHOWN, Seen.COLLECTIVE}
    assert below(find(found, "Reducer::finalize_backward")) == [
        "Reducer::finalize_bucket_dense",
        "Reducer::copy_bucket_to_grad",
    ]


def test_a_construction_has_its_six_steps_and_their_collectives(
    recordings: dict[str, Recording],
) -> None:
    found = walk(recordings["plain"], step=-1)
    (whole,) = found.stations
    assert [one.name for one in whole.stations] == [
        "Step 1: the process group",
        "_BucketCapacityConfig.create",
        "DistributedDataParallel._build_params_for_reducer",
        "_verify_param_shape_across_processes",
        "_sync_module_states",
        "DistributedDataParallel._ddp_init_helper",
        "Step 6: options",
    ]
    sent = [one.name.split(" ")[0] for _, one in found.all() if one.seen is Seen.COLLECTIVE]
    assert sent == ["allgather", "broadcast", "broadcast", "broadcast"]
    assert "derived" in whole.stations[0].detail


def test_every_station_of_ddps_own_is_explained(recordings: dict[str, Recording]) -> None:
    """But for helpers that only fetch something."""
    fetching = {"buffer", "get_future"}
    for mode, recording in recordings.items():
        for _, station in walk(recording).all():
            if station.file in (DDP, "") and station.name not in fetching:
                assert station.entry is not None, (mode, station.name)


def test_places_and_links_are_those_of_the_installed_torch(
    recordings: dict[str, Recording],
) -> None:
    found = walk(recordings["plain"])
    forward = find(found, "DistributedDataParallel.forward")
    _, first = inspect.getsourcelines(DistributedDataParallel.forward)
    assert forward.place == f"{DDP}:{first}"
    assert f"{DDP}#L{first}-L" in forward.link
    assert forward.article_link.endswith(f"/9b980e3f/{DDP}#L1826")
    broadcast = find(found, "broadcast_coalesced")
    assert broadcast.place == "torch/csrc/distributed/c10d/comm.cpp near line 62"
    assert broadcast.source is None
    assert find(found, "prepare_for_forward").place == ""


def test_as_text_each_thing_is_explained_once(recordings: dict[str, Recording]) -> None:
    found = walk(recordings["plain"])
    text = str(found)
    assert text.startswith(f"step {WALKED} of rank 0, ")
    for _, station in found.all():
        assert station.name in text
    assert text.count("Three flags decide.") == 1
    assert text.count("Three flags decide (above)") == 1
    assert "self._sync_buffers()" in text
    explained = [line for line in text.splitlines() if not line.strip().startswith("torch/")]
    assert max(len(line) for line in explained if "https://" not in line) <= 110


def test_as_json_it_has_every_station(recordings: dict[str, Recording]) -> None:
    found = walk(recordings["plain"])
    data = json.loads(json.dumps(found.to_json()))
    assert (data["step"], data["rank"], data["functions_that_ran"]) == (WALKED, 0, True)

    def count(stations: list[dict[str, object]]) -> int:
        return sum(1 + count(one["stations"]) for one in stations)  # type: ignore[arg-type]

    assert count(data["stations"]) == len(list(found.all()))
    first = data["stations"][0]
    assert first["begin_ms"] >= 0 and first["end_ms"] > first["begin_ms"]
    assert set(first["explanation"]) == {"title", "what", "cost", "how_to_change", "risk"}


def hostile() -> Recording:
    """A recording whose names are markup."""
    return sample_recording(parameter="<script>alert({index})</script>")


def test_as_html_everything_is_escaped_and_nothing_is_fetched(
    recordings: dict[str, Recording],
) -> None:
    found = walk(hostile())
    assert "<script>" in str(found)
    for html in (found._repr_html_(), found.to_html()):
        assert "<script" not in html
        assert "&lt;script&gt;alert(" in html
    page = walk(recordings["plain"]).to_html()
    assert "<link" not in page and " src=" not in page
    assert "self._sync_buffers()" in page  # torch's own line
    assert page.count("<details") == page.count("</details>")


def test_which_step_it_is_by_default(recordings: dict[str, Recording]) -> None:
    assert walk(recordings["plain"]).step == WALKED
    assert walk(sample_recording(steps=3)).step == 2
    only_built = Recording()
    for batch in batches_of(sample_recording(steps=1)):
        kept = batch.records[batch.records["kind"] == Kind.CONFIGURED]
        only_built.append(type(batch)(batch.rank, 0, kept, batch.notes))
    construct(only_built, -50, -10)
    assert walk(only_built).step == -1


@pytest.mark.parametrize(
    ("step", "rank", "said"),
    [
        (99, 0, "found no step 99 in the recording, expected 0 to 2"),
        (-5, 0, "found no step -5 in the recording, expected 0 to 2"),
        (0, 7, "found no rank 7 in the recording, expected one of: 0, 1"),
    ],
)
def test_what_was_not_recorded_is_said(step: int, rank: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        walk(sample_recording(steps=3), step, rank)


def _with(recording: Recording, torch: str, device: str, frames: tuple[Frame, ...]) -> Recording:
    """The same, from another torch or device, with a walk of step 0."""
    other = Recording()
    for batch in batches_of(recording):
        notes = [note for note in batch.notes if not isinstance(note, Process)]
        (process,) = [note for note in batch.notes if isinstance(note, Process)]
        process = Process(
            process.rank, process.world_size, 1, "h", torch, "3.11", device, 0, "default"
        )
        notes += [WalkNote(0, 0, 0, frames)] if frames else []
        other.append(type(batch)(batch.rank, 0, batch.records, (process, *notes)))
    return other


def test_another_torch_and_a_gpu_are_remarked() -> None:
    begin = int(sample_recording(steps=1).records(kinds=Kind.STEP, ranks=0)["begin_ns"][0])
    frames = (Frame(0, DDP, "forward", 1, 0, begin, begin + 1000),)
    found = walk(_with(sample_recording(steps=1), "2.6.0", "NVIDIA H200", frames))
    assert found.profiled
    assert any("torch 2.6.0; lines are those of torch" in remark for remark in found.remarks)
    assert any("autograd's own thread" in remark for remark in found.remarks)
    assert all(len(remark) < 200 for remark in found.remarks)


def test_a_function_without_its_class_is_found_by_its_line() -> None:
    """As Python 3.10 gives them."""
    begin = int(sample_recording(steps=1).records(kinds=Kind.STEP, ranks=0)["begin_ns"][0])
    _, first = inspect.getsourcelines(DistributedDataParallel._post_forward)
    frames = (
        Frame(0, DDP, "_post_forward", first, 0, begin, begin + 1000),
        Frame(1, "", "prepare_for_backward", 0, first + 24, begin + 10, begin + 20),
    )
    found = walk(_with(sample_recording(steps=1), "2.13.0", "cpu", frames))
    outer = find(found, "DistributedDataParallel._post_forward")
    assert outer.entry is not None and outer.place == f"{DDP}:{first}"
    assert find(found, "Reducer::prepare_for_backward").seen is Seen.SHOWN


def test_a_recording_walks_itself(recordings: dict[str, Recording]) -> None:
    assert recordings["plain"].walk() == walk(recordings["plain"])
    assert recordings["plain"].walk(2, rank=1) == walk(recordings["plain"], 2, 1)


def test_of_steps_that_have_not_ended_it_is_said_which_may_be_asked_for() -> None:
    source = Recording()
    for batch in batches_of(sample_recording(steps=2)):
        kept = batch.records[batch.records["kind"] != Kind.STEP]
        source.append(type(batch)(batch.rank, 0, kept, batch.notes))
    with pytest.raises(ValueError, match="of step 1 there is something: ask for it"):
        walk(source)
    with pytest.raises(ValueError, match="found no rank in the recording"):
        walk(Recording())


def test_by_default_it_is_of_the_lowest_rank_there_is() -> None:
    source = Recording()
    for batch in batches_of(sample_recording(steps=2)):
        if batch.rank == 1:
            source.append(type(batch)(1, 0, batch.records, batch.notes))
    assert walk(source).rank == 1
