"""What each faulty run must be found with, and a near miss of each kind that must stay silent."""

from __future__ import annotations

import dataclasses
import json

from ddpviz.analysis.audit import KINDS, Finding


@dataclasses.dataclass(frozen=True)
class Expected:
    """``says``: words of the cause or of what is wrong."""

    kind: str
    since_step: int
    ranks: tuple[int, ...]
    names: tuple[str, ...]
    severity: str = "wrong numbers"
    says: str = ""

    def check(self, one: Finding) -> None:
        """That a finding is this one, and whole."""
        assert one.kind == self.kind and one.kind in KINDS
        assert one.since_step == self.since_step
        assert one.ranks == self.ranks
        assert one.names == self.names
        assert one.severity.text == self.severity
        assert self.says in " ".join((one.what, one.evidence, one.cause))
        assert one.what and one.evidence and one.cause and one.remedy
        assert json.loads(json.dumps(one.as_json()))["severity"] == self.severity


_BOTH = (0, 1)
_SECOND = ("second.weight", "second.bias")
_ALL = ("first.weight", "first.bias", *_SECOND)

EXPECTED = {
    "unused_layer": Expected("bucket-incomplete", 1, _BOTH, _SECOND, says="took no part"),
    "frozen_later": Expected("bucket-incomplete", 1, _BOTH, ("first.bias",), says="was frozen"),
    "second_backward": Expected("second-backward", 1, _BOTH, _ALL),
    "second_loss": Expected("second-backward", 0, _BOTH, _ALL),
    "bypassed": Expected("wrapper-bypassed", 2, _BOTH, _ALL, says="ddp.module"),
    "no_sync_step": Expected("no-sync-step", 1, _BOTH, _ALL, says="no_sync"),
    "replaced": Expected("parameter-replaced", 1, _BOTH, ("second.weight",)),
    "replaced_and_waited_for": Expected(
        "parameter-replaced", 1, _BOTH, ("second.weight",), says="waits for the old one"
    ),
    "replaced_by_two": Expected("parameter-replaced", 1, _BOTH, _SECOND, says="the old ones"),
    "unhooked": Expected("parameter-not-hooked", 0, _BOTH, ("second.bias",)),
    "hook_local": Expected("hook-not-averaging", 0, _BOTH, _ALL, says="local_hook"),
    "hook_sums": Expected("hook-not-mean", 0, _BOTH, ("summing_hook",), says="does not divide"),
    "hook_twice": Expected("hook-not-mean", 0, _BOTH, ("twice_hook",), says="twice"),
    "hook_divides_alike": Expected(
        "hook-not-mean", 0, _BOTH, ("thirds_hook",), says="0.667 times the mean"
    ),
    "hook_constant": Expected("hook-not-mean", 0, _BOTH, ("constant_hook",), says="something else"),
    "changed_after": Expected("gradients-changed", 1, _BOTH, _ALL),
    "initial_state": Expected("initial-state", -1, _BOTH, _ALL),
    "learning_rate": Expected("replicas-parted", 1, _BOTH, _ALL, says="learning rate"),
    "parted_for_a_while": Expected(
        "replicas-parted", 2, _BOTH, ("first.weight",), "note", "are again at the end of step 4"
    ),
    "swapped": Expected(
        "mismatched-collectives",
        2,
        _BOTH,
        ("allreduce 7 (user), 144 B", "allreduce 7 (bucket 0), 144 B"),
        says="in another order",
    ),
    "unused_on_one": Expected(
        "bucket-incomplete", 2, (1,), _SECOND, says="left rank 1 its own gradients"
    ),
    "ignored_on_one": Expected(
        "models-differ", -1, _BOTH, ("second.bias",), says="told to ignore differs"
    ),
    "other_dtype": Expected("models-differ", -1, _BOTH, _SECOND, says="and float64 [8, 8]"),
    "rounded": Expected("replicas-parted", 0, _BOTH, _ALL, says="of the order of rounding"),
    "local_sgd": Expected("no-sync-step", 0, _BOTH, _ALL, "note", "came 2 times from then on"),
    "never_averaged": Expected(
        "replicas-parted", 2, _BOTH, _ALL, "note", "post_localSGD_hook averages"
    ),
    "hook_inside": Expected(
        "replicas-parted", 0, _BOTH, _ALL, "note", "inside_hook averages gradients among some"
    ),
    "autograd_grad": Expected("backward-unreduced", 0, _BOTH, _ALL, says="autograd.grad"),
    "step_on_one": Expected("optimizer-skipped", 1, (1,), _ALL, says="on rank 0 and not on rank 1"),
    "second_optimizer": Expected(
        "optimizer-skipped", 2, (1,), _SECOND, says="more often on rank 0"
    ),
    "skipped_backward": Expected(
        "backward-skipped", 2, (1,), ("bucket 0",), says="of different steps"
    ),
    "registration_order": Expected("models-differ", -1, _BOTH, _ALL, says="another order"),
    "other_shapes": Expected(
        "models-differ",
        -1,
        _BOTH,
        ("1.weight", "1.bias"),
        says="[4, 8] on rank 0 and float32 [5, 8]",
    ),
    "other_buffers": Expected("models-differ", -1, _BOTH, ("extra",), says="only one of them has"),
    "frozen_on_one": Expected("models-differ", -1, _BOTH, ("second.bias",), says="only one"),
    "other_configuration": Expected(
        "configurations-differ", -1, _BOTH, ("gradient_as_bucket_view",), "failure"
    ),
    "ready_twice": Expected("ready-twice", 0, _BOTH, ("layer.bias",), "failure", "use_reentrant"),
    "twice_in_one": Expected("gradients-differ", 0, _BOTH, ("layer.weight", "layer.bias")),
    "static_graph": Expected("static-graph-broken", 2, _BOTH, _SECOND, says="static_graph=True"),
    "static_in_no_sync": Expected(
        "static-graph-broken", 0, _BOTH, _ALL, "failure", "must not be in no_sync"
    ),
    "unused_search": Expected("unused-search", 0, _BOTH, ("find_unused_parameters",), "slow"),
    "layout": Expected("gradient-layout", 2, _BOTH, ("weight",), "slow"),
    "own_buffers": Expected("buffers-overwritten", 1, (1,), ("queue",)),
    "constant_buffers": Expected("buffers-constant", 0, _BOTH, ("table",), "slow"),
    "stale": Expected(
        "stale-buffers",
        1,
        (1,),
        ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"),
    ),
    "not_finite": Expected("not-finite", 1, _BOTH, _ALL),
    "head_of_line": Expected("head-of-line", 3, _BOTH, ("bucket 2",), "slow"),
    "late_rank": Expected("straggler", 3, (1,), ("bucket 0",), "slow", "no slow network"),
    "late_in_backward": Expected("straggler", 3, (0,), ("bucket 1",), "slow"),
    "exposed": Expected("exposed-communication", 3, _BOTH, ("bucket 1",), "slow"),
    "one_graph": Expected(
        "burst",
        1,
        _BOTH,
        tuple(f"bucket {one}" for one in range(5)),
        "slow",
        "no_optimization does not split it",
    ),
    "other_borders": Expected("borders", 0, _BOTH, ("bucket 0", "bucket 1"), "slow"),
    "step_counts": Expected(
        "step-counts", 3, _BOTH, ("allreduce 8 (bucket 0)",), "failure", "4 on rank 0, 3 on rank 1"
    ),
}
#: What else is true of a run: a slow one searches for unused parameters for nothing, too.
BESIDE = {"head_of_line": ("unused-search",)}

