"""JupyterLab's side: the tour, and the start of JupyterLab at it.

The TypeScript of the extension is in ``labextension/``. Must not be imported by anything but cli.
"""

from ddpviz.lab.tour import open_lab, place_tour

__all__ = ["open_lab", "place_tour"]
