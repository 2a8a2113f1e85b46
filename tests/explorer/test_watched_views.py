"""However many views there are, only what somebody looks at is computed."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

from ddpviz.explorer import registry
from ddpviz.views.live_views import VIEWS
from tests.explorer.material import Stream


@pytest.mark.parametrize("views", [["countdown"], ["timeline", "finalize"], ["replicas"], []])
def test_only_watched_views_are_drawn(monkeypatch: pytest.MonkeyPatch, views: list[str]) -> None:
    drawn: Counter[str] = Counter()
    for name, view in list(VIEWS.items()):

        def counted(moment: Any, name: str = name, whole: Any = view.picture) -> Any:
            drawn[name] += 1
            return whole(moment)

        monkeypatch.setitem(VIEWS, name, dataclasses.replace(view, picture=counted))
    assert len(VIEWS) >= 10
    stream = Stream()
    subject = registry.announce(stream.recording)
    subject.pictures(views, None, 1000)
    stream.steps(1)
    subject.pictures(views, None, 1000)
    assert set(drawn) == set(views)
