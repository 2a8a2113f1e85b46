"""Bucket plans: as a table, and as arrays that say which plan and bucket a record belongs to."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd

from ddpviz.analysis.configurations import changes
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import SHARED_ID, pick, split_run_keys, table
from ddpviz.events import Kind, Module, Plan, Unavailable

_SCHEMA = {
    "module": "int64",
    "version": "int64",
    "reason": "str",
    "iteration": "int64",
    "bucket": "int64",
    "bytes": "int64",
    "limit_bytes": "Int64",
    "parameters": "int64",
    "parameter_names": "object",
    "changed": "str",
}


def plans(source: Source, rank: int = 0) -> pd.DataFrame:
    """One row per bucket of every plan that a rank's modules ever had, in launch order.

    ``iteration``: the plan's first forward; ``limit_bytes``: where a bucket closes, <NA> where it
    has no limit, as in a first plan that will be rebuilt, and where torch does not tell;
    ``parameters``: how many; ``parameter_names``: a tuple of names. ``changed``: the setting that
    its module was made again for, "" for the first of its name.
    """
    changed = changes(source, rank)
    names = _parameter_names(source, rank)
    rows = [
        (plan, order, bucket)
        for plan in sorted(
            dict.fromkeys(source.notes(Plan, rank=rank)), key=lambda p: (p.module, p.version)
        )
        for order, bucket in enumerate(plan.buckets)
    ]
    return table(
        _SCHEMA,
        {
            "module": [plan.module for plan, _, _ in rows],
            "version": [plan.version for plan, _, _ in rows],
            "reason": [plan.reason for plan, _, _ in rows],
            "iteration": [plan.iteration for plan, _, _ in rows],
            "bucket": [order for _, order, _ in rows],
            "bytes": [bucket.bytes for _, _, bucket in rows],
            "limit_bytes": [
                -1 if bucket.limit_bytes is None else bucket.limit_bytes for _, _, bucket in rows
            ],
            "parameters": [len(bucket.parameters) for _, _, bucket in rows],
            "parameter_names": [
                tuple(_name(names.get(plan.module, ()), index) for index in bucket.parameters)
                for plan, _, bucket in rows
            ],
            "changed": [changed.get(plan.module, "") for plan, _, _ in rows],
        },
    )


def _parameter_names(source: Source, rank: int) -> dict[int, tuple[str, ...]]:
    return {
        module.id: tuple(tensor.name for tensor in module.parameters)
        for module in source.notes(Module, rank=rank)
    }


def _name(names: tuple[str, ...], index: int) -> str:
    return names[index] if 0 <= index < len(names) else f"parameter {index}"


@dataclasses.dataclass(frozen=True)
class PlanIndex:
    """All plans of all ranks, numbered from 0; -1 stands for "no plan known" everywhere.

    ``versions``: per plan; ``valid``: per (rank, module) the first iterations (ascending) and the
    numbers of its plans. Buckets and parameters of plan p lie at ``bucket_start[p]`` and
    ``parameter_start[p]`` of the flat arrays.
    """

    versions: np.ndarray
    valid: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]
    bucket_start: np.ndarray
    bucket_bytes: np.ndarray
    bucket_parameters: np.ndarray
    parameter_start: np.ndarray
    parameter_bucket: np.ndarray
    parameter_names: np.ndarray

    def at(self, run_keys: np.ndarray) -> np.ndarray:
        """The plan of each run: the highest version whose iteration is not after the run's."""
        ranks, modules, iterations = split_run_keys(run_keys)
        found = np.full(len(run_keys), -1, np.int64)
        owners = (ranks << 8) | modules
        for owner in np.unique(owners).tolist():
            here = self.valid.get((owner >> 8, owner & 0xFF))
            if here is not None:
                rows = owners == owner
                position = np.searchsorted(here[0], iterations[rows], side="right") - 1
                found[rows] = pick(here[1], position, -1)
        return found

    def version(self, plans: np.ndarray) -> np.ndarray:
        """Version of each plan, -1 where it is unknown."""
        return pick(self.versions, plans, -1)

    def buckets(self, plans: np.ndarray) -> np.ndarray:
        """Number of buckets of each plan, 0 where it is unknown."""
        return pick(np.diff(self.bucket_start), plans, 0)

    def bucket(self, plans: np.ndarray, buckets: np.ndarray) -> np.ndarray:
        """Position of a plan's bucket in ``bucket_bytes`` and ``bucket_parameters``, or -1."""
        return _position(self.bucket_start, plans, buckets)

    def parameter(self, plans: np.ndarray, parameters: np.ndarray) -> np.ndarray:
        """Position of a plan's parameter in ``parameter_bucket``, ``parameter_names``, or -1."""
        return _position(self.parameter_start, plans, parameters)


