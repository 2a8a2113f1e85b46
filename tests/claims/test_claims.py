"""Every claim of the register, on the installed torch; and that none is without proof."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from ddpviz.explain import Claim, claims
from tests.claims import evidence
from tests.claims.proofs import PROOFS
from tests.fidelity.scenarios import HAS_FLIGHT_RECORDER

for _part in ("trace", "construction", "forward", "backward", "compile"):
    importlib.import_module(f"tests.claims.proofs_{_part}")


@pytest.fixture(scope="module")
def runs() -> evidence.Runs:
    if not HAS_FLIGHT_RECORDER:
        pytest.skip("this torch has no flight recorder for gloo, which is the witness here")
    return evidence.gather()


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.id)
def test_claim(claim: Claim, runs: evidence.Runs) -> None:
    PROOFS[claim.id](runs)


def test_every_claim_has_a_proof_and_every_proof_a_claim() -> None:
    assert {claim.id for claim in claims()} == set(PROOFS)


def test_every_proof_that_is_named_is_one_of_these_tests() -> None:
    here = "/".join(Path(__file__).parts[-3:])
    for claim in claims():
        assert claim.proof == f"{here}::{test_claim.__name__}[{claim.id}]"
        assert claim.id in PROOFS


def test_the_articles_order_and_its_count() -> None:
    parts = [claim.part for claim in claims()]
    assert parts == sorted(parts, key=list(dict.fromkeys(parts)).index)
    assert len(parts) == 66
