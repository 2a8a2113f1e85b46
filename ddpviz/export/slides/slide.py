"""What a slide is made of, before it is HTML."""

from __future__ import annotations

import dataclasses

from bokeh.models import LayoutDOM


@dataclasses.dataclass(frozen=True)
class Slide:
    """``id``: of its element, so also its address. ``finding``: the sentence that it is about.

    ``html``: what stands below it, escaped by who made it; ``layout``: a figure there. ``view``:
    name of a view whose finding and facts follow the step that is chosen. ``notes``: for the
    speaker, a paragraph each.
    """

    id: str
    title: str
    finding: str
    html: str = ""
    layout: LayoutDOM | None = None
    view: str = ""
    facts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
