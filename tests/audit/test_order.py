"""The order of findings, and one for what is the same."""

from __future__ import annotations

import dataclasses

from ddpviz.analysis.audit import Finding, Severity, in_order

ONE = Finding("burst", Severity.SLOW, "it bursts", 7, (0,), (), "", "", "", "certain", module=0)


def test_the_worst_is_first_then_the_surest_then_the_earliest() -> None:
    found = [
        dataclasses.replace(ONE, what=str(number), severity=severity, sure=sure, since_step=since)
        for number, (severity, sure, since) in enumerate(
            [
                (Severity.SLOW, "likely", 1),
                (Severity.SLOW, "certain", 5),
                (Severity.SLOW, "certain", 2),
                (Severity.WRONG_NUMBERS, "possible", 9),
            ]
        )
    ]
    assert [one.what for one in in_order(found)] == ["3", "2", "1", "0"]


def test_what_is_said_in_the_same_words_is_said_once() -> None:
    again = dataclasses.replace(ONE, since_step=3, ranks=(1,), module=1)
    other = dataclasses.replace(ONE, what="another bursts")
    merged = dataclasses.replace(ONE, since_step=3, ranks=(0, 1), module=1)
    assert in_order([ONE, again, other]) == (merged, other)
