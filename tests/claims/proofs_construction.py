"""The claims about DDP's constructor."""

from __future__ import annotations

import pytest

from tests.claims.evidence import Runs
from tests.claims.proofs import in_sequence, proves
from tests.claims.runs_construction import HAS_NEW_FLAG

MIB = 2**20


@proves("six-steps")
def steps_and_collectives(runs: Runs) -> None:
    for found in runs["constructor"]:
        order = [
            "create",
            "_build_params_for_reducer",
            "_verify_param_shape_across_processes",
            "_sync_module_states",
            "_ddp_init_helper",
        ]
        assert in_sequence(order if HAS_NEW_FLAG else order[1:], found["functions"])
        operations = [(name, dtype) for name, _, dtype in found["default"]]
        assert operations == [
            ("all_gather", "Long"),
            ("broadcast", "Long"),
            ("broadcast", "Float"),
            ("broadcast", "Long"),
        ]
        assert found["without sync"] == []


@proves("post-accumulate-hook")
def python_hook_comes_first(runs: Runs) -> None:
    for found in runs["hooks"]:
        assert found["marked in the hook"] == [False] * 6
        assert found["marked after"] == [True] * 6


@proves("one-initial-broadcast")
def one_call_several_broadcasts(runs: Runs) -> None:
    for found in runs["constructor"]:
        # 6 parameters and 3 buffers in one call; 276 numbers are parameters, 16 + 1 buffers
        assert found["calls"] == [9]
        assert found["default"][2:] == [("broadcast", 292, "Float"), ("broadcast", 1, "Long")]
        assert found["old flag off"][2:] == [("broadcast", 276, "Float")]
        if HAS_NEW_FLAG:
            assert found["new flag off"] == found["default"]


@proves("identical-after-construction")
def not_everything(runs: Runs) -> None:
    first, second = runs["starting values"]
    assert first["default"] == second["default"]
    differing = {
        variant: {name for name in first[variant] if first[variant][name] != second[variant][name]}
        for variant in first
    }
    assert differing == {
        "default": set(),
        "without sync": {"conv", "head", "mean"},
        "old flag off": {"mean"},
        "ignored": {"head"},
    }


@proves("reversed-buckets")
def one_bucket_at_first(runs: Runs) -> None:
    for found in runs["plans"]:
        for name in ("default", "cap 2 MiB", "static"):
            assert [bucket for bucket, _ in found[name]["layouts"][0]] == [list(range(12))]
        several = [bucket for bucket, _ in found["find unused, 2 MiB"]["layouts"][0]]
        assert len(several) > 1
        assert [min(bucket) for bucket in several] == sorted(map(min, several), reverse=True)
        assert all(bucket == sorted(bucket) for bucket in several)


@proves("reversal-matches-readiness")
def against_the_order_of_use(runs: Runs) -> None:
    for found in runs["order"]:
        assert found["full"][-1] == min(found["full"])
        assert found["launched"][: len(found["plan"])] == [nbytes for _, nbytes in found["plan"]]


@proves("small-first-bucket")
def three_cases(runs: Runs) -> None:
    for found in runs["plans"]:
        first, rebuilt = found["default"]["layouts"]
        assert len(first) == 1
        assert MIB <= rebuilt[0][1] < 2 * MIB < rebuilt[1][1]
        unused = found["find unused"]["layouts"][-1]
        assert unused[-1][1] == MIB < unused[0][1]
        assert [nbytes >= 2 * MIB for _, nbytes in found["cap 2 MiB"]["layouts"][-1]] == [True] * 3


@proves("cap-limits-size")
def a_threshold(runs: Runs) -> None:
    for found in runs["plans"]:
        sizes = found["cap 2 MiB"]["sizes"]
        for bucket, nbytes in found["cap 2 MiB"]["layouts"][-1]:
            assert nbytes == sum(sizes[parameter] for parameter in bucket)
            assert nbytes > 2 * MIB
            assert nbytes - sizes[bucket[-1]] < 2 * MIB


@proves("hook-on-every-parameter")
def every_parameter_is_timed(runs: Runs) -> None:
    assert all(found["all ready"] for found in runs["accumulators"])


@proves("accumulator-made-by-autograd")
def made_on_demand_and_held(runs: Runs) -> None:
    for found in runs["accumulators"]:
        assert not found["bare"]
        assert found["wrapped"]


@proves("compiled-autograd-is-refused")
def refused(runs: Runs) -> None:
    for said in runs["compiled autograd"]:
        assert "not compatible with C++ DDP Reducer" in said
        assert 'optimize_ddp="python_reducer"' in said


@proves("the-flag-is-broadcast-buffers")
def two_names(runs: Runs) -> None:
    if not HAS_NEW_FLAG:
        pytest.skip("this torch is older than the new name")
    for found in runs["flags"]:
        assert {"broadcast_buffers", "forward_sync_buffers"} <= set(found["names"])
        assert found["warned"] == ["FutureWarning"]
        assert found["alias"] is False


@proves("plan-is-made-in-the-constructor")
def made_anew_once(runs: Runs) -> None:
    for found in runs["plans"]:
        assert found["default"]["rebuilt"] == [False, True, True]
        assert found["static"]["rebuilt"] == [False, False, True]
        assert found["find unused"]["rebuilt"] == [False, False, False]
        assert [len(extra) for extra in found["default"]["extra"]] == [0, 2, 0]
        assert [len(extra) for extra in found["static"]["extra"]] == [0, 0, 2]
        assert found["find unused"]["extra"] == [[], [], []]
        first, last = found["default"]["layouts"]
        assert first != last
        # the order that was seen: the last layer's first
        assert [i for bucket, _ in last for i in bucket] == list(reversed(range(12)))
