"""Tests of ddpviz.analysis: arithmetic on records made by hand, facts of real two-rank runs.

``material`` makes records; nothing here imports Bokeh or Jupyter.
"""
