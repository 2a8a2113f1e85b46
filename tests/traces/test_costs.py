"""What costs a step, and whose cost it is: runs in which something is to be found."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from ddpviz.explain.story import Story, tell
from ddpviz.explain.story.cost import Cost
from ddpviz.traces import read
from ddpviz.traces.skew import chronic
from tests.traces.made import GLOO, event, trace, written
from tests.traces.recorded import LONG


def told(odd: Path, name: str, rank: int = 0) -> Story:
    return tell(read([odd / f"{name}.rank{one}.json" for one in (0, 1)]), rank)


def cost(story: Story, name: str) -> Cost:
    (found,) = [one for one in story.costs if one.name == name]
    return found


def names(story: Story) -> list[str]:
    return [one.name for one in story.costs]


def test_a_late_rank_is_waited_for_and_its_buffers_do_not_pay_for_it(odd: Path) -> None:
    """Rank 1 sleeps 30 ms between its steps: rank 0 waits for it where they meet next."""
    found = told(odd, "late")
    first = found.costs[0]
    assert first.name == "waiting for rank 1"
    assert re.search(rf"which comes last in [{LONG - 1}{LONG}] of {LONG} steps", first.sentence)
    assert "at its buffers" in first.sentence
    assert re.search(r"between its steps it takes \d+ ms, where rank 0 takes", first.sentence)
    assert cost(found, "broadcasting buffers").ms < first.ms
    other = told(odd, "late", rank=1)
    assert "waiting for rank 0" not in names(other)
    between = cost(other, "between steps")
    assert between.ms >= 30 and "the other ranks wait for it" in between.sentence


@pytest.mark.parametrize(
    ("last", "late"),
    [
        ([(1, 10)] * 6, 1),
        ([(1, 10)] * 5, None),
        ([(1, 10)] * 3 + [(0, 10)] * 3, None),
        ([(1, 10)] * 22 + [(0, 10)] * 18, None),
        ([(1, 10)] * 30 + [(0, 10)] * 10, 1),
        ([(1, 10)] * 11 + [(0, 10)] * 7, None),
        ([(1, 10)] * 7 + [(0, 1)], 1),  # late by much, the other once by little
        ([(1, 10)] * 7 + [(0, 10)], None),
        ([(1, 10**9)] + [(0, 10)] * 3 + [(1, 10)] * 4, None),  # late once
        ([], None),
    ],
)
def test_a_rank_is_late_only_where_chance_does_not_make_it(
    last: list[tuple[int, int]], late: int | None
) -> None:
    assert chronic(last, ranks=2) == late


def test_chance_is_that_among_all_ranks() -> None:
    """Of 8 ranks one is last in 4 of 6 steps by chance far less often than of 2."""
    last = [(3, 10)] * 4 + [(1, 10)] * 2
    assert chronic(last, ranks=8) == 3 and chronic(last, ranks=2) is None


def test_skew_counts_steps_and_not_launches(odd: Path) -> None:
    for one in told(odd, "accumulating").skews:
        assert one.times == LONG and sum(times for _, times in one.last) == LONG


def test_the_gap_between_steps_has_no_collectives_in_it(tmp_path: Path) -> None:
    """1000 µs between steps, of which 400 are an all-reduce of the program's."""
    content = trace(steps=6)
    for number in range(6):
        end = 1000.0 + 2000 * number + 1000
        content["traceEvents"] += [
            event("c10d::allreduce_", end + 100, 390),
            event("gloo:all_reduce", end + 110, 390, "user_annotation", GLOO),
        ]
    found = tell(read(written(tmp_path / "trace.json", content)))
    assert cost(found, "between steps").ms == pytest.approx(0.6)
    own = cost(found, "the program's own collectives")
    assert own.ms == pytest.approx(0.4) and "1 all-reduce" in own.sentence


def test_accumulating_without_no_sync_is_named(odd: Path) -> None:
    found = cost(told(odd, "accumulating"), "reducing more often than stepping")
    assert "gradients are reduced 3 times for each step of the optimizer" in found.sentence
    assert "no_sync()" in found.change and "unequal" in found.risk
    for name in ("two", "late", "hook"):
        assert "reducing more often than stepping" not in names(told(odd, name))


def test_what_is_on_is_not_advised(odd: Path) -> None:
    found = cost(told(odd, "views"), "copying gradients in")
    assert "set_to_none=False" in found.change
    assert "copying gradients back" not in names(told(odd, "views"))
    assert (
        "`gradient_as_bucket_view=True`" in cost(told(odd, "late"), "copying gradients in").change
    )