#: Of each kind a run that is nearly one: by its name, or the test that has it.
NEAR = {
    "models-differ": "stages",
    "configurations-differ": "two_configurations",
    "step-counts": "uneven",
    "backward-skipped": "looked_into",
    "optimizer-skipped": "probed",
    "straggler": "alternating",
    "mismatched-collectives": "of_a_few",
    "hang": "tests.faults.test_stalls.test_what_goes_on_is_no_hang",
    "initial-state": "same_seed",
    "hook-not-averaging": "hooked",
    "gradients-changed": "clipped",
    "gradients-differ": "two_halves",
    "replicas-parted": "local_sgd_hooked",
    "not-finite": "scaled_loss",
    "buffers-overwritten": "drifting_buffers",
    "buffers-constant": "small_table",
    "hook-not-mean": "half_precision",
    "bucket-incomplete": "unused_and_said_so",
    "head-of-line": "small",
    "burst": "same_borders",
    "debug-detail": "tests.audit.test_findings.test_detail_on_gloo_is_named_though_ddp_may_crash",
    "no-sync-step": "accumulation",
    "wrapper-bypassed": "adversaries",
    "second-backward": "two_losses",
    "backward-unreduced": "grad_by_hand",
    "parameter-replaced": "changed_in_place",
    "parameter-not-hooked": "frozen_before",
    "static-graph-broken": "static_graph",
    "ready-twice": "checkpointed",
    "stale-buffers": "saved_everywhere",
    "unused-search": "searched_briefly",
    "gradient-layout": "layout_first",
    "borders": "same_borders",
    "exposed-communication": "small",
    "rank-failed": "caught",
}
