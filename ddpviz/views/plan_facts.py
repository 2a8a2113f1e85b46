"""Why a bucket plan is as it is, how well its order fits, and who is last to arrive. No Bokeh."""

from __future__ import annotations

import dataclasses

import numpy as np

from ddpviz.analysis.plan_reasons import order_score, reason_rows
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import run_keys
from ddpviz.events import Configuration, Kind
from ddpviz.views.plan_rows import REASONS, Plans, plans_of

#: Buckets whose last gradient is named.
_MOST_BUCKETS = 8


@dataclasses.dataclass(frozen=True)
class PlanBasis:
    """What the view is drawn from. ``order_per_mille``: -1 where it is not known; ``last``: names,
    by bucket; ``configurations``: how many there are of the module."""

    plans: Plans | None
    order_per_mille: int
    last: tuple[str, ...]
    configurations: int


def plan_basis(source: Source) -> PlanBasis:
    """From the notes, and the ready times of the first rank."""
    plans = plans_of(source)
    if plans is None:
        return PlanBasis(None, -1, (), 0)
    rank, newest = min(source.ranks, default=0), plans.plans[-1]
    known = [n for n in source.notes(Configuration, rank=rank) if n.module == newest.module]
    ready = source.records(kinds=Kind.GRAD_READY, ranks=rank)
    ready = ready[(ready["module"] == newest.module) & (ready["iteration"] >= newest.iteration)]
    if not len(ready):
        return PlanBasis(plans, -1, (), len(known))
    ready = ready[run_keys(ready) == run_keys(ready).max()]
    parameters = [index for bucket in newest.buckets for index in bucket.parameters]
    bucket_of = np.full(max(parameters, default=-1) + 1, -1, np.int64)
    for number, bucket in enumerate(newest.buckets):
        bucket_of[list(bucket.parameters)] = number
    ready = ready[(ready["index"] >= 0) & (ready["index"] < len(bucket_of))]
    if len(ready) != len(parameters):
        return PlanBasis(plans, -1, (), len(known))
    ready = ready[np.argsort(ready["begin_ns"], kind="stable")]
    buckets = bucket_of[ready["index"]]
    latest = dict(zip(buckets.tolist(), ready["index"].tolist(), strict=True))
    score = order_score(buckets, ready["begin_ns"])
    return PlanBasis(
        plans,
        -1 if np.isnan(score) else round(1000 * score),
        tuple(plans.tensor(latest[number]).name for number in sorted(latest)),
        len(known),
    )


def plan_facts(source: Source, basis: PlanBasis) -> tuple[str, ...]:
    """The sentences below the figure."""
    if basis.plans is None:
        return ()
    rank, newest = min(source.ranks, default=0), basis.plans.plans[-1]
    shown = {plan.version for plan in basis.plans.plans}
    told = [
        f"plan {row['version']}, {REASONS.get(row['reason'], row['reason'])}: {row['why']}; "
        f"{row['until']}"
        for row in reason_rows(source, rank)
        if row["module"] == newest.module and row["version"] in shown
    ]
    if basis.order_per_mille >= 0:
        told.append(_order(basis.order_per_mille / 1000))
    if basis.last:
        more = f" and {len(basis.last) - _MOST_BUCKETS} more" * (len(basis.last) > _MOST_BUCKETS)
        last = ", ".join(
            f"{name} in bucket {number}" for number, name in enumerate(basis.last[:_MOST_BUCKETS])
        )
        told.append(f"last to arrive: {last}{more}")
    return tuple(told)


def _order(score: float) -> str:
    pairs = f"{score:.0%} of pairs of gradients in different buckets came in the buckets' order"
    if score >= 0.9995:
        return "the order fits: no gradient of a later bucket came before one of an earlier bucket"
    if score >= 0.9:
        return f"the order fits well: {pairs}"
    if score > 0.6:
        return f"the order fits in part, so full buckets wait for earlier ones: {pairs}"
    return f"the order does not fit, so full buckets wait for earlier ones: {pairs}"
