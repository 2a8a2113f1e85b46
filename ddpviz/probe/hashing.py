"""Hashes and norms of tensors, where they lie: in the host's memory each for itself
(:mod:`ddpviz.probe.hashing_host`), on a device with a few operations for all of them.

Only sums of integers: the same bits on any device of a sort, thread count and order of reduction.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator, Sequence

import torch

from ddpviz.probe import hashing_host

#: 32-bit words hashed to one sum.
_PIECE_WORDS = 65_536
#: Words hashed together. On a CPU they should stay in its cache; on a GPU launches cost most, and
#: this much takes 24 MiB of its memory for a moment.
_BATCH_WORDS = {"cpu": 131_072, "cuda": 1_048_576}
#: Odd numbers, so that multiplying loses nothing: SplitMix64's (Steele, Lea, Flood 2014).
_FACTORS = (-7046029254386353131, -4658895280553007687, -7723592293110705685)
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32, 16: torch.int32}


def fingerprints(
    tensors: Sequence[torch.Tensor | None],
) -> tuple[tuple[str, ...], tuple[float | None, ...], tuple[int, ...]]:
    """Per tensor, None among them: 16 hex digits, "" for None, equal where the bytes are in logical
    order, and else different as far as :class:`ddpviz.events.Fingerprints` says; the Euclidean
    norm, None where it is not finite, and for None; how many elements are not finite.
    """
    plain = [None if tensor is None else _plain(tensor) for tensor in tensors]
    there = [tensor is not None and hashing_host.fits(tensor) for tensor in plain]
    others = [None if here else tensor for tensor, here in zip(plain, there, strict=True)]
    if any(tensor is not None for tensor in others):
        hashed, (normed, nonfinite) = _hashes(others), _norms(others)
        found = list(zip(hashed, normed, nonfinite, strict=True))
    else:
        found = [("", None, 0)] * len(plain)
    for place, tensor in enumerate(plain):
        if there[place] and tensor is not None:
            found[place] = hashing_host.fingerprint(tensor)
    return (
        tuple(one[0] for one in found),
        tuple(one[1] for one in found),
        tuple(one[2] for one in found),
    )


def _hashes(tensors: Sequence[torch.Tensor | None]) -> tuple[str, ...]:
    """Each word is mixed with its place by a bijection of 64 bits, and the results are added modulo
    2**64: one word that differs always shows, more of them but for 1 chance in 2**64.
    """
    pieces: list[torch.Tensor] = []
    owners: list[int] = []
    for owner, tensor in enumerate(tensors):
        if tensor is not None:
            words = _words(tensor)
            # Splitting what needs none takes as long as all else that is done with a small tensor.
            of = [words] if words.numel() <= _PIECE_WORDS else words.split(_PIECE_WORDS)
            pieces += of
            owners += [owner] * len(of)
    sums: list[list[int]] = [[] for _ in tensors]
    batches = [_sums(batch) for batch in _batches(pieces)]
    if batches:  # all was launched: only now the host waits
        found = torch.cat([batch.cpu() for batch in batches]).tolist()
        for owner, piece_sum in zip(owners, found, strict=True):
            sums[owner].append(piece_sum)
    return tuple(
        "" if tensor is None else _digest(of) for tensor, of in zip(tensors, sums, strict=True)
    )


def _norms(
    tensors: Sequence[torch.Tensor | None],
) -> tuple[tuple[float | None, ...], tuple[int, ...]]:
    """In float64, and how many elements are not finite."""
    there = [_numbers(tensor) for tensor in tensors if tensor is not None]
    if not there:
        return (None,) * len(tensors), (0,) * len(tensors)
    found = torch._foreach_norm(there, 2, dtype=torch.float64)
    together = len({norm.device for norm in found}) == 1
    values = iter(torch.stack(found).tolist() if together else map(float, found))
    numbers = iter(there)
    told: list[float | None] = []
    nonfinite = []
    for tensor in tensors:
        value = math.nan if tensor is None else next(values)
        told.append(value if math.isfinite(value) else None)
        # A NaN or an infinity in a tensor is one in its norm: the others need no second look.
        many = tensor is not None and not math.isfinite(value)
        of = None if tensor is None else next(numbers)
        nonfinite.append(int((~torch.isfinite(of)).sum()) if many and of is not None else 0)
    return tuple(told), tuple(nonfinite)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Without autograd; of a distributed tensor this rank's part, so that nothing communicates."""
    return getattr(tensor, "_local_tensor", tensor).detach()


def _parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    tensor = _plain(tensor)
    if tensor.layout is torch.strided:
        return (tensor,)
    tensor = tensor.coalesce()
    return tensor.values(), tensor.indices()


def _words(tensor: torch.Tensor) -> torch.Tensor:
    parts = [part.reshape(-1) for part in _parts(tensor)]
    words = [part.view(_WORDS[part.element_size()]) for part in parts]
    return words[0] if len(words) == 1 else torch.cat(words)


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    values = _parts(tensor)[0]
    if values.is_complex():
        values = torch.view_as_real(values)
    return values if values.is_floating_point() and values.element_size() > 1 else values.double()


def _batches(pieces: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    batch: list[torch.Tensor] = []
    words = 0
    for piece in pieces:
        most = _BATCH_WORDS.get(piece.device.type, _PIECE_WORDS)
        elsewhere = bool(batch) and batch[0].device != piece.device
        if batch and (elsewhere or words + piece.numel() > most):
            yield batch
            batch, words = [], 0
        batch.append(piece)
        words += piece.numel()
    if batch:
        yield batch


def _sums(pieces: list[torch.Tensor]) -> torch.Tensor:
    """The sum of each piece's mixed words, int64."""
    lengths = [piece.numel() for piece in pieces]
    device = pieces[0].device
    places = torch.arange(max(lengths), dtype=torch.int64, device=device) << 32
    mixed = torch.cat(pieces).to(torch.int64)
    mixed += torch.cat([places[:length] for length in lengths])
    shifted = torch.empty_like(mixed)
    for factor, shift in zip(_FACTORS, (32, 29), strict=False):
        mixed *= factor
        torch.bitwise_right_shift(mixed, shift, out=shifted)
        shifted &= (1 << 64 - shift) - 1  # the sign came in from the left
        mixed ^= shifted
    mixed *= _FACTORS[-1]
    ends = torch.tensor(lengths, device=device).cumsum(0)
    upto = torch.cat([mixed.new_zeros(1), mixed.cumsum(0)])[ends]
    return upto.diff(prepend=upto.new_zeros(1))


def _digest(sums: list[int]) -> str:
    packed = struct.pack(f"<{len(sums)}q", *sums)
    return hashlib.blake2b(packed, digest_size=8).hexdigest()
