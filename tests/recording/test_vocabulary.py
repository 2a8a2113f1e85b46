"""The vocabulary of events says of every kind what it is."""

from __future__ import annotations

import inspect
import re

from ddpviz.events import Cause, Flag, Kind, records


def test_every_kind_cause_and_flag_is_documented_where_it_stands() -> None:
    source = inspect.getsource(records)
    for vocabulary in (Kind, Cause, Flag):
        body = source[source.index(f"class {vocabulary.__name__}(") :]
        for name in vocabulary.__members__:
            found = re.search(rf"(?:^    #:? .*\n)+    {name} = ", body, re.M)
            beside = re.search(rf"^    {name} = .*  # ", body, re.M)
            assert found or beside, f"{vocabulary.__name__}.{name}"