def test_a_comm_hook_and_two_modules_are_noticed(odd: Path) -> None:
    found = " ".join(told(odd, "hook").remarks)
    assert "they are float32, and their buckets are sent as float16" in found
    assert not any("comm hook" in one for one in told(odd, "two").remarks)
    assert any("2 different sets of gradients" in one for one in told(odd, "two").remarks)
    assert not any("sets of gradients" in one for one in told(odd, "accumulating").remarks)


def of_gpu(content: dict[str, Any], kernels: bool) -> dict[str, Any]:
    """As a GPU job's: collectives are handed to NCCL, and ran as kernels that nobody launched."""
    events = []
    for one in content["traceEvents"]:
        if one["name"].startswith("gloo:"):
            name = one["name"].removeprefix("gloo:").replace("_", "")
            if kernels:
                kernel = f"ncclDevKernel_{name.title()}_Sum_f32_RING_LL"
                events.append({**one, "name": kernel, "cat": "kernel", "tid": 40})
        else:
            events.append(one)
            if one["name"].startswith("c10d::"):
                events.append({**one, "name": "nccl:x", "cat": "user_annotation"})
    return {**content, "traceEvents": events}


@pytest.mark.parametrize("kernels", [False, True])
def test_what_a_trace_does_not_have_stays_unknown(tmp_path: Path, kernels: bool) -> None:
    path = written(tmp_path / "trace.json", of_gpu(trace(steps=4), kernels))
    imported = read(path)
    found = tell(imported)
    for name in ("waiting for buckets", "broadcasting buffers"):
        one = cost(found, name)
        assert math.isnan(one.ms) and "a time that is not known" in one.sentence
    assert not any("little time" in one or "no buffers" in one for one in found.fine)
    steps = imported.recording.steps()
    assert set(steps["buffer_broadcasts"]) == {1}
    assert steps[["hidden_communication_ms", "exposed_communication_ms"]].isna().all(axis=None)
    missing = "no correlation" if kernels else "the trace has no kernels"
    assert any(missing in one for one in found.remarks)
    (share,) = found.shares
    assert math.isnan(share.exposed_ns) is not kernels
    text = str(found)
    assert "(nan" not in text
    assert kernels or not re.search(r"(?<![\d.])0 ms", text.partition("Frames of")[0])
    assert found.to_json()["ranks"][0]["communication_alone_ms"] == (
        share.exposed_ns / 1e6 if kernels else None
    )


def test_a_gpus_stream_tells_how_long_buckets_were_waited_for(handed_over: Path) -> None:
    """Copies back that the host hands over late are no communication."""
    imported = read(handed_over / "gpu_nccl_ddp_rank0of2.json.gz")
    steps = imported.recording.steps()
    both = steps["exposed_communication_ms"] + steps["hidden_communication_ms"]
    found = tell(imported).shares[0]
    assert steps["exposed_communication_ms"].max() < 5
    assert both.median() == pytest.approx((found.hidden_ns + found.exposed_ns) / 3e6, rel=0.2)


def test_what_the_title_is_of_is_said_once(odd: Path) -> None:
    found = told(odd, "late")
    assert f"2 ranks, {LONG} steps: " in found.title
    assert f"(medians of steps 2 to {LONG - 1}: the first 2 warm up)" in found.title
    assert "(means over 6 steps)" in str(found)


def test_one_compiled_backward_is_a_burst(tmp_path: Path) -> None:
    node = "autograd::engine::evaluate_function: CompiledFunctionBackward"
    content = trace(steps=4)
    for number in range(4):
        content["traceEvents"].append(event(node, 1000.0 + 2000 * number + 210, 80))
    found = cost(tell(read(written(tmp_path / "trace.json", content))), "waiting for buckets")
    assert "one compiled graph" in found.sentence and "ddp_optimizer" in found.change
    plain = cost(
        tell(read(written(tmp_path / "plain.json", trace(steps=4)))), "waiting for buckets"
    )
    assert "bucket_cap_mb" in plain.change and "compiled" not in plain.sentence


def test_html_says_of_every_frame_what_it_is_or_that_it_was_said(odd: Path) -> None:
    page = told(odd, "late").to_html()
    assert page.count("(above)") == str(told(odd, "late")).count("(above)") > 0
