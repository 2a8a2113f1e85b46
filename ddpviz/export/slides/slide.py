"""What a slide is made of, before it is HTML."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from bokeh.models import LayoutDOM


@dataclasses.dataclass(frozen=True)
class Slide:
    """``id``: of its element, so also its address. ``finding``: the sentence that it is about.

    ``html``: what stands below it, escaped by who made it; ``layout``: a figure there. ``view``:
    name of a view whose finding and facts follow the step that is chosen. ``notes``: for the
    speaker, a paragraph each. ``titles``: by value of the selector of steps, where the title names
    the chosen one.
    """

    id: str
    title: str
    finding: str
    html: str = ""
    layout: LayoutDOM | None = None
    view: str = ""
    facts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    titles: Mapping[str, str] = dataclasses.field(default_factory=dict)
