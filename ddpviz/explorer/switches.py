"""The switches of a session, from its knobs: what each is, does and needs."""

from __future__ import annotations

from typing import Any

from ddpviz.engines import Session
from ddpviz.engines.knobs import Knob
from ddpviz.explorer import sampling, states
from ddpviz.explorer.subject import Subject

#: Those that matter most, in this order; the others are folded.
_FIRST = ("forward_sync_buffers", "broadcast_buffers", "bucket_cap_mb", "delay_ms", "workload")
_LABELS = {
    "forward_sync_buffers": "buffer sync",
    "broadcast_buffers": "buffer sync",
    "bucket_cap_mb": "bucket cap (MiB)",
    "gradient_as_bucket_view": "gradients as bucket views",
    "static_graph": "static graph",
    "find_unused_parameters": "find unused parameters",
    "comm_hook": "comm hook",
    "sync_batchnorm": "SyncBatchNorm",
    "delay_ms": "delay per rank (ms)",
    "steps_per_second": "steps per second, at most",
    "accumulation": "accumulate (no_sync) over",
    "batch_size": "batch size",
}


def of(subject: Subject) -> list[dict[str, Any]]:
    """Every Switch, those that matter most first."""
    session = subject.session
    if session is None:
        return []
    why = _disabled(subject)
    found = [*(_switch(knob, why) for knob in session.knobs()), sampling.switch(session, why)]
    order = {name: place for place, name in enumerate(_FIRST)}
    return sorted(found, key=lambda one: order.get(one["name"], len(order)))


def predict(session: Session, values: dict[str, Any]) -> dict[str, Any]:
    """What a change will need, and why it is refused if it is; nothing is changed."""
    given = _given(values)
    told = []
    if sampling.NAME in given:
        told.append(sampling.predict(given.pop(sampling.NAME)))
    if given or not told:
        found = session.predict(**given)
        told.append({"needs": found.needs, "refused": found.refused})
    refused = [one["refused"] for one in told if one["refused"]]
    needs = "; ".join(one["needs"] for one in told if one["needs"])
    return {"needs": needs, "refused": refused[0] if refused else None}


def apply(session: Session, values: dict[str, Any]) -> str:
    """Change it; what that took."""
    given = _given(values)
    done = []
    if sampling.NAME in given:
        done.append(sampling.apply(session, given.pop(sampling.NAME)))
    if given or not done:
        done.append(session.configure(**given))
    return ", ".join(done)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Values as they came as JSON, whose objects have no numbers as keys."""
    return {
        name: _by_rank(value) if name == "delay_ms" else value for name, value in values.items()
    }


def _by_rank(value: Any) -> Any:
    if isinstance(value, dict) and all(str(key).isdigit() for key in value):
        return {int(key): number for key, number in value.items()}
    return value


def _disabled(subject: Subject) -> str | None:
    status = states.status_of(subject.session)
    if status in ("idle", "training", "waiting"):
        return None
    return {
        "failed": "a rank failed: press Restart first",
        "closed": "the session is closed",
        "demonstrating": "a demonstration runs: wait for it, or press Stop",
        "comparing": "a comparison runs: wait for it, or press Stop",
    }.get(status, f"the session is {status}: wait for that")


def _switch(knob: Knob, why: str | None) -> dict[str, Any]:
    return {
        "name": knob.name,
        "label": _LABELS.get(knob.name, knob.name.replace("_", " ")),
        "explanation": knob.explanation,
        "kind": knob.kind,
        "value": _plain(knob.value),
        "choices": _plain(knob.choices),
        "min": knob.min,
        "max": knob.max,
        "step": knob.step,
        "group": "first" if knob.name in _FIRST else "more",
        "needs": knob.needs,
        "disabled": why or knob.disabled,
    }


def _plain(value: Any) -> Any:
    """What JSON can say; a function by its name."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return getattr(value, "__qualname__", str(value))
