"""JupyterLab as a user has it before them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.lab.conftest import Lab
from tests.lab.servers import TOKEN, notebook

#: The notebook is the current one, and its kernel takes a cell: what is run before may run nothing.
KERNEL_IS_READY = """(path) => {
  const context = window.jupyterapp.shell.currentWidget?.sessionContext
  const kernel = context?.session?.kernel
  return context?.path == path && kernel?.connectionStatus == "connected" && kernel.status == "idle"
}"""


class Page:
    """JupyterLab in a browser, with what its console and its network had to say."""

    def __init__(self, browser: Any, lab: Lab, path: str):
        self.path = path
        self.page = browser.new_page(viewport={"width": 1366, "height": 768})
        self.page.set_default_timeout(60_000)
        self.errors: list[str] = []
        self.outside: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "console",
            lambda said: self.errors.append(said.text) if said.type == "error" else None,
        )
        self.page.route(lambda url: urlsplit(url).hostname != "127.0.0.1", self._refuse)
        self.page.goto(f"{lab.address}/lab/tree/{path}?reset&token={TOKEN}")
        self.ready()

    def _refuse(self, route: Any) -> None:
        if route.request.url.startswith("http"):
            self.outside.append(route.request.url)
        route.abort()

    def ready(self) -> None:
        self.page.wait_for_function("window.jupyterapp")
        self.page.evaluate("window.jupyterapp.restored.then(() => null)")
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell")

    def command(self, name: str, wait: bool = True, **arguments: Any) -> None:
        script = "([name, given]) => window.jupyterapp.commands.execute(name, given)"
        script += ".then(() => null)" if wait else " && null"
        self.page.evaluate(script, [name, arguments])

    def run_next_cell(self) -> None:
        self.command("docmanager:open", path=self.path)
        self.page.wait_for_function(KERNEL_IS_READY, arg=self.path)
        self.command("notebook:run-cell-and-select-next", wait=False)

    def see(self, selector: str, text: str = "", seconds: float = 60) -> Any:
        shown = self.page.locator(selector, has_text=text or None).locator("visible=true").first
        shown.wait_for(timeout=1000 * seconds)
        return shown


@contextmanager
def opened(lab: Lab, browser: Any, folder: Path, cells: list[str]) -> Iterator[Page]:
    """A page with a notebook of these cells, and a picture in the folder of how it was left."""
    name = f"{folder.name}.ipynb"
    (lab.root / name).write_text(notebook(cells))
    page = Page(browser, lab, name)
    yield page
    page.page.screenshot(path=str(folder / "last.png"))
    page.page.close()
