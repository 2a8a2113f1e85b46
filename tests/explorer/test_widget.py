"""The explorer in a cell's output, and what stands there where no widget can run."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from ddpviz.explorer import widget
from ddpviz.explorer.broadcaster import BROADCASTER
from ddpviz.explorer.widget import Explorer
from ddpviz.recording import Recording
from tests.explorer.conftest import ROOT, connected
from tests.explorer.front import Front
from tests.explorer.material import Stream
from tests.views.samples import sample_recording
from tests.waiting import until

WIDGET = "application/vnd.jupyter.widget-view+json"
HOSTILE = "<script>alert(1)</script>$$x$$"


def svg_of(html: str) -> str:
    found = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    assert found
    return base64.b64decode(found[1]).decode()


def test_the_output_has_a_widget_and_a_still() -> None:
    explorer = Explorer(sample_recording())
    data, _ = explorer._repr_mimebundle_()
    assert data[WIDGET]["model_id"] == explorer.model_id
    assert "rank 1 waited 20 ms for rank 0" in svg_of(data["text/html"])
    assert data["text/plain"].startswith("<Explorer of ")
    explorer.close()


def test_names_of_a_model_are_no_markup() -> None:
    explorer = Explorer(sample_recording(name=HOSTILE, parameter=HOSTILE + "{index}"))
    data, _ = explorer._repr_mimebundle_()
    assert "<script" not in data["text/html"]
    assert "<script" not in svg_of(data["text/html"])
    explorer.close()


def test_closing_it_ends_its_frames() -> None:
    explorer = Explorer(sample_recording())
    clients = [explorer._client(page) for page in ("a", "b")]
    assert {*clients} <= {*BROADCASTER.clients}
    explorer.close()
    assert not {*clients} & {*BROADCASTER.clients}


def test_two_pages_of_a_notebook_look_at_steps_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    explorer = Explorer(sample_recording())
    sent: list[Any] = []
    monkeypatch.setattr(explorer, "send", lambda content, buffers=None: sent.append(content))
    args = {"session": explorer.session, "views": ["timeline"], "width_px": 900}
    for number, (page, step, hidden) in enumerate([("a", 0, False), ("b", 1, False)]):
        watch = {**args, "step": step, "hidden": hidden}
        content = {"request": number, "page": page, "action": "watch", "args": watch}
        explorer._handle_custom_msg(content, [])

    def steps() -> dict[str, set[int]]:
        found: dict[str, set[int]] = {"a": set(), "b": set()}
        for one in sent:
            if one.get("type") == "frame" and "timeline" in one["views"]:
                found[one["page"]].add(one["views"]["timeline"]["step"])
        return found

    until(lambda: all(steps().values()), 30)
    assert steps() == {"a": {0}, "b": {1}}
    explorer.close()


def test_without_the_browser_part_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(widget, "BUNDLE", tmp_path / "none.js")
    assert "is not in this installation" in widget.browser_part()
    assert "export default" in widget.browser_part()


def test_requests_to_the_widget_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream()
    explorer = Explorer(stream.recording)
    sent: list[Any] = []
    monkeypatch.setattr(explorer, "send", lambda content, buffers=None: sent.append(content))
    for number, (action, args) in enumerate(
        [("sessions", {}), ("watch", {"session": explorer.session, "views": ["steps"]}), ("x", {})]
    ):
        content = {"request": number, "action": action, "args": args}
        explorer._handle_custom_msg(content, [])
    explorer._handle_custom_msg({"kind": "anywidget-command"}, [])
    replies = [one for one in sent if "reply" in one]
    assert [one["reply"] for one in replies] == [0, 1, 2]
    assert [one["ok"] for one in replies] == [True, True, False]
    until(lambda: any(one.get("type") == "frame" for one in sent))
    explorer.close()


def notebook(*cells: str) -> Any:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(made, timeout=120, resources={"metadata": {"path": str(ROOT)}}).execute()
    return made


def test_nbclient_leaves_a_still_in_the_notebook() -> None:
    made = notebook(
        "from tests.views.samples import sample_recording\n"
        "from ddpviz.explorer import Explorer\n"
        "explorer = Explorer(sample_recording())",
        "explorer",
    )
    (output,) = [one for one in made.cells[1].outputs if WIDGET in one["data"]]
    assert "rank 1 waited 20 ms" in svg_of(output["data"]["text/html"])
    assert WIDGET in output["data"]


@pytest.mark.slow
def test_nbclient_shows_the_explorer_of_a_session() -> None:
    made = notebook(
        'import ddpviz\nsession = ddpviz.Session(engines=2)\nsession.load("mlp").run(steps=3);',
        "session.explorer()",
        "session",
        "session.close()",
    )
    for cell in made.cells[1:3]:
        (output,) = [one for one in cell.outputs if WIDGET in one.get("data", {})]
        assert WIDGET in output["data"]
        assert "rank 1  compute" in svg_of(output["data"]["text/html"])


def test_nothing_recorded_has_a_still_too() -> None:
    explorer = Explorer(Recording())
    data, _ = explorer._repr_mimebundle_()
    assert "this recording has no step" in svg_of(data["text/html"])
    explorer.close()


#: An explorer whose comm is opened by the cell, as a notebook does.
SHOWN = """
from ddpviz.explorer import Explorer
from tests.explorer.material import Stream
stream = Stream()
explorer = Explorer(stream.recording)
print(explorer.comm.comm_id, explorer.session)
"""
FORGET = """
import gc
from ddpviz.explorer import registry
if explorer is not None: explorer.close()
stream = explorer = None
gc.collect()
print(len(registry.subjects()))
"""


class Page:
    """The widget's browser part on a subshell, as JupyterLab has it."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.comm, self.session = front.execute(SHOWN).split()
        front.subshell = front.new_subshell()
        if front.subshell is None:
            pytest.skip("this ipykernel has no subshells")
        self.replies: list[Any] = []
        self.frames: list[Any] = []
        self._others, front._take = front._take, self._take  # type: ignore[method-assign]

    def _take(self, message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "comm_msg" and content["comm_id"] == self.comm:
            data = content["data"].get("content", {})
            (self.frames if data.get("type") == "frame" else self.replies).append(data)
        else:
            self._others(message)

    def request(self, action: str, **args: Any) -> None:
        """Ask, and wait for the answer."""
        got = len(self.replies)
        content = {"request": got, "action": action, "args": args}
        data = {"method": "custom", "content": content}
        self.front.send("comm_msg", {"comm_id": self.comm, "data": data})
        until(lambda: self.front.read() or len(self.replies) > got)

    def watch(self) -> None:
        self.request("watch", session=self.session, views=["timeline"], step="newest")

    def until_frames(self, count: int) -> None:
        wanted = len(self.frames) + count
        until(lambda: self.front.read() or len(self.frames) >= wanted)


@pytest.fixture
def page(shared: KernelManager) -> Iterator[Page]:
    with connected(shared) as client:
        front = Front(client)
        yield Page(front)
        until(lambda: front.execute(FORGET) == "0\n")


def test_the_widget_is_opened_while_a_cell_runs(page: Page, tmp_path: Path) -> None:
    with page.front.occupied(tmp_path / "end"):
        page.watch()
        page.until_frames(1)


def test_the_widget_answers_while_a_cell_runs(page: Page, tmp_path: Path) -> None:
    page.watch()
    with page.front.occupied(tmp_path / "end"):
        page.until_frames(2)  # published while the main shell has the cell as its message
        for _ in range(3):
            page.request("sessions")
            page.until_frames(1)
