"""Findings as text: a block each, the worst first; what could not be checked below."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from ddpviz.analysis.audit import Finding, Unchecked, by_reason

_WIDTH = 100
_LABEL = 10


def text(found: Sequence[Finding], unchecked: Sequence[Unchecked], remarks: Iterable[str]) -> str:
    """All of it, without a newline at the end."""
    blocks = [_block(number, one) for number, one in enumerate(found, 1)]
    if not found:
        blocks.append("No findings.")
    lines = [f"{why}: {', '.join(kinds)}" for why, kinds in by_reason(unchecked).items()]
    below = [_row("unchecked", line) for line in lines]
    below += [_row("note", remark) for remark in remarks]
    if below:
        blocks.append("\n".join(below))
    return "\n\n".join(blocks) + "\n"


def _block(number: int, one: Finding) -> str:
    what = f"{number}. {one.severity.text}: {one.what}"
    since = "before the first step" if one.since_step < 0 else f"step {one.since_step}"
    rows = [
        ("since", since),
        ("ranks", ", ".join(map(str, one.ranks)) or "-"),
        ("names", ", ".join(one.names) or "-"),
        ("evidence", f"{one.evidence}{_where(one)}"),
        ("cause", one.cause),
        ("remedy", one.remedy),
        ("sure", f"{one.sure} ({one.kind})"),
    ]
    head = textwrap.fill(what, _WIDTH, subsequent_indent="   ")
    return "\n".join([head, *("   " + _row(*row).replace("\n", "\n   ") for row in rows)])


def _where(one: Finding) -> str:
    if not one.view:
        return ""
    step = "" if one.view_step is None else f", step {one.view_step}"
    return f" (view {one.view}{step})"


def _row(label: str, said: str) -> str:
    return textwrap.fill(
        said,
        _WIDTH - 3,
        initial_indent=f"{label:<{_LABEL}} ",
        subsequent_indent=" " * (_LABEL + 1),
        break_long_words=False,
    )
