"""Times of a device that runs behind the host, without the host waiting for it.

The device here is a clock that passes every event so much later than the host put it into the
stream; what CUDA's own events do is tested in tests/gpu. Ranks, DDP and gloo are the real ones.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ddpviz
from ddpviz.events import Clock, DeviceClock, Ended, Failure, Flag, Kind
from ddpviz.recording import Recording
from tests.fidelity import scenarios
from tests.ranks import run_ranks

STEPS = 5
#: How far the device is behind the host: longer than these steps.
LAG_NS = 20_000_000
DRIFT_PPM = 10_000.0


@dataclasses.dataclass(frozen=True)
class Passed:
    """An event that the device passes at a time; by its own, drifting clock."""

    at_ns: int

    def __deepcopy__(self, memo: object) -> Passed:
        raise TypeError("an event of a device cannot be copied")

    def query(self) -> bool:
        return time.time_ns() >= self.at_ns

    def since_ns(self, earlier: Passed) -> float:
        return (self.at_ns - earlier.at_ns) * (1 + DRIFT_PPM / 1e6)


class Behind:
    """A device that is behind the host by a time, in all streams but an idle one."""

    resolution_ns = 1

    def __init__(self, lag_ns: int) -> None:
        self.lag_ns = lag_ns
        self.freed = self.recorded = 0

    def record(self) -> Passed:
        self.recorded += 1
        return Passed(time.time_ns() + self.lag_ns)

    def anchor(self) -> Passed:
        return Passed(time.time_ns())

    def free(self, event: Passed) -> None:
        self.freed += 1


def train(
    rank: int, world_size: int, out: str, lag_ns: int, level: str = "default"
) -> dict[str, Any]:
    from ddpviz.probe.device_times import DeviceTimes

    modules = scenarios.build("plain")
    scenarios.train("plain", rank, modules, 2)
    events = Behind(lag_ns)
    attachment = ddpviz.attach(modules[0], out, level=level)
    recorder = attachment.recorder
    recorder.follow_device(
        DeviceTimes(events, recorder.write_rows, recorder.note, rank, "a device that lags")
    )
    if level == "detail":  # as where the module itself is on a device
        for state in recorder.modules.states():
            recorder.modules._ready_on_device.watch(state)
    modules[0].state_dict()  # a note, which has nothing of the device
    scenarios.train("plain", rank, modules, STEPS, first=2)
    unresolved = recorder.collectives.pending
    begin = time.monotonic()
    attachment.close()
    return {
        "unresolved": unresolved,
        "close_s": time.monotonic() - begin,
        "recorded": events.recorded,
        "freed": events.freed,
    }


@pytest.fixture(scope="module")
def lagging(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recording, list[Any]]:
    out = tmp_path_factory.mktemp("device") / "run"
    results = run_ranks(train, 2, str(out), LAG_NS)
    return ddpviz.load(out), results


def of(recording: Recording, kind: Kind, rank: int = 0) -> np.ndarray:
    return recording.records(kinds=kind, ranks=rank)


def test_spans_have_the_devices_times_and_the_hosts_beside_them(
    lagging: tuple[Recording, list[Any]],
) -> None:
    recording, _ = lagging
    for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.OPTIMIZER, Kind.FINALIZE):
        on_device = of(recording, kind)
        assert len(on_device) == STEPS
        hosts = of(recording, Kind.HOST)
        hosts = hosts[hosts["index"] == kind]
        assert len(hosts) == STEPS
        # Only the first step's first event came before there was an anchor to count from.
        late = on_device[np.argsort(on_device["step"])]["end_ns"] - np.sort(hosts["end_ns"])
        assert (on_device["clock"][1:] == Clock.CUDA).all()
        assert (abs(late - LAG_NS) < 5_000_000).all()  # a pause of the process at most


def test_a_collective_is_open_until_the_device_has_ended_it(
    lagging: tuple[Recording, list[Any]],
) -> None:
    recording, results = lagging
    assert all(one["unresolved"] for one in results)
    done = of(recording, Kind.COLLECTIVE_DONE)
    launched = of(recording, Kind.COLLECTIVE_LAUNCHED)
    assert len(done) == len(launched)
    done, launched = (np.sort(one, order="sequence") for one in (done, launched))
    assert ((done["begin_ns"] - launched["begin_ns"])[1:] > LAG_NS / 2).all()
    assert ((done["flags"] & Flag.ENQUEUED) == 0).all()
    table = recording.collectives()
    assert len(table[table["rank"] == 0]) == len(done)  # launch and end are one row
    assert table["duration_ms"].notna().all()


def test_what_is_told_of_a_step_is_of_the_device(lagging: tuple[Recording, list[Any]]) -> None:
    recording, _ = lagging
    steps = recording.steps()
    assert len(steps) == 2 * STEPS and not steps["enqueued"].any()
    assert steps["exposed_communication_ms"].notna().all()
    buckets = recording.buckets()
    assert buckets["transfer_ms"].notna().all()
    # The Reducer's own times are the host's, and say nothing of the device.
    assert buckets["full_ns"].isna().all() and buckets["filling_ms"].isna().all()


def test_the_timeline_has_a_lane_for_the_host(lagging: tuple[Recording, list[Any]]) -> None:
    from ddpviz.views.rows import build_rows
    from ddpviz.views.source import read_run

    recording, _ = lagging
    rows = build_rows(read_run(recording).source(3))
    assert [lane.label for lane in rows.lanes][:2] == ["host", "rank 0  compute"]
    kinds = [
        kind for kind, rank in zip(rows.spans["kind"], rows.spans["rank"], strict=True) if rank == 0
    ]
    assert kinds.count("host") == 3
    at = {kind: rows.spans["left"][kinds.index(kind)] for kind in ("host", "forward")}
    assert at["host"] < at["forward"]


def test_the_clock_is_described_and_events_are_used_again(
    lagging: tuple[Recording, list[Any]],
) -> None:
    recording, results = lagging
    (note,) = recording.notes(DeviceClock, rank=0)
    assert note.device == "a device that lags"
    assert note.drift_ppm == pytest.approx(DRIFT_PPM, rel=0.2)
    assert note.uncertainty_ns > 0
    assert all(one["freed"] > 0.8 * one["recorded"] > 0 for one in results)  # the last are held


def test_at_level_detail_it_is_known_when_gradients_were_there(tmp_path: Path) -> None:
    run_ranks(train, 2, str(tmp_path / "run"), LAG_NS, "detail")
    buckets = ddpviz.load(tmp_path / "run").buckets()
    buckets = buckets[buckets["step"] > 0]
    assert buckets["full_ns"].notna().all() and (buckets["filling_ms"] >= 0).all()
    assert (buckets["full_ns"] <= buckets["launched_ns"]).all()
    assert (buckets["head_of_line_ms"] >= 0).all()


class Lost(Behind):
    """A device that fails after a while: whatever is asked of it then raises."""

    def __init__(self) -> None:
        super().__init__(LAG_NS)
        self.lost = False

    def record(self) -> Any:
        self._check()
        return Broken(super().record().at_ns, self)

    def anchor(self) -> Any:
        self._check()
        return Broken(super().anchor().at_ns, self)

    def _check(self) -> None:
        if self.lost:
            raise RuntimeError("CUDA error: device-side assert triggered")


@dataclasses.dataclass(frozen=True)
class Broken(Passed):
    """An event of a device that fails."""

    device: Lost

    def query(self) -> bool:
        self.device._check()
        return time.time_ns() >= self.at_ns


def lose(rank: int, world_size: int, out: str) -> str:
    """The device fails in a forward, and training with it."""
    from ddpviz.probe.device_times import DeviceTimes

    modules = scenarios.build("plain")
    events = Lost()
    attachment = ddpviz.attach(modules[0], out)
    recorder = attachment.recorder
    recorder.follow_device(
        DeviceTimes(events, recorder.write_rows, recorder.note, rank, "a device that fails")
    )
    scenarios.train("plain", rank, modules, STEPS)

    def fail(*_: Any) -> None:
        events.lost = True
        raise RuntimeError("the forward's own error")

    handle = modules[0].module.register_forward_hook(fail)
    try:
        with attachment:
            scenarios.train("plain", rank, modules, 1, first=STEPS)
    except RuntimeError as error:
        said = str(error)
    handle.remove()
    scenarios.train("plain", rank, modules, 1, first=STEPS)  # nothing is patched any more
    return said


def test_a_device_that_fails_takes_nothing_with_it(tmp_path: Path) -> None:
    said = run_ranks(lose, 2, str(tmp_path / "run"))
    assert said == ["the forward's own error"] * 2
    recording = ddpviz.load(tmp_path / "run")
    assert len(of(recording, Kind.STEP)) == STEPS
    failed = [note.message for note in recording.notes(Failure)]
    assert failed == ["RuntimeError: the forward's own error"] * 2
    assert len(recording.notes(Ended)) == 2
    (forward,) = of(recording, Kind.FORWARD)[-1:]
    assert forward["flags"] & Flag.FAILED and forward["clock"] == Clock.HOST


def test_a_device_that_never_comes_loses_nothing_and_holds_nobody_up(tmp_path: Path) -> None:
    results = run_ranks(train, 2, str(tmp_path / "run"), 3600 * 10**9)
    recording = ddpviz.load(tmp_path / "run")
    assert all(one["close_s"] < 30 for one in results)
    assert len(of(recording, Kind.STEP)) == STEPS
    forward = of(recording, Kind.FORWARD)
    assert len(forward) == STEPS and (forward["clock"] == Clock.HOST).all()
    assert ((forward["flags"] & Flag.ENQUEUED) != 0).all()
    assert recording.steps()["enqueued"].all()
