"""Each view is drawn for the width that it has in the browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ddpviz.explorer import registry
from ddpviz.explorer.broadcaster import BROADCASTER
from ddpviz.explorer.controls import Refused
from ddpviz.explorer.frames import unpack
from tests.explorer.material import Stream
from tests.explorer.test_broadcaster import Browser
from tests.waiting import until

VIEWS = ("timeline", "plan")


@pytest.fixture
def browser() -> Iterator[Browser]:
    made = Browser("widths")
    yield made
    BROADCASTER.remove(made.client)


def texts(browser: Browser) -> list[str]:
    """The labels of the newest plan that came."""
    found = [one["views"]["plan"] for one in browser.frames if "plan" in one["views"]]
    return [str(text) for text in unpack(found[-1], b"\0" * 100_000)["labels"]["text"]]


def label(browser: Browser) -> str:
    """What stands under the newest timeline that came."""
    found = [one["views"]["timeline"] for one in browser.frames if "timeline" in one["views"]]
    labels = [value.get("axis_label") for value in found[-1]["properties"].values()]
    return str(next(text for text in labels if text and text.startswith("ms")))


def test_a_view_has_texts_for_its_own_width(browser: Browser) -> None:
    subject = registry.announce(Stream().recording)
    browser.watch(subject.id, *VIEWS, width_px=1100, widths={"timeline": 1100, "plan": 480})
    until(lambda: browser.frames)
    assert not any("limit" in text for text in texts(browser))
    assert "since the step began" in label(browser)
    got = len(browser.frames)
    browser.watch(subject.id, *VIEWS, width_px=1100, widths={"timeline": 400, "plan": 1100})
    until(lambda: len(browser.frames) > got and "plan" in browser.frames[-1]["views"])
    assert any("limit" in text for text in texts(browser))
    assert "since the step began" not in label(browser)


def test_a_front_end_without_widths_has_the_one_it_says(browser: Browser) -> None:
    subject = registry.announce(Stream().recording)
    browser.watch(subject.id, *VIEWS, width_px=480)
    until(lambda: browser.frames)
    assert not any("limit" in text for text in texts(browser))


@pytest.mark.parametrize("widths", [[480], "480", {"plan": "wide"}, {"plan": None}, {"pie": 3}])
def test_widths_that_make_no_sense_do_no_harm(browser: Browser, widths: Any) -> None:
    subject = registry.announce(Stream().recording)
    if isinstance(widths, dict):
        browser.watch(subject.id, *VIEWS, widths=widths)
        until(lambda: browser.frames)
        assert any("limit" in text for text in texts(browser))
    else:
        with pytest.raises(Refused, match="found widths of type"):
            browser.watch(subject.id, *VIEWS, widths=widths)
