"""Fingerprints of tensors in the host's memory: read once, at the speed of memory.

A block of a tensor that lies in a core's cache is summed in lanes, and its square is summed while
it is still there; what is left, a lane's sum per block, is hashed exactly.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import torch

#: 64-bit words that lie this far apart are summed. A prime: no dimension of a model is a multiple
#: of it, so that rows or heads that change places show.
_LANES = 509
#: Bytes of a block: half of a core's second-level cache on today's machines.
_BLOCK_BYTES = 1 << 20
#: Others go the exact way: of a 64-bit number its sign is the highest bit of a word, and two of
#: them that flip cancel.
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def fits(tensor: torch.Tensor) -> bool:
    """Whether a tensor (plain, detached) is one that this module reads."""
    return (
        tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.dtype in _FLOATS
    )


def fingerprint(tensor: torch.Tensor) -> tuple[str, float | None, int]:
    """16 hex digits that depend on the bytes alone, in logical order; the Euclidean norm, None
    where it is not finite; how many elements are not finite.

    One word that differs always shows. Several that differ show as well, unless their differences
    cancel in the sum, modulo 2**64, of words a multiple of 509 apart.
    """
    flat = tensor.reshape(-1)
    nbytes = flat.numel() * flat.element_size()
    digest = hashlib.blake2b(nbytes.to_bytes(8, "little"), digest_size=8)
    squares = 0.0
    per_block = _BLOCK_BYTES // flat.element_size()
    for begin in range(0, flat.numel(), per_block):
        block = flat[begin : begin + per_block] if nbytes > _BLOCK_BYTES else flat
        squares += _squares(block)  # first: it is what reads memory quickest
        _add(digest, block)
    if not math.isfinite(squares):  # a NaN, an infinity, or the square of a large number
        squares = float(flat.double().square().sum())
    if math.isfinite(squares):
        return digest.hexdigest(), math.sqrt(squares), 0
    nonfinite = int((~torch.isfinite(flat)).sum())
    return digest.hexdigest(), None, nonfinite


def _add(digest: hashlib.blake2b, block: torch.Tensor) -> None:
    raw: Any = block.view(torch.uint8).numpy()
    words = len(raw) // 8
    rows = words // _LANES
    if rows < 2:
        digest.update(raw)
        return
    if raw.ctypes.data % 8:  # a view into a bucket: numpy is slow where words are not aligned
        raw = raw.copy()
    summed = raw[: rows * _LANES * 8].view(np.uint64)
    lanes: Any = np.add.reduce(summed.reshape(rows, _LANES), axis=0)
    digest.update(lanes)
    digest.update(raw[rows * _LANES * 8 :])


def _squares(block: torch.Tensor) -> float:
    if block.dtype is not torch.float32:
        block = block.float()
    return float(torch.dot(block, block))
