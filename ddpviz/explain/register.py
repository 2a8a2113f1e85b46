"""The register of claims: what the article says, and what this torch does."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from ddpviz.explain import toml

VERDICTS = ("true", "true with a caveat", "outdated", "wrong")
_FILES = ("claims_trace", "claims_construction", "claims_step", "claims_compile")
_TEXTS = ("id", "claim", "verdict", "truth", "checked", "proof")


@dataclasses.dataclass(frozen=True)
class Claim:
    """``claim``: what the article says, in our words. ``verdict``: one of ``VERDICTS``.
    ``truth``: what is so. ``checked``: versions of torch on which the proof was run. ``proof``:
    a test of the project that shows it on the installed torch.
    """

    id: str
    part: str
    claim: str
    verdict: str
    truth: str
    checked: tuple[str, ...]
    proof: str

    def checked_text(self, version: str) -> str:
        """On which versions it was checked, and whether ``version`` is one of them."""
        known = ", ".join(self.checked)
        if version.split("+")[0] in self.checked:
            return known
        return f"{known}; not on {version}, which is installed here"


@functools.cache
def claims() -> tuple[Claim, ...]:
    """All of them, in the article's order. Raises ValueError for data that is not in order."""
    found: dict[str, Claim] = {}
    for name in _FILES:
        data = toml.read(name)
        for item in data["claim"]:
            one = _made(f"{name}.toml", data["part"], {"checked": data["checked"], **item})
            if one.id in found:
                raise ValueError(f"found the claim {one.id} twice, expected it once")
            found[one.id] = one
    return tuple(found.values())


def _made(where: str, part: str, item: dict[str, Any]) -> Claim:
    toml.check(f"{where}, {item.get('id', 'a claim without an id')}", item, _TEXTS, _TEXTS)
    if item["verdict"] not in VERDICTS:
        raise ValueError(
            f"found the verdict {item['verdict']!r} of {item['id']}, "
            f"expected one of: {', '.join(VERDICTS)}"
        )
    return Claim(
        id=item["id"],
        part=part,
        claim=" ".join(item["claim"].split()),
        verdict=item["verdict"],
        truth=" ".join(item["truth"].split()),
        checked=tuple(item["checked"]),
        proof=item["proof"],
    )
