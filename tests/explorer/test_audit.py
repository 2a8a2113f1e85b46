"""What the audit found is in the state that a browser gets, and counted there."""

from __future__ import annotations

import json

from ddpviz.analysis.audit import by_reason
from ddpviz.explorer.subject import Subject
from tests.audit import faults, healthy
from tests.audit.recorded import recordings
from tests.waiting import until


def test_findings_are_told_with_the_step_that_shows_them() -> None:
    runs = {"wrong": faults.backwards.unused_layer, "well": healthy.backwards.accumulation}
    found = recordings(runs)
    subject = Subject("audited", found["wrong"])
    subject.state()  # asks for an audit, and does not wait for it
    state = until(lambda: (state := subject.state())["audit"] and state)
    (one,) = state["audit"]
    assert (one["kind"], one["severity"]) == ("bucket-incomplete", "wrong numbers")
    assert (one["since"], one["view"], one["step"]) == (1, "countdown", 1)
    assert state["findings"] == 1 and state["audited"] and json.dumps(state)
    well = Subject("well", found["well"])
    well.state()
    until(lambda: not well.auditor._running)
    assert well.state()["audit"] == [] and well.state()["findings"] == 0
    assert well.state()["unchecked"] == [
        f"{', '.join(kinds)}: {why}" for why, kinds in by_reason(found["well"].unchecked()).items()
    ]


def test_the_timeline_flags_what_was_found_once_it_is() -> None:
    recording = recordings({"wrong": faults.backwards.unused_layer})["wrong"]
    subject = Subject("flagged", recording)

    def flags(step: int) -> list[str]:
        _, picture = subject.pictures(["timeline"], step, 1000)["timeline"]
        return list(picture.sources["flags"]["time"])

    assert flags(1) == []  # nobody has looked yet
    subject.state()
    until(lambda: subject.auditor.known)
    (one,) = subject.auditor.known
    (what,) = {*flags(1)}
    assert what == one.what and "never completed" in what
    assert len(flags(1)) == len(one.ranks)
    last = recording.last_step
    assert last not in (one.since_step, one.view_step) and flags(last) == []
