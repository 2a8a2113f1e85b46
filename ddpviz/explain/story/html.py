"""A story as HTML: one page, offline, everything from the trace escaped."""

from __future__ import annotations

import re
from html import escape

from ddpviz.explain.story import text
from ddpviz.explain.story.cost import Cost
from ddpviz.explain.story.frames import Frame
from ddpviz.explain.story.telling import Story

_STYLE = """
.ddpviz-story { font: 13px/1.45 Helvetica, Arial, sans-serif; max-width: 1400px; }
.ddpviz-story h1 { font-size: 15px; } .ddpviz-story h2 { font-size: 14px; margin: 18px 0 4px; }
.ddpviz-story code { font: 12px/1.4 Menlo, Consolas, "DejaVu Sans Mono", monospace;
  background: none; color: inherit; overflow-wrap: anywhere; }
.ddpviz-story table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.ddpviz-story th, .ddpviz-story td { text-align: left; vertical-align: top;
  padding: 3px 14px 3px 0; overflow-wrap: anywhere; }
.ddpviz-story th { font-weight: normal; color: var(--jp-ui-font-color2, GrayText);
  border-bottom: 1px solid var(--jp-border-color2, ButtonBorder); }
.ddpviz-story .frames { table-layout: fixed; width: 100%; }
.ddpviz-story .frames td { border-bottom: 1px solid var(--jp-border-color2, ButtonBorder); }
.ddpviz-story .quiet { color: var(--jp-ui-font-color2, GrayText); }
.ddpviz-story li { margin-bottom: 4px; }
"""
_COLUMNS = (
    ("frame", "24%"),
    ("what is happening", "24%"),
    ("source", "13%"),
    ("a step", "11%"),
    ("how to change it", "14%"),
    ("what that risks", "14%"),
)


def fragment(found: Story) -> str:
    """For a page that is there already."""
    first = "".join(_cost(cost) for cost in found.costs[: text.TOLD])
    rest = "".join(f"<li>{_prose(cost.sentence)}.</li>" for cost in found.costs[text.TOLD :])
    fine = "".join(f"<li>{_prose(sentence)}</li>" for sentence in found.fine)
    return (
        f'<div class="ddpviz-story"><style>{_STYLE}</style><h1>{escape(found.title)}</h1>'
        f"{''.join(f'<p><b>Doubt:</b> {escape(doubt)}.</p>' for doubt in found.doubts)}"
        f"<h2>What costs most, per step</h2>"
        f"<ol>{first or '<li>nothing of DDP’s own</li>'}</ol>"
        f"{f'<ol start={text.TOLD + 1}>{rest}</ol>' if rest else ''}"
        f"{f'<h2>What is not wrong</h2><ul>{fine}</ul>' if fine else ''}"
        f"{''.join(_table(*one) for one in text.tables(found))}{_frames(found)}"
        f"{_remarks(found.remarks)}</div>"
    )


def page(found: Story) -> str:
    """A whole page; it fetches nothing."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>ddpviz: {escape(found.title)}</title></head>"
        f"<body>{fragment(found)}</body></html>\n"
    )


def _cost(cost: Cost) -> str:
    more = (
        f'<br><span class="quiet">Change:</span> {_prose(cost.change)}. '
        f'<span class="quiet">Risk:</span> {_prose(cost.risk)}.'
        if cost.change
        else ""
    )
    return f"<li><b>{_prose(cost.sentence)}.</b>{more}</li>"


def _table(heading: str, content: tuple[list[str], list[list[str]]]) -> str:
    names, rows = content
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<h2>{escape(heading)}</h2><table><tr>{head}</tr>{body}</table>"


def _frames(found: Story) -> str:
    columns = "".join(f'<col style="width: {width}">' for _, width in _COLUMNS)
    head = "".join(f"<th>{name}</th>" for name, _ in _COLUMNS)
    told: set[int] = set()
    rows = "".join(_row(frame, depth, found.tree.steps, told) for depth, frame in found.tree.all())
    return (
        f"<h2>{escape(text.frames_heading(found))}</h2>{_remarks(found.tree.remarks)}"
        f'<table class="frames"><colgroup>{columns}</colgroup><tr>{head}</tr>{rows}</table>'
    )


def _row(frame: Frame, depth: int, steps: int, told: set[int]) -> str:
    one, station = frame.entry, frame.station
    name = f'<code style="margin-left: {min(depth, 12) * 12}px">{escape(frame.name)}</code>'
    what = change = risk = ""
    if one is not None:
        what = f"<b>{escape(one.title)}</b>"
        if id(one) not in told:
            told.add(id(one))
            what += f"<br>{_prose(one.what)}"
            change, risk = _prose(one.how_to_change), _prose(one.risk)
        else:
            what += ' <span class="quiet">(above)</span>'
    where = escape(station.place) if station is not None else ""
    if station is not None and station.link:
        where = f'<a href="{escape(station.link)}">{where or "source"}</a>'
    detail = f'<br><span class="quiet">{escape(frame.detail)}</span>' if frame.detail else ""
    cells = (name, what, where, escape(text.per_step(frame, steps)) + detail, change, risk)
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _remarks(remarks: tuple[str, ...]) -> str:
    return "".join(f'<p class="quiet">{escape(remark)}</p>' for remark in remarks)


def _prose(said: str) -> str:
    """What stands between backticks is code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(said))
