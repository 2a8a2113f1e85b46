"""Colours that follow the page a figure is in: JupyterLab's theme, or what the page is like."""

from __future__ import annotations

from collections.abc import Callable

from bokeh.models import CustomJS
from bokeh.plotting import figure

from ddpviz.views.figure import StepFigure, themed
from ddpviz.views.live import Pairs
from ddpviz.views.palette import AUTO, DARK, LIGHT, Theme, theme_named

#: JupyterLab says what its theme is. Elsewhere the colour behind the figure counts, not what the
#: browser prefers: a page that knows of no dark theme stays white under it.
_FOLLOW = """
if (plot.tags.includes(following)) {
  return
}
plot.tags = [...plot.tags, following]
const body = document.body
const behind = () => {
  for (const element of [body, document.documentElement]) {
    const colour = getComputedStyle(element).backgroundColor
    if (!/^(transparent|rgba\\(.*, 0\\))$/.test(colour)) {
      return colour
    }
  }
  const probe = document.createElement("div")
  probe.style.backgroundColor = "Canvas"
  body.append(probe)
  const colour = getComputedStyle(probe).backgroundColor
  probe.remove()
  return colour
}
const is_dark = () => {
  if (body.dataset.jpThemeLight != null) {
    return body.dataset.jpThemeLight == "false"
  }
  const [red, green, blue] = behind().match(/[\\d.]+/g).map(Number)
  return 0.299 * red + 0.587 * green + 0.114 * blue < 128
}
let shown = null
const apply = () => {
  if (plot.document == null) {
    observer.disconnect()
    preferred.removeEventListener("change", apply)
    return
  }
  const dark = is_dark()
  if (dark !== shown) {
    shown = dark
    for (const [model, light, night] of themed) {
      model.setv(dark ? night : light)
    }
  }
}
const observer = new MutationObserver(apply)
const watched = {attributes: true, attributeFilter: ["data-jp-theme-light", "class", "style"]}
observer.observe(body, watched)
observer.observe(document.documentElement, watched)
const preferred = window.matchMedia("(prefers-color-scheme: dark)")
preferred.addEventListener("change", apply)
apply()
"""


def colour(drawn: StepFigure, theme: str) -> None:
    """Give a step's figure the colours of a theme, or of "auto". Raises ValueError for another."""
    colour_plot(drawn.plot, lambda one: themed(drawn, one), theme)


def colour_plot(plot: figure, themed: Callable[[Theme], Pairs], theme: str) -> None:
    """The same for any figure, of which ``themed`` tells what a theme sets."""
    chosen = LIGHT if theme == AUTO else theme_named(theme)
    for model, values in themed(chosen):
        model.update(**values)
    if theme == AUTO:
        _follow_page(plot, themed)


def _follow_page(plot: figure, themed: Callable[[Theme], Pairs]) -> None:
    """Have the browser choose the figure's colours, when it is laid out first and from then on.

    A figure has no event for being there; the browser sets ``inner_width`` at its first layout,
    wherever it is embedded.
    """
    pairs = zip(themed(LIGHT), themed(DARK), strict=True)
    both = [[model, light, night] for (model, light), (_, night) in pairs]
    arguments = {"plot": plot, "themed": both, "following": "ddpviz: follows the page"}
    plot.js_on_change("inner_width", CustomJS(args=arguments, code=_FOLLOW))
