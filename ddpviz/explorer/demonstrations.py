"""The demonstrations as a front end lists them, runs one, and shows what it found."""

from __future__ import annotations

from typing import Any

from ddpviz.demonstrations import Demonstration, families
from ddpviz.demonstrations.picture import view_named
from ddpviz.engines import Session
from ddpviz.explain import claims


def listed() -> list[dict[str, Any]]:
    """All of them by family: title, claims of the article with their verdicts, the view."""
    known = {claim.id: claim for claim in claims()}
    return [
        {"family": family, "demonstrations": [_listed(one, known) for one in those]}
        for family, those in families().items()
    ]


def run(session: Session, name: str) -> dict[str, Any]:
    """Run one to its end; what it found. Raises as ``Session.demonstrate``."""
    found = session.demonstrate(name)
    loaded = session.status().workload
    remark = f"{found.remark}. " if found.remark else ""
    return {
        "name": name,
        "title": found.demonstration.title,
        "held": found.held,
        "sentences": list(found.sentences),
        "view": found.view,
        "step": found.step,
        "remark": f"{remark}The session is idle, with the demonstration's {loaded} loaded",
    }


def _listed(one: Demonstration, known: dict[str, Any]) -> dict[str, Any]:
    told = [known[id] for id in one.claims if id in known]
    return {
        "name": one.name,
        "title": one.title,
        "view": view_named(one.view).name,
        "claims": [{"claim": claim.claim, "verdict": claim.verdict} for claim in told],
    }
