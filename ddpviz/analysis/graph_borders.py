"""Where buckets end, and whether a graph ends there too: only then none waits for two graphs."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def missed_borders(
    graphs: Sequence[Collection[int]], buckets: Sequence[Collection[int]]
) -> list[int]:
    """Buckets, but for the last, after which a graph goes on that has begun.

    ``graphs``, ``buckets``: their parameters, in any and in launch order. A graph goes on where
    some of its parameters are in the buckets up to here and some in later ones.
    """
    inside = {parameter for bucket in buckets for parameter in bucket}
    found, before = [], set[int]()
    for number, bucket in enumerate(buckets[:-1]):
        before |= {*bucket}
        if any({*graph} & before and ({*graph} & inside) - before for graph in graphs):
            found.append(number)
    return found
