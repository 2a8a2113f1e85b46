"""Keeps ``torch.compile`` out of the recorder's own functions. Checked on torch 2.6 and 2.13."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_eval_frame = torch._C._dynamo.eval_frame


def keep_out(*functions: Callable[..., Any]) -> None:
    """Have Dynamo run these as they are; it looks at every Python frame of a thread that compiles.

    ``torch._dynamo.disable`` would do it with a wrapper around each, whose cost is a record's, and
    would import Dynamo.
    """
    for function in functions:
        if hasattr(_eval_frame, "skip_code"):  # up to torch 2.6
            _eval_frame.skip_code(function.__code__)
        elif hasattr(_eval_frame, "set_code_exec_strategy"):
            skip, default = _eval_frame._FrameAction.SKIP, _eval_frame._FrameAction.DEFAULT
            strategy = _eval_frame._FrameExecStrategy(skip, default)
            _eval_frame.set_code_exec_strategy(function.__code__, strategy)
