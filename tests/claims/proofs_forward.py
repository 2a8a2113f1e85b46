"""The claims about a forward."""

from __future__ import annotations

from tests.claims.evidence import Runs
from tests.claims.proofs import in_sequence, proves
from tests.claims.proofs_trace import profile, rows


@proves("pre-forward-order")
def order_before_the_module(runs: Runs) -> None:
    order = [
        "_pre_forward",
        "set_runtime_stats_and_log",
        "prepare_for_forward",
        "notify_join_context",
        "_rebuild_buckets",
        "_check_sync_bufs_pre_fwd",
        "_sync_buffers",
        "_run_ddp_forward",
        "_post_forward",
        "prepare_for_backward",
    ]
    for found in runs["functions"]:
        assert in_sequence(order, [name for _, name in found])


@proves("when-buffers-are-synced")
def a_fourth_condition(runs: Runs) -> None:
    for found in runs["fired"]:
        assert found["train"] == [1, 1, 1]
        assert found["around eval"] == [1, 1, 0, 0, 0, 1]
        assert found["around no_sync"] == [1, 1, 0, 0, 1, 1]
        assert found["off"] == [0, 0, 0]
        assert found["without buffers"] == [0, 0]
        assert found["broadcasts of a hooked forward"] == [0]


@proves("join-takes-the-lowest-rank")
def the_highest(runs: Runs) -> None:
    for found in runs["join"]:
        assert set(found["common"]) == {1}
        assert set(found["began"]) == {1.0}


@proves("buffers-are-listed-anew")
def the_new_tensor(runs: Runs) -> None:
    # 10 is what rank 0 put there; rank 1's own would be 11
    for began in runs["replaced"]:
        assert began == [0.0, 10.0, 10.0]


@proves("versions-are-kept")
def same_version(runs: Runs) -> None:
    for rank, found in enumerate(runs["drift"]):
        assert all(before == after for before, after in found["versions"])
        if rank:  # and yet it was written
            assert found["began"][1:] != found["ended"][:-1]


@proves("drift-and-repair")
def apart_and_together(runs: Runs) -> None:
    first, second = runs["drift"]
    assert first["began"] == second["began"]
    assert all(a != b for a, b in zip(first["ended"], second["ended"], strict=True))


@proves("all-buffers-in-one-collective")
def one_per_dtype(runs: Runs) -> None:
    for found in runs["broadcasts"]:
        assert found["forwards"][-1] == [("broadcast", 16, "Float"), ("broadcast", 1, "Long")]


@proves("buffer-size-is-250-mib")
def size_and_cut(runs: Runs) -> None:
    for found in runs["sizes"]:
        assert found["size"] == 250 * 2**20
        # cut at one byte: each buffer goes alone
        assert sorted(found["cut"]) == [
            ("broadcast", 1, "Long"),
            ("broadcast", 8, "Float"),
            ("broadcast", 8, "Float"),
        ]


@proves("two-in-flight")
def the_third_waits_for_the_first(runs: Runs) -> None:
    for found in runs["cut"]:
        enqueued, running = rows(found, "c10d::broadcast_"), rows(found, "gloo:broadcast")
        assert len(enqueued) == len(running) == 8
        # gloo has two threads, so the second may run before the first: count what has ended.
        for number, launched in enumerate(enqueued):
            ended = [row for row in running if row["end"] <= launched["begin"]]
            assert len(ended) >= number - 1


@proves("broadcast-is-cheap")
def the_module_waits(runs: Runs) -> None:
    for found in profile(runs):
        (module,) = rows(found, "inside the module")
        assert max(row["end"] for row in rows(found, "gloo:broadcast")) <= module["begin"]


@proves("how-to-turn-it-off")
def flag_and_sync_batchnorm(runs: Runs) -> None:
    assert all(found["off"] == [0, 0, 0] for found in runs["fired"])
    assert all("only work with GPU modules" in said for said in runs["sync batchnorm"])


@proves("active-module-is-restored")
def put_back(runs: Runs) -> None:
    assert runs["active"] == [[True, True, True]] * 2


@proves("unused-are-marked-at-once")
def marked_at_the_first_gradient(runs: Runs) -> None:
    for found in runs["unused"]:
        assert found["marked in forward"] == []
        assert found["in forward"] == []
        assert set(found["order"][:2]) == set(found["left out"])


@proves("when-the-sink-is-used")
def by_iteration(runs: Runs) -> None:
    for found in runs["sinks"]:
        through = {
            name: [node.startswith("_DDPSink") for node, _ in iterations]
            for name, iterations in found.items()
        }
        assert through == {
            "default": [False] * 3,
            "find unused": [True] * 3,
            "static": [True, False, False],
        }


@proves("the-sink-does-nothing")
def it_clones(runs: Runs) -> None:
    for found in runs["sinks"]:
        for iterations in found.values():
            for node, own in iterations:
                assert own is not node.startswith("_DDPSink")
    for found in runs["quiet"]:
        assert not found["static marked"]


@proves("rank-0-is-authoritative")
def rank_0_but_for_join(runs: Runs) -> None:
    first, second = runs["drift"]
    assert second["began"][1:] == first["ended"][:-1]
    for found in runs["join"]:
        # the question who it is goes before the buffers: one integer, reduced to its maximum
        at = found["collectives"].index(("broadcast", 16, "Float"))
        assert found["collectives"][at - 1] == ("all_reduce", 1, "Long")


@proves("250-mb-per-iteration")
def what_is_sent(runs: Runs) -> None:
    for found in runs["broadcasts"]:
        sent = sum({"Float": 4, "Long": 8}[dtype] * n for _, n, dtype in found["forwards"][-1])
        assert sent == found["bytes"] == 72
    # ResNet-50: three norms a block, one more where a stage begins, one at the stem
    channels, norms = 64, 1
    for blocks, width in zip((3, 4, 6, 3), (64, 128, 256, 512), strict=True):
        channels += blocks * (width + width + 4 * width) + 4 * width
        norms += 3 * blocks + 1
    assert (channels, norms) == (26_560, 53)
    assert 8 * channels + 8 * norms == 212_904


@proves("the-next-forward-repairs-buffers")
def not_after_the_last(runs: Runs) -> None:
    first, second = runs["drift"]
    assert first["state dict"] != second["state dict"]
    assert first["inner output"] != second["inner output"]
    assert first["repaired"] == second["repaired"] == first["state dict"]
