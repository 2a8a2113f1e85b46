"""What the audit found is in the state that a browser gets, and counted there."""

from __future__ import annotations

import json

from ddpviz.explorer.subject import Subject
from tests.audit import faults, healthy
from tests.audit.recorded import recordings
from tests.waiting import until


def test_findings_are_told_with_the_step_that_shows_them() -> None:
    runs = {"wrong": faults.unused_layer, "well": healthy.accumulation}
    found = recordings(runs)
    subject = Subject("audited", found["wrong"])
    subject.state()  # asks for an audit, and does not wait for it
    state = until(lambda: (state := subject.state())["audit"] and state)
    (one,) = state["audit"]
    assert (one["kind"], one["severity"]) == ("bucket-incomplete", "wrong numbers")
    assert (one["since"], one["view"], one["step"]) == (1, "countdown", 1)
    assert state["findings"] == 1 and json.dumps(state)
    well = Subject("well", found["well"])
    well.state()
    until(lambda: not well.auditor._running)
    assert well.state()["audit"] == [] and well.state()["findings"] == 0
