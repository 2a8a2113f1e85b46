"""The sentence of a step: the largest cause, in plain words with numbers."""

from __future__ import annotations

import pytest

from ddpviz.analysis import finding, format_bytes, format_duration, steps
from ddpviz.analysis.evidence import gather
from ddpviz.events import Cause, Failure, Flag, Kind, Unavailable
from tests.analysis.material import at_ns, described, hanging, step

READY = {3: 20.0, 2: 21.0, 1: 22.0, 0: 23.0}


def test_waiting_for_a_rank_names_both_the_bucket_and_the_transfer() -> None:
    source = described()
    step(source, 0, 0, READY, [221, 223], [222, 223.7], (224, 225), end_ms=230)
    step(source, 1, 0, READY, [21, 24], [222, 223.7], (25, 225), end_ms=230)
    assert finding(source, 1) == (
        "rank 1 waited 199 ms for rank 0 in bucket 1; transferring it took 0.7 ms"
    )


def test_of_a_wait_that_backward_hid_in_part_the_exposed_part_is_told() -> None:
    source = described()
    step(source, 0, 0, READY, [221, 223], [222, 223.7], (224, 225), end_ms=230)
    step(source, 1, 0, READY, [21, 24], [222, 223.7], (218, 224), end_ms=230)
    assert finding(source, 1) == (
        "rank 1 waited 199 ms for rank 0 in bucket 1, 5.0 ms of it exposed; "
        "transferring it took 0.7 ms"
    )


def test_of_a_transfer_that_backward_hid_in_part_the_exposed_part_is_told() -> None:
    source = described()
    ready = {1: 11.0, 0: 12.0, 3: 90.0, 2: 95.0}
    for rank in (0, 1):
        step(source, rank, 0, ready, [95, 96], [97, 127], (120, 128), end_ms=140)
    assert finding(source, 1) == (
        "bucket 1 of rank 0 was full, but waited 83 ms for its turn (derived); "
        "transferring it took 31 ms, 7.0 ms of it exposed"
    )


def test_a_transfer_whose_end_is_not_known_is_said_to_be_so() -> None:
    source = described()
    step(source, 0, 0, READY, [221, 223], [222, 224], (224, 225), end_ms=230)
    step(source, 1, 0, READY, [21, 24], [222, None], (25, 225), end_ms=230)
    assert finding(source, 1) == (
        "rank 1 waited 199 ms for rank 0 in bucket 1; the end of its transfer is not known"
    )


def test_a_backward_whose_end_was_not_recorded_is_no_good_news() -> None:
    source = described()
    step(source, 0, 0, READY, [21, 23], [24, 25], (99, 99.2), end_ms=120)
    step(source, 1, 0, READY, [21, 23], [24, 25], None, end_ms=120)
    assert finding(source, 1) == (
        "how much communication was exposed is not known: the end of rank 1's backward was not "
        "recorded"
    )


def test_exposed_transfer_is_told_where_nobody_was_late() -> None:
    source = described()
    for rank in (0, 1):
        step(source, rank, 0, READY, [21, 23], [50, 75], (25, 76), end_ms=80)
    assert finding(source, 1) == "51 ms of communication exposed after backward on rank 0"


def test_hidden_communication_is_nothing_to_worry_about() -> None:
    source = described()
    for rank in (0, 1):
        step(source, rank, 0, READY, [21, 23], [50, 60], (99, 99.2), end_ms=120)
    assert finding(source, 1) == "all but 0.2 ms of communication hidden behind backward"


def test_a_rank_waited_for_behind_backward_cost_nothing() -> None:
    source = described()
    step(source, 0, 0, READY, [21, 23], [82, 85], (99, 99.1), end_ms=120)
    step(source, 1, 0, READY, [81, 83], [82, 85], (99, 99.1), end_ms=120)
    assert finding(source, 1).endswith("hidden behind backward")


def test_one_bucket_cannot_overlap() -> None:
    source = described()
    for rank in (0, 1):
        step(source, rank, 0, READY, [23], [40], (24, 41), number=0, end_ms=50)
    assert finding(source, 0) == (
        "one bucket holds everything, so nothing overlaps: 17 ms exposed on rank 0"
    )


def test_a_bucket_that_waited_its_turn_is_blamed_for_its_exposed_transfer() -> None:
    source = described()
    ready = {1: 11.0, 0: 12.0, 3: 90.0, 2: 95.0}
    for rank in (0, 1):
        step(source, rank, 0, ready, [95, 96], [97, 127], (96, 128), end_ms=140)
    assert finding(source, 1) == (
        "bucket 1 of rank 0 was full, but waited 83 ms for its turn (derived); "
        "transferring it took 31 ms"
    )


