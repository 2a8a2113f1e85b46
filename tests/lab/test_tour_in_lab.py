"""The tour in a real JupyterLab, up to its explorer: it follows training, steers it, outlives it.

One kernel for all tests, which leave it training; the last one restarts it.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddpviz.engines.guard import alive
from ddpviz.lab import place_tour
from ddpviz.views.palette import DARK, LIGHT, SPANS
from tests.chromium import needs_chromium
from tests.lab.conftest import Lab
from tests.lab.notebooks import read
from tests.lab.page import Page
from tests.lab.servers import end_kernels
from tests.lab.test_live import apply
from tests.waiting import until

pytestmark = [pytest.mark.browser, pytest.mark.slow, needs_chromium]

#: The tour's cell that starts training has this in it.
_EXPLORER = "session.explorer()"
_CELL = ".jp-OutputArea .ddpviz-explorer"
_TIMELINE = f"{_CELL} [data-view=timeline]"
#: What a cell with that code prints, or its error; the notebook stays as it is.
_EXECUTE = """(code) => {
  const shown = [...window.jupyterapp.shell.widgets("main")]
  const kernel = shown.map((one) => one.sessionContext?.session?.kernel).find(Boolean)
  const cell = kernel.requestExecute({ code, store_history: false })
  let said = ""
  cell.onIOPub = ({ content }) => { said += content.text ?? content.evalue ?? "" }
  return cell.done.then(() => said)
}"""
_PLOTS = """
  const loaded = await Promise.all(Object.values(window.ddpvizBokeh ?? {}))
  const plots = loaded
    .flatMap((bokeh) => bokeh.documents)
    .flatMap((document) => document.roots())
    .filter((root) => root.type == "Figure")
"""
#: Of the explorer's figure with glyphs of that name: their data, and what stands around them.
_DRAWN = f"""async (name) => {{
  {_PLOTS}
  const glyphs = plots.flatMap((plot) => plot.renderers).find((one) => one.name == name)
  const plot = plots.find((plot) => plot.renderers.includes(glyphs))
  const data = glyphs?.data_source.data ?? {{}}
  if (!(data.left?.length > 0)) {{
    return null
  }}
  const entries = plot.above.flatMap((one) => one.items ?? []).filter((one) => one.visible)
  return {{
    kinds: [...data.kind],
    edges: [...data.left, ...data.right],
    below: plot.below[0].axis_label,
    legend: entries.map((one) => one.label.value),
  }}
}}"""
#: Colours of all texts around the explorer's figures, one figure after the other.
_TEXTS = f"""async () => {{
  {_PLOTS}
  const of = (one) => [one.major_label_text_color, one.axis_label_text_color, one.label_text_color]
  const around = (plot) => [...plot.left, ...plot.below, ...plot.above]
  return plots.map((plot) => [...new Set(around(plot).flatMap(of))].filter(Boolean))
}}"""

#: Per module, in the order of their making: forwards, and broadcasts in one of them.
_BROADCASTS = """
import json
of_modules = session.recording.buffers().groupby("module")["broadcasts"]
print(json.dumps([[len(rows), int(rows.min()), int(rows.max())] for _, rows in of_modules]))
"""
#: Buckets of each plan of the module that trains.
_PLANS = """
import json
found = session.recording.plans()
newest = found[found["module"] == found["module"].max()]
print(json.dumps([len(rows) for _, rows in newest.groupby("version")]))
"""
_PIDS = "import json; print(json.dumps([session.pids[rank] for rank in sorted(session.pids)]))"
_DELAY = "import json; print(json.dumps(session.configure(delay_ms={{0: {ms}}})))"
_KILLED = r"rank 1 failed in step \d+.*: its process was killed by SIGKILL"
_FAILURE = "import json; print(json.dumps([session.failure.rank, session.failure.doing]))"
#: Engines and all other processes that the kernel has started: numbers and start ticks.
_PROCESSES = """
import json, psutil
from ddpviz.engines.guard import start_ticks
started = {one.pid for one in psutil.Process().children(recursive=True)}
print(json.dumps([[pid, start_ticks(pid)] for pid in {*session.pids.values(), *started}]))
"""


@pytest.fixture(scope="module")
def tour(jupyter: Lab, browser: Any) -> Iterator[Page]:
    """Its cells have run up to the one with the explorer."""
    path = place_tour(jupyter.root / "toured").relative_to(jupyter.root)
    page = Page(browser, jupyter, str(path))
    for cell in read(path.name).cells:
        page.run_next_cell()
        if _EXPLORER in cell.source:
            break
    yield page
    page.page.close()
    end_kernels(jupyter.address)


@pytest.fixture
def page(tour: Page, tmp_path: Path) -> Iterator[Page]:
    """The explorer follows a session that trains."""
    tour.see(f"{_CELL} .ddpviz-pill", "training")
    yield tour
    tour.page.screenshot(path=str(tmp_path / "last.png"))


def execute(page: Page, code: str) -> Any:
    """What the code prints in the notebook's kernel, as JSON."""
    said = page.page.evaluate(_EXECUTE, code)
    try:
        return json.loads(said)
    except ValueError:
        raise AssertionError(said) from None


