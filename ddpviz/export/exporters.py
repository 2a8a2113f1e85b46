"""nbconvert's exporters with ddpviz's templates, by names of their own.

So they also stand in JupyterLab's menu *Save and Export Notebook As*, which chooses no template.
"""

from __future__ import annotations

from pathlib import Path

from nbconvert import HTMLExporter, SlidesExporter
from traitlets import default

#: Where an installation has them too, among Jupyter's own.
_TEMPLATES = str(Path(__file__).parent / "templates")


class PageExporter(HTMLExporter):
    """A page that fetches nothing: the exporter ``ddpviz_html``."""

    export_from_notebook = "Page without network (ddpviz)"

    @default("template_name")
    def _template_name_default(self) -> str:
        return "ddpviz"

    @default("extra_template_basedirs")
    def _default_extra_template_basedirs(self) -> list[str]:
        return [*super()._default_extra_template_basedirs(), _TEMPLATES]


class SlideExporter(SlidesExporter):
    """Slides that fetch nothing: the exporter ``ddpviz_slides``."""

    export_from_notebook = "Slides without network (ddpviz)"

    @default("template_name")
    def _template_name_default(self) -> str:
        return "ddpviz-slides"

    @default("extra_template_basedirs")
    def _default_extra_template_basedirs(self) -> list[str]:
        return [*super()._default_extra_template_basedirs(), _TEMPLATES]
