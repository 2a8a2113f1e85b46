"""Tables of ddpviz.analysis → Bokeh figures. No widgets of Jupyter, no kernel, no files.

May import events, recording and analysis; must not import explorer, export, lab or the probe.
"""
