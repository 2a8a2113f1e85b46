"""A recording as a deck of slides: one HTML file that works offline, its figures alive.

A module per kind of slide; :mod:`~ddpviz.export.slides.deck` puts them together.
"""

from ddpviz.export.slides.deck import LIMIT_BYTES, write_slides
from ddpviz.export.slides.names import SLIDES

__all__ = ["LIMIT_BYTES", "SLIDES", "write_slides"]
