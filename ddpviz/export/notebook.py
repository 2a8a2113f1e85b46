"""Figures in a notebook without network: BokehJS is in it once, and no more of it than it takes.

What :func:`bokeh.io.output_notebook` puts there is every part of BokehJS, twice: 8 MB in each
notebook that is saved, where this is 1.7 MB.
"""

from __future__ import annotations

import bokeh.io
from bokeh.resources import Resources

#: Figures and widgets; not tables, WebGL and MathJax.
_COMPONENTS = ["bokeh", "bokeh-widgets"]
_SCRIPT = "application/javascript"


def output_notebook() -> None:
    """Have figures of this notebook drawn by a BokehJS that is in the notebook itself.

    To be called once, in an early cell. ``bokeh.io.show`` then works in JupyterLab, offline, in
    the notebook as it is saved, and in what ``jupyter nbconvert`` makes of it. Outside of a
    notebook it does nothing but prepare Bokeh.
    """
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.display import display
    from IPython.utils.capture import capture_output

    inline = Resources(mode="inline", components=_COMPONENTS)
    if not InteractiveShell.initialized():
        bokeh.io.output_notebook(inline, hide_banner=True)
        return
    with capture_output() as captured:
        bokeh.io.output_notebook(inline, hide_banner=True)
    for output in captured.outputs:
        script = output.data.get(_SCRIPT)
        if script is not None:
            display({_SCRIPT: script}, raw=True)
