"""Why a bucket plan is as it is, and how well its order fits the order in which gradients come.

The rules are DDP's: ``_BucketCapacityConfig`` (before torch 2.13 in ``__init__`` and
``_ddp_init_helper``) for the first plan, ``Reducer::rebuild_buckets`` for the second.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd

from ddpviz.analysis.configurations import configured
from ddpviz.analysis.plans import plan_index
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import SHARED_ID, run_keys, split_run_keys, table
from ddpviz.analysis.units import format_bytes
from ddpviz.events import Kind, Plan

_SCHEMA = {
    "module": "int64",
    "version": "int64",
    "reason": "str",
    "iteration": "int64",
    "buckets": "int64",
    "why": "str",
    "until": "str",
    "order_score": "float64",
    "scored_iteration": "Int64",
}


_REBUILDS = "DDP rebuilds buckets at the next forward with gradients once {} reduced"


def plan_reasons(source: Source, rank: int = 0) -> pd.DataFrame:
    """One row per plan that a rank's modules ever had.

    ``why``: a sentence on its limits and its order, from DDP's rules and this configuration.
    ``until``: when DDP makes another one. ``order_score``: of all pairs of parameters in two
    different buckets, the share whose gradients were ready in the order of their buckets: 1 where
    no bucket has to wait for an earlier one, about 0.5 for a plan that knows nothing of the order;
    NaN for a single bucket, or without ready times. ``scored_iteration``: the last backward under
    this plan with all ready times.
    """
    rows = reason_rows(source, rank)
    return table(_SCHEMA, {name: [row[name] for row in rows] for name in _SCHEMA})


def reason_rows(source: Source, rank: int) -> list[dict[str, Any]]:
    """The rows of :func:`plan_reasons`; ``scored_iteration`` is -1 where unknown."""
    of_rank = configured(source, rank)
    known = orders(source, rank)
    found = sorted(
        dict.fromkeys(source.notes(Plan, rank=rank)), key=lambda plan: (plan.module, plan.version)
    )
    last = {plan.module: plan.version for plan in found}
    rows = []
    for plan in found:
        values = of_rank.at(plan.module, plan.time_ns)
        order = known.get((plan.module, plan.version))
        scored = order is not None and not np.isnan(order.score)
        rows.append(
            {
                "module": plan.module,
                "version": plan.version,
                "reason": plan.reason,
                "iteration": plan.iteration,
                "buckets": len(plan.buckets),
                "why": why(plan, values),
                "until": _until(plan, values, plan.version < last[plan.module]),
                "order_score": order.score if order is not None else np.nan,
                "scored_iteration": order.iteration if order is not None and scored else -1,
            }
        )
    return rows


def why(plan: Plan, values: dict[str, Any]) -> str:
    """The reason for a plan, in a sentence. ``values``: of its module's configuration."""
    if plan.reason == "attached":
        return "it was there when recording began"
    if not values:
        return "not known: its module's configuration was not recorded"
    limits = _limits(values)
    if plan.reason == "rebuild":
        turned = (
            "; with DDP_SET_LAST_BUCKET_CAP=1 buckets were filled from the last gradient on, so "
            "that what is said of the first holds for the last"
            if values.get("last_bucket_small")
            else ""
        )
        return (
            "buckets were filled in the order in which gradients were ready in the backward "
            f"before, as rank {lowest_rank(values)} saw it; {limits}{turned}"
        )
    if _one_bucket(values):
        return (
            "all parameters of one dtype and device share a bucket, without a limit, as nothing "
            "is known yet about the order of their gradients"
        )
    return (
        "parameters were taken in the order of registration and the list of buckets was then "
        f"reversed, a guess at the order of their gradients; {limits}{_small_is_last(values)}"
    )


def lowest_rank(values: dict[str, Any]) -> int:
    """Of the module's process group, as a global rank: who decides there."""
    return int(next(iter(values.get("ranks", ())), 0))


def _one_bucket(values: dict[str, Any]) -> bool:
    """Whether the first plan has no limits."""
    if values.get("per_bucket_bytes_caps"):
        return False
    return bool(values.get("static_graph")) or not values.get("find_unused_parameters")


