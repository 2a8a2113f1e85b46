"""The notebooks and the JupyterLab extension, in a real kernel and a real browser.

May use every part of ddpviz; no other tests import from here.
"""
