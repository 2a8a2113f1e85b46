"""Parts of a page in HTML: the line of state, the table of steps, the bucket plans.

Every text that comes from a recording goes through :func:`html.escape`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ddpviz.analysis.traced import from_trace
from ddpviz.events import Failure, Group, Kind, Module, Process
from ddpviz.views.text import (
    EXPOSED,
    HIDDEN,
    NOT_COUNTED,
    ON_CUDA,
    ONE_BUCKET,
    PERIOD,
    STEP,
    SUM,
    begins_as_one,
    count,
    duration,
    in_bursts,
    names,
    size,
)

if TYPE_CHECKING:
    from ddpviz.recording import Recording
    from ddpviz.views.selector import Selected

#: Rows of the table of steps in a page.
_MOST_ROWS = 400
#: Parameters of a bucket that are named without unfolding.
_MOST_NAMES = 16


@dataclasses.dataclass(frozen=True)
class State:
    """What was recorded, in one line: as plain text for the title, as HTML for the page."""

    title: str
    html: str


def state_line(recording: Recording) -> State:
    """Workload, ranks, backend, torch, number of steps."""
    processes = recording.notes(Process)
    modules = list(dict.fromkeys(note.name for note in recording.notes(Module)))
    workload = ", ".join(modules) or "no DDP module"
    ranks = count(len(recording.ranks), "rank")
    parts = [ranks]
    world = max((note.world_size for note in processes), default=0)
    if world > len(recording.ranks):
        parts[0] += f" of {world}"
    groups = [group.backend for group in recording.notes(Group) if group.backend]
    parts += list(dict.fromkeys(groups))
    parts += list(dict.fromkeys(note.device for note in processes))
    parts += list(dict.fromkeys(f"torch {note.torch}" for note in processes if note.torch))
    parts.append(count(_recorded_steps(recording), "step"))
    failures = [f"rank {note.rank} failed: {note.message}" for note in recording.notes(Failure)]
    parts += [*dict.fromkeys(failures), *recording.remarks]
    text = " · ".join(escape(part) for part in parts)
    return State(f"{workload}, {ranks}", f"<b>{escape(workload)}</b> · {text}")


def _recorded_steps(recording: Recording) -> int:
    """All there ever were; of a trace, which keeps the job's own numbers, those in it."""
    if from_trace(recording):
        return len(np.unique(recording.records(kinds=Kind.STEP)["step"]))
    return recording.last_step + 1


