"""``ddpviz slides``: a deck of a real run, its PDF, and what goes wrong in one line."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.chromium import needs_chromium
from tests.cli.command import ddpviz
from tests.cli.conftest import Demo
from tests.cli.test_errors import assert_one_line
from tests.traces import made


def slides_of(deck: Path) -> list[str]:
    return re.findall(r'<section id="([^"]+)"', deck.read_text(encoding="utf-8"))


def test_it_writes_a_deck_that_names_the_recording(demo: Demo, tmp_path: Path) -> None:
    deck = tmp_path / "talk.html"
    done = ddpviz("slides", demo.folder, "-o", deck, "--step", "2", "--title", "Mine & yours")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"slides     {deck}, ")
    page = deck.read_text(encoding="utf-8")
    assert "<title>Mine &amp; yours</title>" in page
    assert "<h2>Timeline of step 2</h2>" in page
    assert f"ddpviz explain {demo.folder} --step=2" in page


def test_slides_and_titles_are_chosen(demo: Demo, tmp_path: Path) -> None:
    deck = tmp_path / "talk.html"
    chosen = ("--slides", "plan", "job", "--title", "plan=Two = plans", "--theme", "dark")
    done = ddpviz("slides", demo.folder, "-o", deck, *chosen)
    assert done.returncode == 0, done.stderr
    assert slides_of(deck) == ["plan", "job"]
    page = deck.read_text(encoding="utf-8")
    assert "<h2>Two = plans</h2>" in page
    assert '<meta name="color-scheme" content="dark">' in page


@pytest.mark.browser
@needs_chromium
def test_pdf_has_a_page_for_every_slide(demo: Demo, tmp_path: Path) -> None:
    deck, pdf = tmp_path / "talk.html", tmp_path / "talk.pdf"
    done = ddpviz("slides", demo.folder, "-o", deck, "--pdf", pdf)
    assert done.returncode == 0, done.stderr
    assert f"\npdf        {pdf}, " in done.stdout
    pages = re.findall(rb"/Type\s*/Page\b", pdf.read_bytes())
    assert len(pages) == len(slides_of(deck)) > 6


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--slides", "nothing"], "found the slide 'nothing', expected some of job, timeline"),
        (["--step", "77"], "found no step 77 in the recording, expected 0 to 5"),
        (["--theme", "pink"], "found the theme 'pink'"),
        (["--step", "x"], "--step"),
    ],
)
def test_what_there_is_not(demo: Demo, tmp_path: Path, given: list[str], said: str) -> None:
    done = ddpviz("slides", demo.folder, "-o", tmp_path / "talk.html", *given)
    assert_one_line(done, said)
    assert not (tmp_path / "talk.html").exists()


def test_where_it_cannot_be_written(demo: Demo, tmp_path: Path) -> None:
    deck = tmp_path / "nowhere" / "talk.html"
    assert_one_line(ddpviz("slides", demo.folder, "-o", deck), f"cannot write {deck}")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--title", "timline=x"], "found a title for the slide 'timline', expected 'timeline'"),
        (["--pdf", "talk.html"], "found talk.html for the deck and for its PDF: give two names"),
    ],
)
def test_what_is_nearly_right(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_one_line(ddpviz("slides", demo.folder, "-o", "talk.html", *given), said)
    assert not Path("talk.html").exists()


def test_the_command_that_makes_it_again_makes_the_same(demo: Demo, tmp_path: Path) -> None:
    deck, again = tmp_path / "talk.html", tmp_path / "again.html"
    options = ("--title=a b", "--step=3", "--step=5", "--theme=dark", "--slides", "source", "close")
    done = ddpviz("slides", demo.folder, "-o", deck, *options)
    assert done.returncode == 0, done.stderr
    page = deck.read_text(encoding="utf-8")
    assert ", step 3 of rank 0" in page  # followed or not
    command = re.search(r"<pre>ddpviz (slides .*)", page)
    assert command is not None
    asked = shlex.split(html.unescape(command[1]))
    done = ddpviz(*(str(again) if one == "talk.html" else one for one in asked))
    assert done.returncode == 0, done.stderr
    same = [re.sub(r'"id":"[^"]*"|[0-9a-f-]{36}', "", one.read_text()) for one in (deck, again)]
    assert slides_of(again) == slides_of(deck)
    assert len(same[0]) == len(same[1])


def test_traces_tell_what_costs_most_and_nothing_that_they_do_not_have(tmp_path: Path) -> None:
    traces = [tmp_path / f"rank{rank}.json" for rank in (0, 1)]
    for rank, path in enumerate(traces):
        made.written(path, made.trace(rank))
    deck = tmp_path / "talk.html"
    done = ddpviz("slides", *traces, "-o", deck)
    assert done.returncode == 0, done.stderr
    assert "note       bucket plans are inferred" in done.stdout
    story = json.loads(ddpviz("explain", *traces, "--json").stdout)
    page = html.unescape(deck.read_text(encoding="utf-8"))
    assert f"<dt>Costs most</dt><dd>{story['costs'][0]['sentence'].removesuffix('.')}" in page
    assert "sizes are not in the trace" in page and " 0 B" not in page
    assert "comes from the Reducer itself" not in page
    assert shlex.join(["ddpviz", "slides", *map(str, traces)]) in page


def test_no_recording(tmp_path: Path) -> None:
    assert_one_line(ddpviz("slides", tmp_path / "it"), str(tmp_path / "it"))


def test_a_pdf_without_a_browser(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deck = tmp_path / "talk.html"
    asked = ("slides", demo.folder, "-o", deck, "--slides", "job", "--pdf", tmp_path / "talk.pdf")
    monkeypatch.setenv("PATH", str(tmp_path))
    done = ddpviz(*asked)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "found no browser (looked for chromium, " in done.stderr
    assert "install chromium" in done.stderr
    assert deck.exists()  # what could be done was done
    monkeypatch.setenv("DDPVIZ_BROWSER", "nothing-here")
    assert "which DDPVIZ_BROWSER names" in ddpviz(*asked).stderr


def test_a_browser_that_does_not_start(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDPVIZ_BROWSER", str(shutil.which("false")))
    asked = ("slides", demo.folder, "-o", tmp_path / "talk.html", "--slides", "job")
    done = ddpviz(*asked, "--pdf", tmp_path / "talk.pdf")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "ended before it had drawn anything" in done.stderr
