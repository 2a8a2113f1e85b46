"""The job in one slide: what was trained, on what, how configured, and how long a step took."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd

from ddpviz.events import Configuration, Group, Module, Plan, Process
from ddpviz.export.slides.slide import Slide
from ddpviz.export.slides.typical import inferred
from ddpviz.views.text import brief, count, duration, names, size

if TYPE_CHECKING:
    from ddpviz.recording import Recording

#: Modules that are named.
_MOST_MODULES = 3
_DASH = "–"


def job(recording: Recording, title: str, table: pd.DataFrame) -> Slide:
    """``table``: :func:`ddpviz.analysis.steps`."""
    numbers = "".join(
        f"<div><b>{escape(number)}</b>{escape(what)}</div>" for number, what in _numbers(table)
    )
    facts = _list("What ran", _facts(recording))
    turned = _list("DDP's configuration", _configuration(recording))
    html = f'<div class="numbers">{numbers}</div><div class="columns">{facts}{turned}</div>'
    on = [told for told in (_backends(recording), _devices(recording)) if told]
    finding = ", ".join([f"{workload(recording)} on {ranks(recording)}", *on])
    return Slide("job", title, finding, html)


def workload(recording: Recording) -> str:
    """Names of the modules."""
    found = list(dict.fromkeys(note.name for note in recording.notes(Module)))
    return brief(names(found, _MOST_MODULES)) or "no DDP module"


def ranks(recording: Recording) -> str:
    """How many were recorded, of how many there were."""
    world = max((note.world_size for note in recording.notes(Process)), default=0)
    told = count(len(recording.ranks), "rank")
    return f"{told} of {world}" if world > len(recording.ranks) else told


def _numbers(table: pd.DataFrame) -> list[tuple[str, str]]:
    complete = table.dropna(subset=["step_ms"])
    hidden, exposed = complete["hidden_communication_ms"], complete["exposed_communication_ms"]
    steps = int(complete["step"].nunique())
    found = [
        (_median(table, "step_ms"), f"a step, median of {count(steps, 'step')} and all ranks"),
        (_median(table, "exposed_communication_ms"), "of it waiting for collectives: exposed"),
    ]
    if (hidden.notna() & exposed.notna()).any() and (hidden + exposed).sum() > 0:
        share = hidden.sum() / (hidden + exposed).sum()
        found.append((f"{share:.0%}", "of communication hidden behind the backward"))
    return found


def _median(table: pd.DataFrame, column: str) -> str:
    median = float(table[column].median()) if len(table) else float("nan")
    return duration(median) if median == median else _DASH


def _facts(recording: Recording) -> list[tuple[str, str]]:
    processes = recording.notes(Process)
    modules = recording.notes(Module, rank=min(recording.ranks, default=0))
    found = [("model", workload(recording))]
    if inferred(recording):
        found += _reduced(recording)
    for module in modules[:1]:
        if inferred(recording):  # a trace tells of no tensors, but of what was sent
            break
        bytes_ = sum(one.bytes for one in module.parameters)
        found.append(("parameters", f"{count(len(module.parameters), 'tensor')}, {size(bytes_)}"))
        if module.buffers:
            bytes_ = sum(one.bytes for one in module.buffers)
            found.append(("buffers", f"{count(len(module.buffers), 'tensor')}, {size(bytes_)}"))
    hosts = len({note.hostname for note in processes})
    found.append(("ranks", f"{ranks(recording)}, {count(hosts, 'host')}"))
    found += [("backend", _backends(recording)), ("device", _devices(recording))]
    found.append(("torch", _distinct(note.torch for note in processes)))
    found.append(("Python", _distinct(note.python for note in processes)))
    return [(what, value) for what, value in found if value]


def _reduced(recording: Recording) -> list[tuple[str, str]]:
    """Of the newest plan of the first rank."""
    plans = recording.notes(Plan, rank=min(recording.ranks, default=0))
    buckets = plans[-1].buckets if plans else ()
    if not buckets:
        return []
    gradients = count(sum(len(one.parameters) for one in buckets), "gradient")
    bytes_ = sum(one.bytes for one in buckets)
    sizes = size(bytes_) if bytes_ else "sizes are not in the trace"
    return [("reduced", f"{gradients} in {count(len(buckets), 'bucket')}, {sizes}")]


def _configuration(recording: Recording) -> list[tuple[str, str]]:
    """The last one of the first module."""
    notes = recording.notes(Configuration, rank=min(recording.ranks, default=0))
    if not notes:
        return [("", "not recorded")]
    last = [note for note in notes if note.module == notes[0].module][-1]
    told = [(name, _value(name, value)) for name, value in last.values.items()]
    return [(name, value) for name, value in told if name != "world_size"]


def _value(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int) and ("bytes" in name or name.endswith("_size")):
        return size(value)
    return str(value) or "none"


def _backends(recording: Recording) -> str:
    return _distinct(note.backend for note in recording.notes(Group))


def _devices(recording: Recording) -> str:
    return _distinct(note.device for note in recording.notes(Process))


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value))


def _list(heading: str, pairs: list[tuple[str, str]]) -> str:
    rows = "".join(
        f"<dt>{escape(what)}</dt><dd>{escape(brief(value))}</dd>" for what, value in pairs
    )
    return f"<div><h3>{escape(heading)}</h3><dl>{rows}</dl></div>"
