"""What each demonstration shows on two ranks, as counts, bytes and orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: A layer of the chain, 512 x 512 weights and 512 biases in float32.
LAYER = (512 * 512 + 512) * 4
#: Of convnet: mean and variance of 736 channels, and five counts of batches in int64.
FLOATS, COUNTS = 2 * (32 + 64 + 128 + 256 + 256) * 4, 5 * 8
UNUSED = ["layers.1.weight", "layers.1.bias"]
MIB = 2**20

FACTS: dict[str, dict[str, Any]] = {
    "one-bucket": {
        "buckets": [1, 6, 6],
        "parameters": 12,
        "first_bytes": 6 * LAYER,
        "cap_bytes": MIB,
    },
    "rebuild": {"broadcasts": [0, 2, 0], "buckets_before": 1, "buckets_after": 6},
    "small-first-bucket": {
        "first_plan": [6 * LAYER],
        "sizes": [LAYER, 5 * LAYER],
        "limits": [MIB, 25 * MIB],
    },
    "explicit-cap": {"sizes": 3 * [2 * LAYER], "limits": 3 * [2 * MIB]},
    "static-graph": {
        "rebuilds": [0, 0, 1, 0],
        "sinks": [1, 0, 0, 0],
        "delayed": [1, 0, 0, 0],
        "buckets": [1, 1, 6, 6],
    },
    "head-of-line": {
        "full_order": [5, 4, 3, 2, 1, 0],
        "launch_order": [0, 1, 2, 3, 4, 5],
        "waited": [1, 2, 3, 4, 5],
    },
    "unused-parameter": {
        "unused": UNUSED,
        "unused_bucket": 4,
        "full_order": [4, 0, 1, 2, 3, 5],
        "launch_order": [0, 1, 2, 3, 4, 5],
        "waited": [4],
    },
    "find-unused": {
        "unused": UNUSED,
        "used_maps": [1, 1, 1],
        "map_bytes": 12 * 4,
        "sinks": [1, 1, 1],
        "rebuilds": [0, 0, 0],
    },
    "straggler": {"slow": 1, "last_ranks": 6 * [1]},
    "buffer-broadcasts": {
        "broadcasts": [2, 2, 2],
        "bytes": FLOATS + COUNTS,
        "bytes_by_dtype": {"float32": FLOATS, "int64": COUNTS},
        "threshold_bytes": 250 * MIB,
        "buffers": 15,
    },
    "around-no-sync": {
        "no_sync": [0, 1, 1, 0, 0, 0],
        "fired": [1, 1, 0, 0, 1, 1],
        "broadcasts": [2, 2, 0, 0, 2, 2],
    },
    "around-eval": {
        "no_grad": [0, 1, 1, 0, 0, 0],
        "fired": [1, 1, 0, 0, 1, 1],
        "broadcasts": [2, 2, 0, 0, 2, 2],
    },
    "buffers-off": {"fired": [0, 0, 0], "broadcasts": [0, 0, 0]},
    "drift": {
        "parameters_equal": [1, 1, 1, 1],
        "buffers_before_equal": [1, 0, 0, 0],
        "buffers_after_equal": [1, 1, 1, 1],
        "buffers_equal": [0, 0, 0, 0],
        "differing": 10,
    },
    "reassigned-buffer": {
        "reassigned": [[], ["seen"], ["seen"]],
        "broadcasts": [1, 1, 1],
        "bytes": [16, 16, 16],
    },
    "post-forward-hook": {
        "broadcasts": [2, 0, 0, 0],
        "all_reduces": [0, 10, 10, 10],
        "hook": ["none", "post_forward", "post_forward", "post_forward"],
        "buffers_equal": [0, 1, 1, 1],
    },
    "bucket-views": {
        "gradients": 12,
        "storages": 12,
        "storages_with_views": 6,
        "buckets": 6,
        "views": [False, True],
        "copy": "each gradient is copied out of the reduced bucket",
        "copy_with_views": "gradients are views of the bucket: nothing is copied",
    },
    "fp16-hook": {
        "bucket_bytes": 6 * LAYER,
        "sent_bytes": 3 * [3 * LAYER],
        "hook_calls": [1, 6, 6],
    },
    "powersgd-hook": {
        "bucket_bytes": 256 * 256 * 4,
        "sent_bytes": [256 * 256 * 4, 256 * 256 * 4, 2 * 256 * 4, 2 * 256 * 4],
        "hook_calls": [1, 1, 1, 1],
    },
    "forgotten-division": {"times": 2, "ranks": 2, "gradients_equal": [1, 1]},
    "two-forwards": {
        "forwards": 2,
        "backwards": 2,
        "reductions": 1,
        "buckets": [1, 2, 2],
        "parameters_equal": [1, 1, 0],
    },
    "join": {
        "forwards": [1, 2],
        "chosen": [1, 1, 1, 1],
        "reductions": [1, 3],
        "ghosts": [2, 0],
    },
}


def _but(**changed: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda fact: {**fact, **changed}


#: The same facts, changed in what each demonstration claims.
NOT_SO: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "one-bucket": _but(buckets=[6, 6, 6]),
    "rebuild": _but(broadcasts=[0, 0, 0]),
    "small-first-bucket": _but(first_limit=25 * MIB),
    "explicit-cap": _but(limits=[MIB, 2 * MIB, 2 * MIB]),
    "static-graph": _but(delayed=[0, 0, 0, 0]),
    "head-of-line": _but(launch_order=[5, 4, 3, 2, 1, 0]),
    "unused-parameter": _but(full_order=[0, 1, 2, 3, 4, 5]),
    "find-unused": _but(used_maps=[1, 1, 0]),
    "straggler": _but(last=[0, 1]),
    "buffer-broadcasts": _but(broadcasts=[1, 1, 1]),
    "around-no-sync": _but(fired=[1, 0, 0, 1, 1, 1]),
    "around-eval": _but(fired=[1, 0, 0, 1, 1, 1]),
    "buffers-off": _but(fired=[0, 1, 0]),
    "drift": _but(buffers_before_equal=[1, 1, 1, 1]),
    "reassigned-buffer": _but(replaced=[0, 0, 0]),
    "post-forward-hook": _but(buffers_equal=[0, 0, 0, 0]),
    "bucket-views": _but(storages_with_views=12),
    "fp16-hook": _but(last_sent_bytes=6 * LAYER),
    "powersgd-hook": _but(last_sent_bytes=256 * 256 * 4),
    "forgotten-division": _but(times=1.0),
    "two-forwards": _but(reductions=2),
    "join": _but(chosen=[0, 0, 0, 0]),
}
