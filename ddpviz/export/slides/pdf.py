"""A deck on paper: every slide is a page, drawn by the browser that is there."""

from __future__ import annotations

from pathlib import Path

from ddpviz.export.browser import opened

#: Of a page, in CSS px: 16 to 9.
WIDTH_PX, HEIGHT_PX = 1366, 768
#: Of its pictures, device px for each.
_SCALE = 2


def write_pdf(deck: str | Path, path: str | Path) -> Path:
    """Print a deck that is a file, and return the path of the PDF.

    Raises :class:`~ddpviz.export.browser.BrowserError` where there is no browser or it fails,
    OSError where the file cannot be written.
    """
    path = Path(path)
    with opened(Path(deck), "?print-pdf", WIDTH_PX, HEIGHT_PX, scale=_SCALE) as page:
        page.wait_for("document.documentElement?.dataset.deck == 'ready'")
        path.write_bytes(page.pdf())
    return path