def _position(start: np.ndarray, owners: np.ndarray, items: np.ndarray) -> np.ndarray:
    at = start[np.maximum(owners, 0)] + items
    inside = (owners >= 0) & (items >= 0) & (at < start[np.maximum(owners, 0) + 1])
    return np.where(inside, at, -1)


def plan_index(source: Source) -> PlanIndex:
    """Reads the plans of all ranks; none of modules that share an id with others."""
    versions: list[int] = []
    valid = {}
    counts: list[int] = [0]
    widths: list[int] = [0]
    sizes: list[int] = []
    parameters: list[int] = []
    owners: list[np.ndarray] = []
    names: list[str] = []
    for rank in source.ranks:
        known = _parameter_names(source, rank)
        of_module: dict[int, list[Plan]] = {}
        for plan in source.notes(Plan, rank=rank):
            if plan.module >= SHARED_ID:
                continue
            of_module.setdefault(plan.module, []).append(plan)
        for module, found in of_module.items():
            found.sort(key=lambda plan: (plan.iteration, plan.version))
            numbers = np.arange(len(versions), len(versions) + len(found))
            valid[rank, module] = np.array([plan.iteration for plan in found]), numbers
            for plan in found:
                versions.append(plan.version)
                counts.append(len(plan.buckets))
                sizes += [bucket.bytes for bucket in plan.buckets]
                parameters += [len(bucket.parameters) for bucket in plan.buckets]
                owner = _bucket_of_parameters(plan, len(known.get(module, ())))
                widths.append(len(owner))
                owners.append(owner)
                names += [_name(known.get(module, ()), index) for index in range(len(owner))]
    _add_lost(source, valid, versions)
    return PlanIndex(
        np.array(versions, np.int64),
        valid,
        np.cumsum([*counts, 0]),
        np.array(sizes, np.int64),
        np.array(parameters, np.int64),
        np.cumsum([*widths, 0]),
        np.concatenate([*owners, np.zeros(0, np.int64)]),
        np.array(names, object),
    )


def _add_lost(
    source: Source, valid: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]], versions: list[int]
) -> None:
    """A rebuild whose plan was lost (the rank was killed soon after it) ends the plan before it."""
    for record in source.records(kinds=Kind.REBUILD):
        owner = int(record["rank"]), int(record["module"])
        iterations, numbers = valid.get(owner, (np.zeros(0, np.int64), np.zeros(0, np.int64)))
        if int(record["index"]) in {versions[number] for number in numbers if number >= 0}:
            continue
        at = np.searchsorted(iterations, record["iteration"], side="right")
        valid[owner] = np.insert(iterations, at, record["iteration"]), np.insert(numbers, at, -1)


def _bucket_of_parameters(plan: Plan, parameters: int) -> np.ndarray:
    """Bucket of each parameter index, -1 for one that is in none."""
    highest = max((max(b.parameters, default=-1) for b in plan.buckets), default=-1)
    owner = np.full(max(parameters, highest + 1), -1, np.int64)
    for order, bucket in enumerate(plan.buckets):
        owner[[index for index in bucket.parameters if index >= 0]] = order
    return owner


def without_plan(source: Source) -> str:
    """Of a recording without a plan: that it has none, and why, where a rank says so."""
    found = [note.why for note in source.notes(Unavailable) if note.what == "bucket plan"]
    return f"no bucket plan was recorded: {found[0]}" if found else "no bucket plan was recorded"
