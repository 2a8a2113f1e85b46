"""Of a stack the line that a user can do something about."""

from __future__ import annotations

from ddpviz.analysis.waiting.own_code import own_line
from ddpviz.events import StackLine

TORCH = StackLine("/v/lib/python3.11/site-packages/torch/autograd/graph.py", 8, "backward", "")
PROBE = StackLine("/checkout/ddpviz/probe/backward.py", 60, "_engine_run_backward", "")
ENGINE = StackLine("/checkout/ddpviz/engines/training.py", 9, "step", "")
STRING = StackLine("<string>", 1, "<module>", "")
FROZEN = StackLine("<frozen importlib._bootstrap>", 2, "load", "")


def test_it_is_the_innermost_of_no_package() -> None:
    script = StackLine("/home/me/train.py", 88, "validate", "time.sleep(9)")
    outer = StackLine("/home/me/train.py", 3, "main", "validate()")
    assert own_line((TORCH, PROBE, TORCH, script, ENGINE, outer)) == script
    for file in ("<ipython-input-1-ab>", "/tmp/ipykernel_12/34.py"):
        cell = StackLine(file, 2, "f", "")
        assert own_line((FROZEN, TORCH, cell, script)) == cell


def test_without_one_it_is_the_innermost() -> None:
    assert own_line((TORCH, PROBE, ENGINE, STRING)) == TORCH
    assert own_line(()) is None
