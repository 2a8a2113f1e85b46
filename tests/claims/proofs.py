"""Which function proves which claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.claims.evidence import Runs

Proof = Callable[[Runs], None]
PROOFS: dict[str, Proof] = {}


def proves(claim: str) -> Callable[[Proof], Proof]:
    """Registers the proof of a claim, by the claim's id."""

    def register(proof: Proof) -> Proof:
        assert claim not in PROOFS, f"{claim} has two proofs"
        PROOFS[claim] = proof
        return proof

    return register


def without(rows: list[tuple[str, int, str]], *dtypes: str) -> list[tuple[str, int, str]]:
    """Collectives but for those of some dtypes."""
    return [row for row in rows if row[2] not in dtypes]


def in_sequence(wanted: list[str], found: list[str]) -> bool:
    """Whether the names come in this order, with others in between."""
    rest: Any = iter(found)
    return all(name in rest for name in wanted)
