"""What the audit finds while a session trains: a badge, a list, and the way to the view that shows
it, in a real JupyterLab."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import needs_chromium
from tests.lab.conftest import Lab
from tests.lab.page import Page, opened

pytestmark = [pytest.mark.browser, pytest.mark.slow, needs_chromium]

#: From its fourth forward on the network leaves its last layers out: their bucket never completes.
_SESSION = """
import ddpviz

def skipping(rank, world_size, device):
    import torch

    class Skipping(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(8, 8)
            self.rest = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))
            self.forwards = 0

        def forward(self, x):
            self.forwards += 1
            x = self.first(x)
            for layer in self.rest if self.forwards < 4 else ():
                x = layer(x)
            return x

    torch.manual_seed(0)
    return Skipping(), lambda step: torch.ones(2, 8), lambda output, batch: output.sum()

session = ddpviz.Session(engines=2)
session.load(skipping)
session.start()
session.explorer()
"""
_EXPLORER = ".jp-OutputArea .ddpviz-explorer"


@pytest.fixture
def page(lab: Lab, browser: Any, tmp_path: Path) -> Iterator[Page]:
    with opened(lab, browser, tmp_path, [_SESSION]) as page:
        yield page


def test_a_finding_leads_to_the_view_that_shows_it(page: Page) -> None:
    page.run_next_cell()
    badge = page.see(f"{_EXPLORER} .ddpviz-badge", "⚑ 1 finding")
    page.see(f"{_EXPLORER} .ddpviz-pill", "failed")
    row = page.page.locator(f"{_EXPLORER} .ddpviz-finding", has_text="bucket 0 never completed")
    assert not row.is_visible()
    badge.click()
    row.wait_for(state="visible")
    said = row.inner_text()
    assert "wrong numbers" in said and "on ranks 0, 1" in said
    assert "rest.0.weight" in said and "find_unused_parameters=True" in said
    unchecked = page.page.locator(f"{_EXPLORER} .ddpviz-unchecked")
    page.page.locator(f"{_EXPLORER} summary", has_text="Not checked").click()
    assert "no fingerprints were taken" in unchecked.inner_text()
    row.locator("summary").click()
    assert "rest.2.bias" in row.locator("details").inner_text()
    row.locator(".ddpviz-link").click()
    tab = page.see(f"{_EXPLORER} [role=tab][aria-selected=true]", "Countdown")
    assert tab.inner_text() == "Countdown"
    page.see(f"{_EXPLORER} .ddpviz-one", "step 3")
    assert page.page.locator(f"{_EXPLORER} [aria-label=Step]").input_value() == "3"
    assert page.errors == [] and page.outside == []