def _limits(values: dict[str, Any]) -> str:
    caps = values.get("per_bucket_bytes_caps")
    if caps:
        told = ", ".join(format_bytes(cap) for cap in caps)
        return (
            f"limits are those of bucket_cap_mb_list ({told}), for each dtype and device from the "
            "first on, the last for all that follow"
        )
    cap, first = values.get("bucket_bytes_cap"), values.get("first_bucket_bytes_cap")
    if cap is None or first is None:
        return "their limits are not known"
    if first == cap:
        return (
            f"every bucket has the limit {format_bytes(cap)}: with bucket_cap_mb given there is no "
            "small first one"
        )
    return (
        f"the first bucket of each dtype and device has the limit {format_bytes(first)}, so that "
        f"something can be sent early, the others {format_bytes(cap)}, as bucket_cap_mb was not "
        "given"
    )


def _small_is_last(values: dict[str, Any]) -> str:
    small = values.get("first_bucket_bytes_cap", 0) < values.get("bucket_bytes_cap", 0)
    if not small or values.get("per_bucket_bytes_caps"):
        return ""
    return "; reversed, the small one is the last to be sent"


def _until(plan: Plan, values: dict[str, Any], replaced: bool) -> str:
    if replaced:
        return "it was replaced by the next"
    if plan.reason == "rebuild":
        return "DDP rebuilds buckets once: it stays"
    if not values:
        return "not known"
    if values.get("find_unused_parameters") and not values.get("static_graph"):
        return "with find_unused_parameters DDP never rebuilds buckets: it stays"
    if plan.reason == "attached":
        return "it stays, if DDP had rebuilt its buckets before recording began"
    if values.get("static_graph"):
        return f"static_graph: {_REBUILDS.format('two backwards were')}"
    return _REBUILDS.format("a backward was")


@dataclasses.dataclass(frozen=True)
class Order:
    """How gradients came in a plan's last backward of which all ready times are known.

    ``score``: see :func:`order_score`; ``last``: of each bucket the parameter that came last;
    ``waited``: how many buckets were full before an earlier one was, and had to wait for it.
    """

    iteration: int
    score: float
    last: tuple[int, ...]
    waited: int


def orders(source: Source, rank: int) -> dict[tuple[int, int], Order]:
    """By module and plan version."""
    index = plan_index(source)
    ready = source.records(kinds=Kind.GRAD_READY, ranks=rank)
    ready = ready[ready["module"] < SHARED_ID]
    ready = ready[np.argsort(run_keys(ready), kind="stable")]
    runs, first, counts = np.unique(run_keys(ready), return_index=True, return_counts=True)
    plans = index.at(runs)
    _, modules, iterations = split_run_keys(runs)
    found: dict[tuple[int, int], Order] = {}
    for run in range(len(runs) - 1, -1, -1):  # from the last on
        key = int(modules[run]), int(index.version(plans[run : run + 1])[0])
        if plans[run] < 0 or key in found:
            continue
        start, stop = index.parameter_start[plans[run]], index.parameter_start[plans[run] + 1]
        bucket_of = index.parameter_bucket[start:stop]
        mine = ready[first[run] : first[run] + counts[run]]
        mine = mine[(mine["index"] >= 0) & (mine["index"] < len(bucket_of))]
        if len(mine) != np.count_nonzero(bucket_of >= 0):
            continue
        found[key] = _order(int(iterations[run]), bucket_of[mine["index"]], mine)
    return found


def _order(iteration: int, buckets: np.ndarray, ready: np.ndarray) -> Order:
    in_time = np.argsort(ready["begin_ns"], kind="stable")
    last = dict(zip(buckets[in_time].tolist(), in_time.tolist(), strict=True))
    at = np.array([last[bucket] for bucket in sorted(last)], np.int64)
    full_ns = ready["begin_ns"][at]
    waited = int((full_ns < np.maximum.accumulate(full_ns)).sum())
    score = order_score(buckets, ready["begin_ns"])
    return Order(iteration, score, tuple(ready["index"][at].tolist()), waited)


def order_score(buckets: np.ndarray, ready_ns: np.ndarray) -> float:
    """Share of pairs in different buckets that came in their order; NaN for a single bucket.

    ``buckets``, ``ready_ns``: of each parameter.
    """
    order = np.argsort(buckets, kind="stable")
    buckets, ready_ns = buckets[order], ready_ns[order]
    pairs = in_order = 0
    for bucket in np.unique(buckets).tolist()[1:]:
        here = ready_ns[buckets == bucket]
        before = np.sort(ready_ns[buckets < bucket])
        pairs += len(here) * len(before)
        in_order += int(np.searchsorted(before, here, side="right").sum())
    return in_order / pairs if pairs else float("nan")
