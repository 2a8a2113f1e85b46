"""Tests of ddpviz.recording: what a reader gets back, in memory and from disk.

Uses numpy, pyarrow and the standard library; starts no ranks and imports no torch.
"""
