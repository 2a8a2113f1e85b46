"""A page's theme as CSS: variables, and which of the browser's own colours go with it."""

from __future__ import annotations

from ddpviz.views.palette import AUTO, DARK, LIGHT, THEMES, Theme


def variables(theme: str) -> str:
    """CSS variables of a theme, or of both for "auto"."""
    if theme != AUTO:
        return _root(THEMES[theme])
    return _root(LIGHT) + "@media (prefers-color-scheme: dark) {" + _root(DARK) + "}\n"


def color_scheme(theme: str) -> str:
    """What the page says of itself to the browser."""
    return "light dark" if theme == AUTO else theme


def _root(theme: Theme) -> str:
    return (
        f":root {{ --ddpviz-background: {theme.background}; --ddpviz-text: {theme.text}; "
        f"--ddpviz-quiet: {theme.quiet_text}; --ddpviz-line: {theme.grid}; }}\n"
    )
