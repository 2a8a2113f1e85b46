"""Take them: ``python -m screenshots [--out docs]``. A session on two engines, in a JupyterLab."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ddpviz
from ddpviz.export.slides import typical
from tests.chromium import chromium
from tests.lab.conftest import Lab
from tests.lab.page import Page
from tests.lab.servers import end_kernels, jupyterlab, notebook

#: Each is kept in the repository, so it may not be large.
_MOST_BYTES = 300_000
_THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
_NOTEBOOK = "live.ipynb"
#: A late rank, several buckets: a step that has something to tell.
_SESSION = """
import ddpviz
session = ddpviz.Session(engines=2, directory={directory!r})
session.load("convnet", bucket_cap_mb=1, delay_ms={{0: 25}})
session.run(steps=12)
session.walk().run(steps=1)
session.start()
"""
_PANEL = ".ddpviz-panel .ddpviz-explorer"
_READY = "document.documentElement.dataset.deck == 'ready'"
_SLIDE = 1280, 720


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    out: Path = parser.parse_args().out
    out.mkdir(exist_ok=True)
    taken: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="ddpviz-screenshots-") as name, chromium() as browser:
        folder = Path(name)
        for theme in _THEMES:
            taken += explorer(browser, folder / theme, theme, out)
        recording = ddpviz.load(folder / "light" / "recording")
        for theme in _THEMES:
            step, _ = typical.step(recording, recording.steps())
            path = out / f"timeline-{theme}.png"
            taken.append(recording.picture("timeline", path, step=step, theme=theme))
            deck = recording.slides(folder / f"{theme}.html", theme=theme, title="One step of DDP")
            taken += slides(browser, deck, theme, out)
    for path in taken:
        size = path.stat().st_size
        print(f"{path}  {size / 1e3:.0f} kB")
        if size > _MOST_BYTES:
            raise SystemExit(f"found {path} with {size} bytes, expected {_MOST_BYTES} at most")


def explorer(browser: Any, folder: Path, theme: str, out: Path) -> Iterator[Path]:
    """JupyterLab with the explorer as a panel, while it trains."""
    with running(folder, theme) as lab:
        (lab.root / _NOTEBOOK).write_text(
            notebook([_SESSION.format(directory=str(folder / "recording"))])
        )
        page = Page(browser, lab, _NOTEBOOK)
        page.run_next_cell()
        page.command("ddpviz:show-sidebar")
        page.see(".ddpviz-sidebar .ddpviz-pill", "training", seconds=120)
        page.see(".ddpviz-sidebar .ddpviz-panels .ddpviz-mod-accept").click()
        page.see(f"{_PANEL} .bk-Figure")
        page.command("application:set-mode", mode="single-document")
        page.page.evaluate("window.jupyterapp.shell.collapseLeft()")
        _stay_at_a_step_in_which(page, "rank 1 waited")
        page.page.wait_for_timeout(1500)  # the figure has the panel's new width
        path = out / f"explorer-{theme}.png"
        page.page.screenshot(path=str(path))
        page.see(f"{_PANEL} [data-action=stop]").click()
        page.see(f"{_PANEL} .ddpviz-pill", "idle")
        page.page.close()
    yield path


def _stay_at_a_step_in_which(page: Page, what: str) -> None:
    """Pause at a step whose headline says that: not every one is typical of a delayed rank."""
    title = f"{_PANEL} .ddpviz-figure-title"
    while True:
        page.see(title, what)
        page.see(f"{_PANEL} .ddpviz-follow").click()
        page.page.wait_for_timeout(1000)  # what was on its way is drawn
        if page.page.locator(title).filter(has_text=what, visible=True).count():
            return
        page.see(f"{_PANEL} .ddpviz-follow").click()


@contextmanager
def running(folder: Path, theme: str) -> Iterator[Lab]:
    """A JupyterLab in this theme, whose kernels are ended before it is."""
    folder.mkdir()
    with jupyterlab(folder, _THEMES[theme]) as address:
        try:
            yield Lab(address, folder / "root")
        finally:
            end_kernels(address)


def slides(browser: Any, deck: Path, theme: str, out: Path) -> Iterator[Path]:
    """Its countdown, half played."""
    width, height = _SLIDE
    context = browser.new_context(viewport={"width": width, "height": height}, offline=True)
    page = context.new_page()
    page.goto(deck.as_uri())
    page.wait_for_function(_READY)
    page.evaluate("location.hash = '#/countdown'")
    page.wait_for_timeout(1000)  # the figure fills its slide
    page.evaluate("Bokeh.documents[0].get_model_by_name('time').value = 550")
    page.wait_for_timeout(300)
    path = out / f"slide-{theme}.png"
    page.screenshot(path=str(path))
    context.close()
    yield path


if __name__ == "__main__":
    if shutil.which("chromium") is None and shutil.which("chromium-browser") is None:
        raise SystemExit("found no chromium, which takes the pictures: install it")
    main()