def test_a_transfer_of_which_only_a_bound_is_known_is_said_to_be_derived() -> None:
    """A hook went on with collectives of which the bucket is not known."""
    source = described()
    step(source, 0, 0, READY, [221, 223], [222, 224], (224, 225), end_ms=230)
    step(source, 1, 0, READY, [21, 24], [222, 224], (25, 225), end_ms=230)
    source.call(1, 30, 224.1, 224.5, index=-1, step=1, iteration=1, flags=Flag.FROM_HOOK)
    assert finding(source, 1) == (
        "rank 1 waited 199 ms for rank 0 in bucket 1; transferring it took 1.0 ms (derived)"
    )


def test_buckets_that_cannot_be_seen_are_not_taken_for_none() -> None:
    source = described((0,), 1)
    source.note(0, Unavailable(0, "buckets", at_ns(0), "a built-in hook was there before"))
    for number, flags in ((1, Flag(0)), (2, Flag.NO_SYNC)):
        begin_ms = 100 * number
        common = {"step": number, "iteration": number, "module": 0, "flags": flags}
        source.add(Kind.FORWARD, 0, begin_ms, begin_ms + 10, **common)
        source.add(Kind.STEP, 0, begin_ms, begin_ms + 20, step=number)
    assert finding(source, 1) == (
        "buckets are not available here, because a built-in hook was there before"
    )
    assert finding(source, 2) == "no_sync: gradients stay local in this step"
    table = steps(source)
    columns = ["hidden_communication_ms", "exposed_communication_ms"]
    assert table[columns].isna().all(axis=1).tolist() == [True, False]


def test_static_graph_delays_its_first_reduction() -> None:
    source = described()
    for rank in (0, 1):
        step(source, rank, 0, {}, [30, 31], [40, 41], None, end_ms=50)
        source.add(Kind.FINALIZE, rank, 30, 45, step=1, iteration=1, module=0, flags=Flag.DELAYED)
    assert "static_graph reduces after the first backward" in finding(source, 1)


def test_waiting_in_the_buffer_broadcast_is_told_apart_from_moving_it() -> None:
    source = described()
    for rank, launched in ((0, 80), (1, 1)):
        common = {"step": 1, "iteration": 1}
        source.call(rank, 5, launched, 83, Cause.BUFFERS, "broadcast float32", bytes=72, **common)
        source.add(Kind.BUFFER_SYNC, rank, launched, 84, bytes=72, index=2, module=0, **common)
        source.add(Kind.FORWARD, rank, launched, 90, module=0, **common)
        source.add(Kind.STEP, rank, launched, 95, step=1)
    assert finding(source, 1) == (
        "rank 1 waited 79 ms for rank 0 in the buffer broadcast; moving 72 B took 4.0 ms"
    )


def test_one_recorded_rank_cannot_tell_waiting_from_transfer() -> None:
    source = described((0,), world_size=2)
    step(source, 0, 0, READY, [21, 23], [50, 75], (25, 76), end_ms=80)
    assert finding(source, 1) == (
        "51 ms of communication exposed after backward on rank 0, any waiting included: "
        "not every rank is known to have launched it"
    )


def test_a_rank_that_hangs_says_whom_it_waits_for() -> None:
    assert finding(hanging(), 1) == (
        "rank 0 waits for rank 1, which has not launched allreduce 11 (bucket 1)"
    )


def test_a_failure_comes_first() -> None:
    source = hanging()
    source.note(0, Failure(0, 1, at_ns(900), "RuntimeError: connection closed", ""))
    assert finding(source, 1) == (
        "rank 0 failed waiting for rank 1, which has not launched allreduce 11 (bucket 1): "
        "RuntimeError: connection closed"
    )
    source.note(1, Failure(1, 1, at_ns(800), "ValueError: bad batch", ""))
    assert finding(source, 1) == "rank 1 failed: ValueError: bad batch"


def test_a_rank_that_was_killed_is_told_and_not_the_one_that_lost_it() -> None:
    source = hanging()
    source.note(0, Failure(0, 1, at_ns(900), "RuntimeError: Connection closed by peer", ""))
    source.note(1, Failure(1, 1, at_ns(950), "its process was killed by SIGKILL", ""))
    assert finding(source, 1) == "rank 1 failed: its process was killed by SIGKILL"


