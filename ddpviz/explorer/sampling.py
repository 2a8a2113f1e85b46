"""The switch for fingerprints: no knob of DDP, but of what is recorded."""

from __future__ import annotations

from typing import Any

from ddpviz.engines import ConfigurationError, Session

NAME = "fingerprints"

_EXPLANATION = (
    "Every rank hashes its parameters, gradients and buffers, so that the views tell whether the "
    "replicas are equal and how buffers drift; nothing is sent. A sampled step takes longer."
)
_NEEDS = "applies from the next chunk of steps on"
_CHOICES = {"off": 0, "every 20 steps": 20, "every step": 1}


def switch(session: Session, why: str | None) -> dict[str, Any]:
    """It as a Switch. ``why``: it cannot be turned now."""
    every = session.fingerprints_every
    value = next((n for n, steps in _CHOICES.items() if steps == every), f"every {every} steps")
    return {
        "name": NAME,
        "label": NAME,
        "explanation": _EXPLANATION,
        "kind": "choice",
        "value": value,
        "choices": list(dict.fromkeys([*_CHOICES, value])),
        "min": None,
        "max": None,
        "step": None,
        "group": "more",
        "needs": _NEEDS,
        "disabled": why,
    }


def apply(session: Session, value: Any) -> str:
    """Take them so often from now on. Raises ConfigurationError for what is no choice."""
    session.fingerprints(_every(value))
    return f"fingerprints: {value}"


def predict(value: Any) -> dict[str, Any]:
    """What that will need, and why it is refused if it is."""
    try:
        _every(value)
    except ConfigurationError as error:
        return {"needs": "", "refused": str(error)}
    return {"needs": _NEEDS, "refused": None}


def _every(value: Any) -> int:
    if value not in _CHOICES:
        raise ConfigurationError(
            f"found fingerprints={value!r}, expected one of {', '.join(_CHOICES)}"
        )
    return _CHOICES[value]