def timeline(page: Page) -> dict[str, Any]:
    """The step that the timeline shows; empty before the first."""
    found: dict[str, Any] = page.page.evaluate(_DRAWN, "transfer") or {}
    if found:
        (step,) = re.findall(r"\(step (\d+)\)", found["below"])
        found["step"] = int(step)
    return found


def until_step(page: Page, after: int) -> dict[str, Any]:
    """The timeline of a step that is later than that."""

    def later() -> dict[str, Any]:
        found = timeline(page)
        return found if found.get("step", -1) > after else {}

    return until(later, 60)


def planned(page: Page) -> int:
    """Buckets that the plan view draws: of the first plan and of the rebuilt one."""
    found = page.page.evaluate(_DRAWN, "overshoot")
    return int(found["kinds"].count("fill")) if found else 0


def painted(page: Page, selector: str) -> Any:
    """A picture of what is there."""
    from PIL import Image

    with Image.open(io.BytesIO(page.see(selector).screenshot())) as shot:
        return shot.convert("RGB")


def test_the_timeline_draws_steps_as_they_are_trained(page: Page, tmp_path: Path) -> None:
    first = until_step(page, after=-1)
    assert {"forward", "backward", "filling", "buffers"} <= set(first["kinds"])
    page.see(f"{_CELL} .ddpviz-facts", "steps/s")
    second = until_step(page, after=first["step"] + 5)
    assert second["edges"] != first["edges"]
    shot = painted(page, f"{_TIMELINE} .bk-Figure")
    shot.save(tmp_path / "timeline.png")
    colours = {"#{:02X}{:02X}{:02X}".format(*one) for _, one in shot.getcolors(2**24)}
    assert {SPANS[kind][0] for kind in ("forward", "backward")} <= colours
    until_step(page, after=second["step"])
    assert (page.errors, page.outside) == ([], [])


def test_buffer_sync_off_by_its_switch_ends_the_broadcasts(page: Page, tmp_path: Path) -> None:
    before = until_step(page, after=-1)
    assert "buffers" in before["kinds"] and "buffer broadcast" in before["legend"]
    toggle = page.see(f"{_CELL} [data-switch$=_buffers] [role=switch]")
    assert toggle.get_attribute("aria-checked") == "true"
    toggle.click()
    page.see(f"{_CELL} .ddpviz-apply", "What it takes: re-wraps")
    page.page.screenshot(path=str(tmp_path / "draft.png"))
    assert "re-wrapped" in apply(page, _CELL)
    assert toggle.get_attribute("aria-checked") == "false"
    until(lambda: "buffers" not in timeline(page)["kinds"], 60)

    def modules() -> list[list[int]]:
        """Once the new module has had ten forwards on each rank."""
        found: list[list[int]] = execute(page, _BROADCASTS)
        return found if len(found) == 2 and found[-1][0] >= 20 else []

    synced, unsynced = until(modules, 60)
    assert synced[1] > 0, "the module before broadcast them in every forward"
    assert unsynced[1:] == [0, 0]
    after = timeline(page)
    assert after["step"] > before["step"]
    assert "buffers" not in after["kinds"] and "buffer broadcast" not in after["legend"]
    assert (page.errors, page.outside) == ([], [])


