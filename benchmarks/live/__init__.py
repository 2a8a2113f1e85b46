"""The live explorer, measured in a real JupyterLab with Chromium; see ``__main__``.

The kernel and the page are watched from their own inside: ``in_kernel.py``, ``in_page.js``.
"""
