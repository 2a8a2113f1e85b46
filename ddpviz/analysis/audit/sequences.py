"""Where ranks do not do the same between two reductions, told from records."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from ddpviz.analysis.audit.case import Case, apart, on, times
from ddpviz.analysis.audit.findings import Finding, Severity
from ddpviz.analysis.audit.moments import differing, first_apart, looked_at, steps_equal
from ddpviz.analysis.calls import of_buckets
from ddpviz.analysis.places import places
from ddpviz.analysis.tables import SHARED_ID, run_keys
from ddpviz.events import Flag, Kind

#: Between a backward of a rank that reduced and its next one. ``key``: equal on all ranks;
#: ``steps``: of optimizers; ``label``: the last one's class.
_ROUND = np.dtype(
    [("key", "<i8"), ("step", "<i8"), ("module", "<i8"), ("steps", "<i8"), ("label", "<i8")]
)


def optimizer_skipped(case: Case) -> Iterator[Finding]:
    """After the same reduction optimizers stepped on some ranks and not on others.

    Where some stepped on every rank, and only their number differs, fingerprints have to say that
    it matters: a rank may train something of its own.
    """
    if len(case.ranks) < 2 or case.joined or _lost(case):
        return
    by_rank = {rank: _rounds(case, rank) for rank in case.ranks}
    keys = functools.reduce(np.intersect1d, [found["key"] for found in by_rank.values()])
    if not len(keys):
        return
    at = {rank: found[np.searchsorted(found["key"], keys)] for rank, found in by_rank.items()}
    steps = np.array([at[rank]["steps"] for rank in case.ranks])
    order = np.argsort(at[case.ranks[0]]["step"], kind="stable")
    for module in np.unique(at[case.ranks[0]]["module"]).tolist():
        if module in case.divided or module >= SHARED_ID:
            continue
        mine = order[at[case.ranks[0]]["module"][order] == module]
        apart_here = mine[np.ptp(steps[:, mine], axis=0) > 0]
        parted = first_apart(case, module)
        if not len(apart_here):
            continue
        none = apart_here[steps[:, apart_here].min(0) == 0]
        first = int((none if len(none) else apart_here)[0])
        since = max(int(found["step"][first]) for found in at.values())
        sampled = bool(steps_equal(case, module, since)) or parted is not None
        if parted is None if sampled else not len(none):
            continue
        if parted is not None and parted.step < since:
            continue
        fewest = steps[:, first].min()
        counts = dict(zip(case.ranks, steps[:, first].tolist(), strict=True))
        who = [rank for rank, many in counts.items() if many > fewest]
        late = tuple(rank for rank, many in counts.items() if many == fewest)
        name = case.source.label(who[0], int(at[who[0]]["label"][first])) or "an optimizer"
        yield Finding(
            "optimizer-skipped",
            Severity.WRONG_NUMBERS,
            f"{name} stepped{case.of(module)} on {on(who)} and not on {on(late)} after the same "
            "reduction, so the replicas part"
            if not fewest
            else f"optimizers stepped{case.of(module)} more often on {on(who)} than on {on(late)} "
            "after the same reduction, so the replicas part",
            since,
            late,
            differing(parted)[0] if parted is not None else case.reduced(late[0], module),
            f"so after {times(len(apart_here), 'reduction')} of {len(mine)} from which all ranks "
            f"went on; after that of step {since} optimizers stepped "
            + ", ".join(f"{times(many, 'time')} on rank {rank}" for rank, many in counts.items())
            + (
                f"; parameters differ at the end of step {parted.step}"
                f"{looked_at(case, module, parted.step, 'parameters')}"
                if parted is not None
                else ""
            ),
            "optimizer.step() in an if on the rank, or on what only this rank knows: its loss, a "
            "counter of its own, bad gradients that it looked for before they were reduced",
            "step on every rank or on none: decide from what is the same everywhere, as reduced "
            "gradients are",
            "certain" if parted is not None else "likely",
            "timeline",
            since,
            module,
        )


def _lost(case: Case) -> bool:
    """Whether records of some rank never came: what is missing was done all the same."""
    gaps = case.source.records(kinds=Kind.GAP)
    return int(gaps["index"].astype(np.int64).sum()) > 0


def _rounds(case: Case, rank: int) -> np.ndarray:
    """In the order of keys; without the last one, after which anything may have ended the rank."""
    source = case.source
    backward = case.records(Kind.BACKWARD, rank)
    backward = backward[np.argsort(backward["begin_ns"], kind="stable")]
    finalize = case.records(Kind.FINALIZE, rank)
    within = np.searchsorted(backward["begin_ns"], finalize["begin_ns"], "right") - 1
    finalize, within = finalize[within >= 0], within[within >= 0]
    sent = of_buckets(case.evidence.calls)
    sent = sent[sent["rank"] == rank]
    keys = places(source).keys(sent)
    sent, keys = sent[keys >= 0], keys[keys >= 0]
    run = run_keys(sent)
    by_key = np.lexsort((keys, run))
    runs, first = np.unique(run[by_key], return_index=True)
    place = np.searchsorted(runs, run_keys(finalize))
    known = place < len(runs)
    known[known] = runs[place[known]] == run_keys(finalize)[known]
    finalize, within, place = finalize[known], within[known], place[known]
    key = keys[by_key][first][place]
    found = np.zeros(len(backward), _ROUND)
    found["key"] = np.iinfo(np.int64).max
    np.minimum.at(found["key"], within, key)
    found["module"] = SHARED_ID
    np.minimum.at(found["module"], within, finalize["module"].astype(np.int64))
    reduced = np.zeros(len(backward), bool)
    reduced[within] = True
    found, backward = found[reduced], backward[reduced]
    found["step"] = backward["step"]
    optimizer = case.records(Kind.OPTIMIZER, rank)
    optimizer = optimizer[np.argsort(optimizer["begin_ns"], kind="stable")]
    count = np.searchsorted(optimizer["begin_ns"], backward["begin_ns"])
    after = np.append(count[1:], len(optimizer))
    found["steps"] = after - count
    found["label"] = np.append(optimizer["label"], 0)[after - 1]
    return np.sort(found[:-1], order="key")


def backward_skipped(case: Case) -> Iterator[Finding]:
    """Ranks ran as many forwards that were to be reduced, and not as many backwards: from the first
    that is missing on, gradients of different steps were averaged."""
    if len(case.ranks) < 2 or case.joined or _lost(case):
        return
    forward = case.source.records(kinds=Kind.FORWARD)
    without = int(Flag.NO_SYNC | Flag.NO_GRAD | Flag.FAILED)
    forward = forward[((forward["flags"] & without) == 0) & (forward["module"] < SHARED_ID)]
    forward = forward[np.argsort(forward["begin_ns"], kind="stable")]
    sent = np.unique(run_keys(of_buckets(case.evidence.calls)))
    reduced = np.isin(run_keys(forward), sent)
    for module, notes in case.modules.items():
        seen = not any((rank, module) in case.unseen for rank in notes)
        if set(notes) != set(case.ranks) or module in case.divided or not seen:
            continue
        mine = {
            rank: np.flatnonzero((forward["rank"] == rank) & (forward["module"] == module))
            for rank in notes
        }
        backwards = {rank: int(reduced[at].sum()) for rank, at in mine.items()}
        if len({len(at) for at in mine.values()}) > 1 or not apart(backwards):
            continue
        most = max(backwards.values())
        skipped = {}
        for rank, at in mine.items():
            last = np.flatnonzero(reduced[at]).max(initial=-1)
            missing = np.flatnonzero(~reduced[at][: last + 1])
            if backwards[rank] < most and len(missing):
                skipped[rank] = int(forward["step"][at[missing[0]]])
        if not skipped:
            continue
        since = min(skipped.values())
        forwards = len(next(iter(mine.values())))
        yield Finding(
            "backward-skipped",
            Severity.WRONG_NUMBERS,
            f"{on(skipped)} ran a forward{case.of(module)} in step {since} and no backward for it: "
            "from there on gradients of different steps were averaged",
            since,
            tuple(sorted(skipped)),
            case.buckets(module, since),
            f"{times(forwards, 'forward')} on every rank, and backwards that reduced: "
            + ", ".join(f"{many} on rank {rank}" for rank, many in sorted(backwards.items())),
            "a batch that is left out on one rank after its forward: a loss that is not finite or "
            "has nothing to train on, an error that is caught",
            "run the backward on every rank, with a loss of zero that depends on all parameters "
            "where there is nothing to train on (0 * output.sum())",
            "likely",
            "timeline",
            since,
            module,
        )