def test_the_bucket_cap_by_its_switch_changes_the_plan(page: Page, tmp_path: Path) -> None:
    before = until(lambda: planned(page), 60)
    assert before == sum(execute(page, _PLANS)) > 2
    cap = f"{_CELL} [data-switch=bucket_cap_mb]"
    assert page.see(f"{cap} input[type=number]").input_value() == "1"
    page.see(f"{cap} input[type=range]").press("End")
    assert page.see(f"{cap} input[type=number]").input_value() == "100"
    page.see(f"{_CELL} .ddpviz-apply", "What it takes: re-wraps")
    assert "re-wrapped" in apply(page, _CELL)
    until(lambda: len(execute(page, _PLANS)) == 2, 60)
    buckets = execute(page, _PLANS)
    assert sum(buckets) != before
    until(lambda: planned(page) == sum(buckets), 60)
    title = page.see(f"{_CELL} [data-view=plan] .ddpviz-figure-title", "plan 1 has").inner_text()
    assert f"plan 1 has {buckets[-1]} bucket" in title
    assert (page.errors, page.outside) == ([], [])


def test_figures_are_dark_in_a_dark_lab(page: Page, tmp_path: Path) -> None:
    until(lambda: page.page.evaluate(_TEXTS) == 3 * [[LIGHT.text]], 60)
    try:
        page.command("apputils:change-theme", theme="JupyterLab Dark")
        until(lambda: page.page.evaluate(_TEXTS) == 3 * [[DARK.text]], 60)
        page.see(f"{_CELL}[data-theme=dark]")
        shot = painted(page, f"{_TIMELINE} .bk-Figure")
        assert max(shot.getpixel((3, 3))) < 64
        # One that is made in the dark, beside the timeline, while steps go on.
        page.see(f"{_CELL} [role=tab]", "Buffers").click()
        page.see(f"{_CELL} [data-view=buffers] .bk-Figure")
        until_step(page, after=timeline(page)["step"] + 3)
        until(lambda: page.page.evaluate(_TEXTS) == 2 * [[DARK.text]], 60)
        page.page.screenshot(path=str(tmp_path / "dark.png"))
    finally:
        page.command("apputils:change-theme", theme="JupyterLab Light")
    until(lambda: page.page.evaluate(_TEXTS) == 2 * [[LIGHT.text]], 60)
    assert (page.errors, page.outside) == ([], [])


def test_one_killed_engine_is_named_and_restart_brings_it_back(page: Page, tmp_path: Path) -> None:
    pids = execute(page, _PIDS)
    # Rank 1 is nearly always in a collective then, where it waits for rank 0.
    execute(page, _DELAY.format(ms=2000))
    page.see(f"{_CELL} .ddpviz-why", "rank 0 has not entered it")
    os.kill(pids[1], signal.SIGKILL)
    page.see(f"{_CELL} .ddpviz-pill", "failed")
    why = page.see(f"{_CELL} .ddpviz-why", "SIGKILL").inner_text()
    page.page.screenshot(path=str(tmp_path / "killed.png"))
    assert re.match(_KILLED, why), why
    rank, doing = execute(page, _FAILURE)
    assert rank == 1 and doing in why
    assert timeline(page)["kinds"], "what was recorded stays"
    page.see(f"{_CELL} [data-action=restart]:not([aria-disabled])").click()
    page.see(f"{_CELL} .ddpviz-pill", "idle")
    assert len({*pids, *execute(page, _PIDS)}) == 4
    execute(page, _DELAY.format(ms=0))
    page.see(f"{_CELL} [data-action=start]:not([aria-disabled])").click()
    page.see(f"{_CELL} .ddpviz-pill", "training")
    until_step(page, after=timeline(page)["step"])
    assert (page.errors, page.outside) == ([], [])


def test_a_restarted_kernel_leaves_no_process_behind(page: Page) -> None:
    processes = execute(page, _PROCESSES)
    assert {*execute(page, _PIDS)} <= {pid for pid, ticks in processes if alive(pid, ticks)}
    page.command("docmanager:open", path=page.path)
    page.command("notebook:restart-kernel", wait=False)
    page.see(".jp-Dialog button", "Restart").click()
    until(lambda: not any(alive(pid, ticks) for pid, ticks in processes), 60)
    page.see(f"{_CELL} .ddpviz-why", "The kernel does not answer")
    assert page.page.locator(f"{_TIMELINE} .bk-Figure").count() == 1, "the last picture stays"
    assert (page.errors, page.outside) == ([], [])
