"""Whatever is done to a trace's bytes, the reader says a sentence or gives a recording."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddpviz.export.page import page
from ddpviz.traces import TraceError, read
from tests.traces.made import trace, written

WHOLE = json.dumps(trace(steps=1)).encode()
#: CI looks at the same examples each time: a new one that fails is for whoever looks for it.
FIXED = bool(os.environ.get("CI"))
HARMLESS = settings(
    max_examples=150,
    deadline=None,
    derandomize=FIXED,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def try_to_read(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = read(path)
        except TraceError as error:
            assert "\n" not in str(error) and len(str(error)) < 1000
            return
    recording = found.recording
    for table in (recording.steps, recording.buckets, recording.collectives, recording.overlap):
        table()


@HARMLESS
@given(st.integers(0, len(WHOLE)))
def test_cut_anywhere(tmp_path: Path, at: int) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(WHOLE[:at])
    with pytest.raises(TraceError) if at < len(WHOLE) else warnings.catch_warnings():
        read(path)


@HARMLESS
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=8))
def test_bytes_flipped(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    data = bytearray(WHOLE)
    for at, value in flips:
        data[at] = value
    path = tmp_path / "trace.rank0.json"
    path.write_bytes(bytes(data))
    try_to_read(path)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@HARMLESS
@given(st.data())
def test_values_replaced_by_anything(tmp_path: Path, data: Any) -> None:
    content = trace(steps=1)
    for _ in range(data.draw(st.integers(1, 4))):
        place = (
            content
            if data.draw(st.booleans())
            else data.draw(st.sampled_from(content["traceEvents"]))
        )
        if isinstance(place, dict) and place and isinstance(content["traceEvents"], list):
            place[data.draw(st.sampled_from(sorted(place)))] = data.draw(ANYTHING)
        if not isinstance(content["traceEvents"], list) or not content["traceEvents"]:
            break
    try_to_read(written(tmp_path / "trace.rank0.json", content))


@settings(
    max_examples=30, deadline=None, derandomize=FIXED, suppress_health_check=list(HealthCheck)
)
@given(st.integers(1, 2000), st.sampled_from(["[", '{"a":', '{"traceEvents":[']))
def test_nested_deeply(tmp_path: Path, depth: int, opening: str) -> None:
    path = tmp_path / "trace.rank0.json"
    inner = opening * depth
    closing = inner[::-1].translate(str.maketrans("[{", "]}")).replace(":", "")
    path.write_text(inner + "null" + "".join(c for c in closing if c in "]}"))
    try_to_read(path)


def test_names_with_html_in_them_stay_text(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    content = trace(host_name=evil)
    content["distributedInfo"]["backend"] = evil
    for one in content["traceEvents"]:
        if one["name"].startswith("Optimizer"):
            one["name"] = f"Optimizer.step#{evil}.step"
        one["args"]["Process Group Name"] = evil
    content["traceEvents"].append({**content["traceEvents"][1], "name": f"c10d::allreduce_{evil}"})
    from ddpviz.explain.story import tell

    found = read(written(tmp_path / f"{evil.replace('/', '')}.json", content))
    for html in (tell(found).to_html(), page(found.recording)):
        assert "<script>alert" not in html and "<img src=x" not in html
