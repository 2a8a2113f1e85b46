"""Skipped, saying why, where there is no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch


def why_not() -> str:
    if not torch.backends.cuda.is_built():
        return f"torch {torch.__version__} is built without CUDA"
    if not torch.cuda.is_available():
        return "torch finds no CUDA device here"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    why = why_not()
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if why:
                item.add_marker(pytest.mark.skip(reason=why))
