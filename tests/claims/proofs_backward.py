"""The claims about a backward and the optimizer's step."""

from __future__ import annotations

import pytest

from tests.claims.evidence import Runs
from tests.claims.proofs import proves
from tests.claims.proofs_trace import inside, profile, rows

ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
MUL, COPY = "torch::distributed::reducer::mul_out", "torch::distributed::reducer::copy_"
BACK = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
PARAMETERS = 6


@proves("what-the-hook-does")
def two_ways_out(runs: Runs) -> None:
    for found in runs["quiet"]:
        assert found["no_sync"] == []
        assert not found["no_sync marked"]
        assert not found["static marked"]
        # used under no_sync alone, and yet found used by the backward that is reduced
        assert found["used in no_sync"] == pytest.approx(2.0)
        assert found["used nowhere"] == 1.0 + 2 * found["rank"]
        # and yet a static graph's first iteration is reduced: all of it, and the used map
        assert found["static first"] == [("all_reduce", 6, "Int"), ("all_reduce", 276, "Float")]


@proves("copy-count-launch")
def inside_the_accumulator(runs: Runs) -> None:
    for found in profile(runs):
        launches = rows(found, "c10d::allreduce_")
        assert len(launches) > 1
        for accumulator in rows(found, ACCUMULATE):
            copies = [row for row in rows(found, MUL) if inside(accumulator, row)]
            assert len(copies) == 1
            for launch in launches:
                if inside(accumulator, launch):
                    assert copies[0]["end"] <= launch["begin"]
        assert all(any(inside(a, one) for a in rows(found, ACCUMULATE)) for one in launches)


@proves("divided-while-copied")
def only_without_a_hook(runs: Runs) -> None:
    for found in runs["profiles"]:
        count = {
            mode: {name: len(rows(found[mode], name)) for name in (MUL, COPY)}
            for mode in ("default", "hook", "bucket view")
        }
        assert count["default"] == {MUL: PARAMETERS, COPY: 0}
        assert count["hook"] == {MUL: 0, COPY: PARAMETERS}
        assert count["bucket view"] == {MUL: 0, COPY: 0}
        in_place = [
            row
            for row in rows(found["bucket view"], "aten::div_")
            if any(inside(one, row) for one in rows(found["bucket view"], ACCUMULATE))
        ]
        assert len(in_place) >= PARAMETERS
        if "batched" in found:
            together = rows(found["batched"], "aten::_foreach_copy_")
            back = rows(found["batched"], f"{BACK}_batched")  # since torch 2.14 or 2.15
            assert len(together) - len(back) == found["batched, buckets"] > 1
            assert len(back) in (0, found["batched, buckets"])
            assert rows(found["batched"], MUL) == []
    for values in runs["gradients"]:
        assert values["hook without division"] == 2 * values["default"]


@proves("division-under-join")
def initial_or_active(runs: Runs) -> None:
    _, last = runs["divided"]
    assert last["initial True"] == [1.0, 0.5]
    assert last["initial False"] == [1.0, 1.0]


@proves("buckets-go-in-order")
def plan_not_readiness(runs: Runs) -> None:
    for found in runs["order"]:
        sizes = [nbytes for _, nbytes in found["plan"]]
        assert found["launched"][: len(sizes)] == sizes
        assert found["full"] != sorted(found["full"])


@proves("hook-or-sum")
def average_sum_and_index(runs: Runs) -> None:
    for values in runs["gradients"]:
        assert values["default"] == 2.0  # of 1 and 3
        assert values["hook without division"] == 4.0
    assert runs["indices"] == [[[0, 0], [0, 1]]] * 2


@proves("finalize-is-queued")
def before_and_after(runs: Runs) -> None:
    own = [values["around finalize"][0] for values in runs["gradients"]]
    averaged = [values["around finalize"][1] for values in runs["gradients"]]
    assert own == [1.0, 3.0]
    assert averaged == [2.0, 2.0]


@proves("finalize-copies-or-not")
def copies_back(runs: Runs) -> None:
    for found in runs["profiles"]:
        assert len(rows(found["default"], BACK)) == PARAMETERS
        assert rows(found["bucket view"], BACK) == []
        last_launch = max(row["begin"] for row in rows(found["default"], "c10d::allreduce_"))
        assert min(row["begin"] for row in rows(found["default"], BACK)) > last_launch
    for values in runs["gradients"]:
        assert values["hook's own tensor, bucket view"] == 7.0


@proves("optimizer-without-ddp")
def unless_put_into_backward(runs: Runs) -> None:
    for found in runs["optimizer inside"]:
        assert found == {"outside": False, "inside": True}


@proves("gradients-are-written-back")
def the_average(runs: Runs) -> None:
    for values in runs["gradients"]:
        assert values["default"] == values["bucket view"] == pytest.approx(2.0)
        assert values["hook's own tensor, bucket view"] == 7.0
    for found in runs["quiet"]:
        own = 1.0 + 2 * found["rank"]
        assert found["under no_sync"] == found["used nowhere"] == own
    for found in runs["quiet"]:
        assert found["second of two"] != pytest.approx(2.0)