def steps_section(recording: Recording, selected: Selected) -> str:
    """The table of the steps in the figure, a row per step and rank, as an HTML section."""
    steps, table = selected.steps, selected.table
    table = table[table["step"].isin(steps)].sort_values(["step", "rank"])
    if table.empty:
        return "<h2>Steps</h2><p>No training step was recorded.</p>"
    per_step = max(len(recording.ranks), 1)
    shown = table[table["step"].isin(steps[-max(_MOST_ROWS // per_step, 1) :])]
    note = (
        f"<p>Step time: {STEP}. Period: {PERIOD}.</p>"
        "<p>Forward contains what it waits for, backward its own; exposed communication is the sum "
        f"of both. Hidden: {HIDDEN}. Exposed: {EXPOSED}; {SUM}. {_sentence(NOT_COUNTED)}</p>"
    )
    if bursts := in_bursts(shown):
        note += f"<p>{escape(_sentence(bursts))}</p>"
    if shown["enqueued"].any():
        note += f"<p>{_sentence(ON_CUDA)}</p>"
    recorded = _recorded_steps(recording)
    if shown["step"].nunique() < recorded:
        note += f"<p>{shown['step'].nunique()} of {count(recorded, 'step')} are listed.</p>"
    headers = [
        "step",
        "rank",
        "period",
        "step time",
        "forward",
        "backward",
        "optimizer",
        "hidden communication",
        "exposed communication",
        "buckets",
        "bucket bytes",
        "buffer broadcasts",
        "buffer bytes",
    ]
    told = {"step time": STEP, "period": PERIOD}
    told |= {"hidden communication": HIDDEN, "exposed communication": EXPOSED}
    titles = [f' title="{told[header]}"' if header in told else "" for header in headers]
    head = "".join(
        f"<th{title}>{header}</th>" for header, title in zip(headers, titles, strict=True)
    )
    rows = []
    previous = None
    for row in shown.to_dict("records"):
        cells = [
            f"{row['step']}" if row["step"] != previous else "",
            f"{row['rank']}",
            _duration(row["period_ms"]),
            _duration(row["step_ms"]),
            _duration(row["forward_ms"]),
            _duration(row["backward_ms"]),
            _duration(row["optimizer_ms"]),
            _duration(row["hidden_communication_ms"]),
            _duration(row["exposed_communication_ms"]),
            _whole(row["buckets"]),
            _sent(row["buckets"], row["bucket_bytes"]),
            _whole(row["buffer_broadcasts"]),
            _sent(row["buffer_broadcasts"], row["buffer_bytes"]),
        ]
        first = ' class="first"' if row["step"] != previous else ""
        rows.append(f"<tr{first}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        previous = row["step"]
    return (
        f'<h2>Steps</h2>{note}<table class="steps"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def plans_section(recording: Recording) -> str:
    """Every bucket plan of the first rank, side by side, as an HTML section."""
    from ddpviz.analysis import plans
    from ddpviz.analysis.plans import without_plan

    ranks = recording.ranks
    table = plans(recording, rank=ranks[0]) if ranks else pd.DataFrame()
    if table.empty:
        return f"<h2>Bucket plan</h2><p>{escape(without_plan(recording))}</p>"
    modules = {note.id: note.name for note in recording.notes(Module, rank=ranks[0])}
    several = table["module"].nunique() > 1
    parts = []
    for _, plan in table.groupby(["module", "version"]):
        first = plan.iloc[0]
        title = f"plan {first['version']}: {first['reason']}, from iteration {first['iteration']}"
        if several:
            changed = f" ({first['changed']})" if first["changed"] else ""
            name = modules.get(int(first["module"]), "module")
            title = f"{name} {first['module']}{changed}, {title}"
        rows = "".join(
            f"<tr><td>{row['bucket']}</td><td>{_sent(1, row['bytes'])}</td>"
            f"<td>{_size(row['limit_bytes'])}</td><td>{_whole(row['parameters'])}</td>"
            f'<td class="text">{_names(row["parameter_names"])}</td></tr>'
            for row in plan.sort_values("bucket").to_dict("records")
        )
        parts.append(
            f"<div><h3>{escape(title)}</h3><table><thead><tr><th>bucket</th><th>size</th>"
            '<th>closes at</th><th>parameters</th><th class="text">which</th></tr></thead>'
            f"<tbody>{rows}</tbody></table></div>"
        )
    note = "In launch order. A bucket closes once it reaches its limit, so it may exceed it."
    if any(begins_as_one(plan) for _, plan in table.groupby(["module", "version"])):
        note += f" Plan 0: {ONE_BUCKET}."
    return f'<h2>Bucket plan</h2><p>{escape(note)}</p><div class="plans">{"".join(parts)}</div>'


def _sent(number: float, size_bytes: float) -> str:
    """Of so many collectives; no bytes of some are bytes that a trace does not tell."""
    return "–" if number and not size_bytes else _size(size_bytes)


def _sentence(told: str) -> str:
    return f"{told[0].upper()}{told[1:]}."


def _names(parameter_names: Sequence[str]) -> str:
    """Parameter names as HTML; a long list unfolds at a click."""
    items = list(parameter_names)
    whole = escape(", ".join(items))
    if len(items) <= _MOST_NAMES:
        return whole
    return f"<details><summary>{escape(names(items))}</summary>{whole}</details>"


def _duration(value: float) -> str:
    return "–" if pd.isna(value) else duration(float(value))


def _size(value: float) -> str:
    return "–" if pd.isna(value) else size(float(value))


def _whole(value: float) -> str:
    return "–" if pd.isna(value) else f"{int(value)}"
