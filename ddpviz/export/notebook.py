"""Figures in a notebook without network: BokehJS is in it once, and no more of it than it takes.

What :func:`bokeh.io.output_notebook` puts there is every part of BokehJS, twice: 8 MB in each
notebook that is saved, where this is 1.7 MB. And what Bokeh shows of a document is JavaScript with
its texts as they are, which ends where a page takes one of them for the end of a script, as in what
nbconvert makes of a notebook.
"""

from __future__ import annotations

import re
from typing import Any

import bokeh.io
import bokeh.io.notebook
from bokeh.resources import Resources

#: Figures and widgets; not tables, WebGL and MathJax.
_COMPONENTS = ["bokeh", "bokeh-widgets"]
_SCRIPT = "application/javascript"
#: In a text of JavaScript a backslash before another letter changes nothing.
_ELEMENT = re.compile(r"<(/?script)", re.IGNORECASE)


def output_notebook() -> None:
    """Have figures of this notebook drawn by a BokehJS that is in the notebook itself.

    To be called once, in an early cell. ``bokeh.io.show`` then works in JupyterLab, offline, in
    the notebook as it is saved, and in what ``jupyter nbconvert`` makes of it; names with markup in
    them stay text there. Outside of a notebook it does nothing but prepare Bokeh.
    """
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.display import display
    from IPython.utils.capture import capture_output

    inline = Resources(mode="inline", components=_COMPONENTS)
    if not InteractiveShell.initialized():
        bokeh.io.output_notebook(inline, hide_banner=True)
        return
    bokeh.io.notebook.install_notebook_hook(
        "jupyter",
        bokeh.io.notebook.load_notebook,
        _show,
        bokeh.io.notebook.show_app,
        overwrite=True,
    )
    with capture_output() as captured:
        bokeh.io.output_notebook(inline, hide_banner=True)
    for output in captured.outputs:
        script = output.data.get(_SCRIPT)
        if script is not None:
            display({_SCRIPT: script}, raw=True)


def _show(obj: Any, state: Any, notebook_handle: Any = None) -> Any:
    """What Bokeh does in Jupyter, and its script is one wherever it is put."""
    from IPython.display import display
    from IPython.utils.capture import capture_output

    with capture_output(stdout=False, stderr=False) as captured:
        handle = bokeh.io.notebook.show_doc(obj, state, notebook_handle)
    for output in captured.outputs:
        data = dict(output.data)
        if _SCRIPT in data:
            data[_SCRIPT] = within_a_page(data[_SCRIPT])
        display(data, metadata=output.metadata, raw=True)
    return handle


def within_a_page(script: str) -> str:
    """The same JavaScript, without what begins or ends a script element in HTML."""
    return _ELEMENT.sub(r"<\\\1", script)
