"""Why a bucket plan is as it is, how well its order fits, and who is last to arrive. No Bokeh."""

from __future__ import annotations

import dataclasses
import math

from ddpviz.analysis.plan_reasons import Order, orders, reason_rows
from ddpviz.analysis.source import Source
from ddpviz.events import Configuration
from ddpviz.views.plan_rows import REASONS, Plans, plans_of
from ddpviz.views.text import count

#: Buckets whose last gradient is named.
_MOST_BUCKETS = 8


@dataclasses.dataclass(frozen=True)
class PlanBasis:
    """What the view is drawn from. ``order``: of the newest plan, its score as exact as it is told,
    None where it is not known; ``configurations``: how many there are of the module."""

    plans: Plans | None
    order: Order | None
    configurations: int


def plan_basis(source: Source) -> PlanBasis:
    """From the notes, and the ready times of the first rank."""
    plans = plans_of(source)
    if plans is None:
        return PlanBasis(None, None, 0)
    rank, newest = min(source.ranks, default=0), plans.plans[-1]
    known = [n for n in source.notes(Configuration, rank=rank) if n.module == newest.module]
    order = orders(source, rank).get((newest.module, newest.version))
    if order is not None:
        told = order.score if order.score == 1 else min(round(order.score, 3), 0.999)
        order = dataclasses.replace(order, iteration=0, score=told)
    return PlanBasis(plans, order, len(known))


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
    if basis.order is not None:
        told += _order(basis.order)
        first = basis.order.last[:_MOST_BUCKETS]
        more = len(basis.order.last) - len(first)
        last = ", ".join(
            f"{basis.plans.tensor(index).name} in bucket {number}"
            for number, index in enumerate(first)
        )
        told.append(f"last to arrive on rank {rank}: {last}{f' and {more} more' if more else ''}")
    return tuple(told)


def _order(order: Order) -> list[str]:
    """How well it fits, of several buckets."""
    if math.isnan(order.score):
        return []
    if order.score == 1:
        return [
            "the order fits: no gradient of a later bucket came before one of an earlier bucket"
        ]
    fits = (
        "fits well"
        if order.score >= 0.9
        else "fits in part"
        if order.score > 0.6
        else "does not fit"
    )
    many = count(len(order.last), "bucket")
    waits = (
        f"{order.waited} of {many} {'was' if order.waited == 1 else 'were'} full before an earlier "
        "one, and waited for it"
        if order.waited
        else "yet no bucket was full before an earlier one"
    )
    return [
        f"the order {fits}: {order.score:.1%} of pairs of gradients in different buckets came in "
        f"the buckets' order; {waits}"
    ]