def test_an_unknown_end_is_no_hang_where_the_rank_went_on() -> None:
    """A backend without futures, or a lost record: the step ended all the same."""
    source = described()
    for rank in (0, 1):
        step(source, rank, 0, READY, [21, 23], [50, None], (25, 76), end_ms=80)
    assert finding(source, 1) == "51 ms of communication exposed after backward on rank 0"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (Flag.NO_SYNC, "no_sync: gradients stay local in this step"),
        (Flag.NO_GRAD, "forward without gradients: nothing to reduce"),
        (Flag(0), "no bucket was reduced in this step"),
    ],
)
def test_a_step_without_buckets_says_why(flags: Flag, sentence: str) -> None:
    source = described()
    source.add(Kind.FORWARD, 0, 0, 10, step=1, iteration=1, module=0, flags=flags)
    source.add(Kind.STEP, 0, 0, 20, step=1)
    assert finding(source, 1) == sentence
    assert finding(source, 2) == "no forward of a DDP module in this step"


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (199.4e6, "199 ms"), (0.72e6, "0.7 ms"), (9.96e6, "10 ms"), (40_300, "40 µs"),
        (0, "0 ms"), (12.34e9, "12.3 s"), (float("nan"), "unknown"),
    ],
)  # fmt: skip
def test_a_duration_has_the_digits_it_deserves(duration_ns: float, text: str) -> None:
    assert format_duration(duration_ns) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (272, "272 B"), (2048, "2 KiB"), (2.35 * 2**20, "2.35 MiB"), (0.36 * 2**20, "0.36 MiB"),
        (1000 * 2**20, "1000 MiB"), (3 * 2**30, "3 GiB"), (float("nan"), "unknown"),
    ],
)  # fmt: skip
def test_a_size_has_the_digits_it_deserves(size_bytes: float, text: str) -> None:
    assert format_bytes(size_bytes) == text


def test_many_steps_from_one_reading_are_what_each_says_alone() -> None:
    source = hanging()
    for number, begin_ms in ((2, 300), (3, 500)):
        for rank in (0, 1):
            ready = {index: ms + begin_ms for index, ms in READY.items()}
            step(
                source, rank, begin_ms, ready, [begin_ms + 21, begin_ms + 23 + 40 * rank],
                [begin_ms + 50, begin_ms + 75], (begin_ms + 25, begin_ms + 76), number,
                10 * number, end_ms=begin_ms + 80,
            )  # fmt: skip
    source.note(0, Failure(0, 3, at_ns(900), "RuntimeError: gone", ""))
    whole = gather(source)
    told = {number: finding(source, number, whole.of(number)) for number in (0, 1, 2, 3)}
    assert told == {number: finding(source, number) for number in told}
    assert len(set(told.values())) == 4


def test_an_errors_source_position_is_left_out_of_the_title() -> None:
    source = described()
    message = "RuntimeError: [/a/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:29880: gone"
    source.note(0, Failure(0, 1, at_ns(900), message, ""))
    assert finding(source, 1) == "rank 0 failed: RuntimeError: Read error [127.0.0.1]:29880: gone"
    source.note(0, Failure(0, 2, at_ns(900), "x" * 500, ""))
    assert len(finding(source, 2)) < 150 and finding(source, 2).endswith("…")


def test_waiting_for_a_rank_in_a_rebuild_is_told_with_what_was_sent() -> None:
    source = described()
    for rank, late in ((0, 0), (1, 53)):
        step(source, rank, late, READY, [80, 81], [82, 83], (81.5, 84), end_ms=90)
        source.add(Kind.REBUILD, rank, 1 + late, 58, step=1, iteration=1, module=0, index=1)
        source.call(
            rank, 5, 2 + late, 57.5, Cause.REBUILD_ORDER, "broadcast int32", step=1, iteration=1
        )
    assert finding(source, 1) == (
        "rank 0 waited 53 ms for rank 1 in the broadcast of the rebuilt buckets' order; "
        "sending it took 2.5 ms"
    )


def test_a_comm_hook_that_waits_for_its_own_collectives_is_told() -> None:
    source = described((0,), 1)
    step(source, 0, 0, READY, [21, 24], [22, 44], (45, 45.5), end_ms=50, flags=Flag.FROM_HOOK)
    source.add(Kind.COMM_HOOK, 0, 23.9, 44.1, step=1, iteration=1, module=0, index=1)
    assert finding(source, 1) == (
        "rank 0's comm hook waited 20 ms for its own collectives inside the backward, which goes "
        "on only when it returns"
    )


def test_a_completion_that_was_recorded_late_does_not_make_the_title() -> None:
    """The same all-reduce was over on rank 0 when its callback ran there, 13 ms before rank 1's."""
    source = described()
    step(source, 0, 0, READY, [221, 223], [222, 225.7], (224, 238), end_ms=240)
    step(source, 1, 0, READY, [21, 24], [222, 237], (25, 238), end_ms=240)
    assert finding(source, 1) == (
        "rank 1 waited 199 ms for rank 0 in bucket 1; transferring it took 2.7 ms"
    )
