"""Colours and themes. One meaning per colour in every figure, page and slide (Okabe-Ito)."""

from __future__ import annotations

import dataclasses

#: Kind of a span → (colour, label in the legend), in the legend's order.
SPANS: dict[str, tuple[str, str]] = {
    "forward": ("#56B4E9", "forward"),
    "buffers": ("#CC79A7", "buffer broadcast"),
    "backward": ("#009E73", "backward"),
    "filling": ("#F0E442", "bucket filling"),
    "head_of_line": ("#E69F00", "full, waits its turn"),
    "launch_delay": ("#C7A77B", "full, not yet launched"),
    "wait_for_rank": ("#D55E00", "waits for a rank"),
    "transfer": ("#0072B2", "transfer"),
    "in_flight": ("#6F5BB5", "waits or transfers"),
    "optimizer": ("#999999", "optimizer"),
    "construction": ("#BBBBBB", "construction"),
    "host": ("#A3ADB8", "host enqueues"),
    "fingerprints": ("#D3C9B4", "fingerprints, by ddpviz"),
}

#: The stretches of a bucket, always in this order; "in_flight" is the last two in one.
STRETCHES = ("filling", "head_of_line", "launch_delay", "wait_for_rank", "transfer")


@dataclasses.dataclass(frozen=True)
class Theme:
    """Colours around the data. ``name`` is "light" or "dark"."""

    name: str
    background: str
    text: str
    quiet_text: str
    grid: str
    tick: str
    exposed_fill: str
    exposed_line: str
    exposed_text: str
    hatch: str
    wrong: str


LIGHT = Theme(
    name="light",
    background="#ffffff",
    text="#1f2328",
    quiet_text="#59636e",
    grid="#e8eaed",
    tick="#1f2328",
    exposed_fill="#faeae0",
    exposed_line="#d9a58a",
    exposed_text="#9a4000",
    hatch="#5c4000",
    wrong="#b3261e",
)

DARK = Theme(
    name="dark",
    background="#1b1e23",
    text="#e6e6e6",
    quiet_text="#9aa4af",
    grid="#33383f",
    tick="#ffffff",
    exposed_fill="#35261d",
    exposed_line="#7d5a46",
    exposed_text="#ff9d5c",
    hatch="#3d2b00",
    wrong="#ff8a80",
)

THEMES = {theme.name: theme for theme in (LIGHT, DARK)}
#: In place of a theme's name: as the page that shows the figure.
AUTO = "auto"


def theme_named(name: str) -> Theme:
    """The theme "light" or "dark". Raises ValueError for any other name."""
    if name not in THEMES:
        raise ValueError(f"found the theme {name!r}, expected one of {[AUTO, *THEMES]}")
    return THEMES[name]
