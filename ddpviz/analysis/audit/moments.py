"""Which tensors differ by rank at a moment of a sampled step."""

from __future__ import annotations

from ddpviz.analysis.audit.case import apart
from ddpviz.analysis.fingerprints import Moment


def differing(moment: Moment) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Names whose bytes are not the same on all ranks, and who stands apart."""
    names, who = [], set()
    if len({note.hashes for note in moment.ranks.values()}) < 2:
        return (), ()
    for position, name in enumerate(moment.names):
        standing = apart(
            {
                rank: note.hashes[position] if position < len(note.hashes) else ""
                for rank, note in moment.ranks.items()
            }
        )
        if standing:
            names.append(name)
            who |= set(standing)
    return tuple(names), tuple(sorted(who))
