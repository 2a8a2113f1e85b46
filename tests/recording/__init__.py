"""Tests of ddpviz.recording: what a reader gets back, in memory and from disk.

Uses numpy, pyarrow and the standard library; only the tests of ``attach`` start ranks of torch.
"""
