"""A walk as HTML: stations to unfold, with torch's lines; everything in it is escaped."""

from __future__ import annotations

import re
from html import escape

from ddpviz.explain import text
from ddpviz.explain.knowledge import Entry
from ddpviz.explain.station import Station, Walk

#: Colours of the page around it: JupyterLab's, or the browser's own.
_STYLE = """
.ddpviz-walk { font: 13px/1.45 Helvetica, Arial, sans-serif; }
.ddpviz-walk details { margin: 0 0 2px 14px; }
.ddpviz-walk summary { cursor: pointer; }
.ddpviz-walk details > p { margin: 2px 0 2px 14px; }
.ddpviz-walk code, .ddpviz-walk pre { font: 12px/1.4 Menlo, Consolas, "DejaVu Sans Mono", monospace;
  background: none; color: inherit; }
.ddpviz-walk .quiet { color: var(--jp-ui-font-color2, GrayText); }
.ddpviz-walk dl { margin: 2px 0 6px 14px; display: grid; grid-template-columns: 4.5em 1fr;
  gap: 0 8px; max-width: 62em; }
.ddpviz-walk dd { margin: 0; }
.ddpviz-walk dt { color: var(--jp-ui-font-color2, GrayText); }
.ddpviz-walk pre { margin: 2px 0 6px 14px; max-height: 24em; overflow: auto; padding: 4px 8px;
  border-left: 2px solid var(--jp-border-color2, ButtonBorder); }
.ddpviz-walk .called { font-weight: bold; }
.ddpviz-walk .called::after { content: " ◂ called from here";
  color: var(--jp-ui-font-color2, GrayText); font-weight: normal; }
"""
_OPEN_TO = 2


def fragment(found: Walk) -> str:
    """For a page that is there already."""
    remarks = "".join(f'<p class="quiet">{escape(remark)}</p>' for remark in found.remarks)
    stations = "".join(_station(one, 0, found.begin_ns) for one in found.stations)
    return (
        f'<div class="ddpviz-walk"><style>{_STYLE}</style>'
        f"<p><b>{escape(text.title(found))}</b></p>{remarks}{stations}</div>"
    )


def page(found: Walk) -> str:
    """A whole page; it fetches nothing."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(text.title(found))}</title></head><body>{fragment(found)}</body></html>\n"
    )


def _station(one: Station, depth: int, zero_ns: int) -> str:
    named = f"<code>{escape(one.name)}</code>"
    titled = f" {escape(one.entry.title)}" if one.entry is not None else ""
    time = f' <span class="quiet">{escape(text.when(one, zero_ns))}</span>'
    inner = "".join(_station(below, depth + 1, zero_ns) for below in one.stations)
    opened = " open" if depth < _OPEN_TO and one.stations else ""
    return (
        f"<details{opened}><summary>{named}{titled}{time}</summary>"
        f"{_explanation(one)}{_links(one)}{_lines(one)}{inner}</details>"
    )


def _explanation(one: Station) -> str:
    if one.entry is None:
        return ""
    rows = "".join(
        f"<dt>{escape(heading or 'What')}</dt><dd>{prose(said)}</dd>"
        for heading, said in text.texts(one.entry)
    )
    return f"<dl>{rows}</dl>"


def prose(said: str) -> str:
    """What stands between backticks is code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(said))


def article_place(entry: Entry) -> str:
    """ "line 79", "near line 79", "the file": where it is at the article's commit."""
    if entry.article_line is None:
        return "the file"
    return f"{'near ' if entry.derived else ''}line {entry.article_line}"


def _links(one: Station) -> str:
    links = []
    if one.link:
        links.append(f'<a href="{escape(one.link)}">{escape(one.place)}</a>')
    elif one.place:
        links.append(escape(one.place))
    if one.article_link and one.entry is not None:
        where = f"{article_place(one.entry)} at the article's commit"
        links.append(f'<a href="{escape(one.article_link)}">{where}</a>')
    return f"<p>{', '.join(links)}</p>" if links else ""


def _lines(one: Station) -> str:
    """The function's lines; those that called what stands inside it are marked."""
    found = one.source
    if found is None:
        return ""
    called = {at[1] for at in (below.called_at for below in one.stations) if at is not None}
    rows = []
    for number, line in found.lines:
        marked = ' class="called"' if number in called else ""
        rows.append(f"<span{marked}>{number:>5}  {escape(line)}</span>")
    return f"<details><summary>lines</summary><pre>{chr(10).join(rows)}</pre></details>"
