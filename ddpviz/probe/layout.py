"""How a tensor lies in memory."""

from __future__ import annotations

from typing import Any


def memory_order(tensor: Any) -> list[int] | None:
    """Its dimensions from the outermost in memory to the innermost; None where that is their own
    order, or elements overlap or leave gaps."""
    if tensor.is_contiguous():
        return None
    sizes, strides = tensor.shape, tensor.stride()
    order = sorted(range(len(sizes)), key=lambda dim: (-strides[dim], dim))
    expected = 1
    for dim in reversed(order):
        if sizes[dim] > 1 and strides[dim] != expected:
            return None
        expected *= sizes[dim]
    return order


def strides(tensor: Any) -> tuple[int, ...]:
    """Its strides, 0 for a dimension of one element, whose stride means nothing."""
    return tuple(
        stride if size > 1 else 0
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def bucket_strides(parameter: Any) -> tuple[int, ...]:
    """The strides of a parameter's part of a bucket: its own where it is dense, else those of
    logical order (``Reducer::initialize_bucket_views``, torch 2.6 to 2.13)."""
    if parameter.is_contiguous() or memory_order(parameter) is not None:
        return strides(parameter)
    found, step = [], 1
    for size in reversed(parameter.shape):
        found.append(step if size > 1 else 0)
        step *= size
    return tuple(reversed(found))
