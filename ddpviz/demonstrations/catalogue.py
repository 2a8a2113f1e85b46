"""All demonstrations, by name."""

from __future__ import annotations

import difflib

from ddpviz.demonstrations import buffers, order, plans, reduction, uneven
from ddpviz.demonstrations.demonstration import Demonstration

_FAMILIES = (plans, order, buffers, reduction, uneven)


def demonstrations() -> tuple[Demonstration, ...]:
    """All of them, in the order of the article: plans, order, buffers, reduction, Join."""
    return tuple(one for family in _FAMILIES for one in family.DEMONSTRATIONS)


def families() -> dict[str, tuple[Demonstration, ...]]:
    """The same by what they are about."""
    return {family.FAMILY: family.DEMONSTRATIONS for family in _FAMILIES}


def demonstration(name: str) -> Demonstration:
    """The one of that name. Raises ValueError for another, with those that are close."""
    known = {one.name: one for one in demonstrations()}
    if name in known:
        return known[name]
    close = difflib.get_close_matches(str(name), known, n=3, cutoff=0.4)
    hint = f" (did you mean {' or '.join(close)}?)" if close else ""
    raise ValueError(f"found no demonstration {name!r}{hint}, expected one of: {', '.join(known)}")
