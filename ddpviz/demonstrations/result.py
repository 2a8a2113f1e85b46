"""What a demonstration found: two sentences, the figure that shows it, the numbers behind both."""

from __future__ import annotations

import functools
from html import escape
from typing import Any

from ddpviz.demonstrations.demonstration import Demonstration, Fact
from ddpviz.demonstrations.excerpt import Excerpt


class Demonstrated:
    """Made by ``Session.demonstrate``; shown as the last line of a cell, or printed.

    Everything in it is read from what was recorded while the demonstration ran, and stays when
    the session goes on. ``remark``: what became of the session's workload.
    """

    def __init__(self, demonstration: Demonstration, excerpt: Excerpt, remark: str) -> None:
        self.demonstration = demonstration
        self.excerpt = excerpt
        self.remark = remark

    def fact(self) -> Fact:
        """The measured numbers that the sentences claim: counts, bytes, orders, names."""
        return dict(self._fact)

    @property
    def sentences(self) -> tuple[str, str]:
        """What to look at."""
        return self.demonstration.sentences(self._fact)

    @property
    def held(self) -> bool:
        """Whether the numbers are as the demonstration's title says."""
        return bool(self.demonstration.holds(self._fact))

    @property
    def step(self) -> int:
        """The step that is shown, by the recording's count; -1 for the construction."""
        at = self.demonstration.step
        return at if at < 0 else self.excerpt.first + at

    @property
    def view(self) -> str:
        """Name of the view that is shown."""
        from ddpviz.demonstrations import picture

        return picture.view_named(self.demonstration.view).name

    @property
    def finding(self) -> str:
        """What the view says of that step."""
        return self._picture.title

    def figure(self) -> Any:
        """The view as a Bokeh figure, a new one each time."""
        from ddpviz.demonstrations import picture

        return picture.figure(self.excerpt, self.demonstration.view, self._picture)

    def __str__(self) -> str:
        one = self.demonstration
        lines = [one.title, "", *self.sentences, "", f"{self.view}: {self.finding}"]
        lines += [f"  {fact}" for fact in self._picture.facts]
        lines += [f"  {note}" for note in self._counted]
        lines += ["", *(f"  {name}: {value}" for name, value in self._fact.items())]
        if one.claims:
            lines += ["", f"claims: {', '.join(one.claims)} (ddpviz claims has them)"]
        return "\n".join([*lines, *([self.remark] if self.remark else [])])

    def __repr__(self) -> str:
        return str(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._html()}

    def _html(self) -> str:
        one = self.demonstration
        told = (*self._picture.facts, *self._counted)
        facts = "".join(f"<li>{escape(fact)}</li>" for fact in told)
        remark = f"<p><i>{escape(self.remark)}</i></p>" if self.remark else ""
        return (
            f"<div><h4>{escape(one.title)}</h4><p>{escape(' '.join(self.sentences))}</p>"
            f"{self._figure_html()}<ul>{facts}</ul>{remark}</div>"
        )

    def _figure_html(self) -> str:
        """Drawn by the BokehJS that ``bokeh.io.output_notebook()`` has put on the page; where that
        was not called, in a frame of its own with the installed one in it (1.4 MB)."""
        from bokeh.embed import file_html
        from bokeh.embed.notebook import notebook_content
        from bokeh.io.state import curstate
        from bokeh.resources import Resources

        if curstate().notebook:
            script, place, _ = notebook_content(self.figure())
            script = script.replace("</", "<\\/")  # a name must not end it
            return f"{place}<script>{script}</script>"
        title = escape(self.demonstration.title, quote=True)
        page = file_html(self.figure(), Resources(mode="inline"), self.demonstration.title)
        height = self._picture.height_px + 110
        return (
            f'<iframe title="{title}" srcdoc="{escape(page, quote=True)}" '
            f'style="width: 100%; height: {height}px; border: 0"></iframe>'
        )

    @property
    def _counted(self) -> tuple[str, ...]:
        """How the sentences count steps, where the recording counts otherwise."""
        if not self.excerpt.first:
            return ()
        first = f"step {self.excerpt.first} of the recording"
        return (f"the sentences count steps from 0, the demonstration's first: {first}",)

    @functools.cached_property
    def _fact(self) -> Fact:
        return self.demonstration.fact(self.excerpt)

    @functools.cached_property
    def _picture(self) -> Any:
        from ddpviz.demonstrations import picture

        return picture.picture(self.excerpt, self.demonstration.view, self.step)
