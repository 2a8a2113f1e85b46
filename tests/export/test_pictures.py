"""Figures as files: drawn by the browser there is, as large as asked for, text kept as text."""

from __future__ import annotations

import io
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest

from ddpviz import analysis
from ddpviz.export import browser
from ddpviz.export.pictures import SIZES, write_picture
from ddpviz.recording.trials import Trial
from ddpviz.views.live_views import VIEWS
from tests.chromium import needs_chromium
from tests.views.samples import sample_recording

HOSTILE = "<img src=x onerror=alert(1)></script>$$x$$"
_SVG = "{http://www.w3.org/2000/svg}"


def children() -> set[int]:
    """Processes that this one started, and those that they started."""
    return {one.pid for one in psutil.Process().children(recursive=True)}


def texts(path: Path) -> list[str]:
    return [element.text or "" for element in ElementTree.parse(path).iter(f"{_SVG}text")]


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("size", sorted(SIZES))
def test_a_png_has_the_size_asked_for_and_the_themes_ground(tmp_path: Path, size: str) -> None:
    from PIL import Image

    path = write_picture(
        sample_recording(), "timeline", tmp_path / "it.png", step=1, size=size, theme="dark"
    )
    with Image.open(io.BytesIO(path.read_bytes())) as picture:
        assert picture.width == SIZES[size].width_px * SIZES[size].scale
        assert picture.height > picture.width // 4
        shown = picture.convert("RGB")
        assert shown.getpixel((2, 2)) == (0x1B, 0x1E, 0x23)
        colours = {colour for _, colour in shown.getcolors(1 << 24)}
    assert {(0x00, 0x9E, 0x73), (0xF0, 0xE4, 0x42), (0x00, 0x72, 0xB2)} <= colours


@pytest.mark.browser
@needs_chromium
def test_an_svg_has_every_lane_and_the_finding_as_text(tmp_path: Path) -> None:
    recording = sample_recording()
    path = write_picture(recording, "timeline", tmp_path / "it.svg", step=2, size="paper")
    said = texts(path)
    assert " ".join(said).count("compute") == 2
    assert sum(text.startswith("bucket") for text in said) == 2 * 3 + 1  # and the legend's
    finding = analysis.finding(recording, 2)
    assert all(any(word in text for text in said) for word in finding.split())
    assert len(said) == len({*said}) + 3  # buckets' labels come twice, and nothing else does


@pytest.mark.browser
@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_can_be_drawn(tmp_path: Path, view: str) -> None:
    path = write_picture(sample_recording(steps=4), view, tmp_path / f"{view}.svg")
    assert texts(path)


@pytest.mark.browser
@needs_chromium
def test_names_stay_text(tmp_path: Path) -> None:
    recording = sample_recording(name=HOSTILE, parameter=HOSTILE)
    said = texts(write_picture(recording, "plan", tmp_path / "it.svg"))
    assert any("</script>" in text for text in said)


@pytest.mark.parametrize(
    ("view", "name", "options", "said"),
    [
        ("nothing", "it.png", {}, "found the view 'nothing', expected one of timeline"),
        ("timeline", "it.jpg", {}, r"found it.jpg, expected a name that ends in .png or .svg"),
        ("timeline", "it.png", {"size": "wall"}, "found the size 'wall', expected one of slide"),
        ("timeline", "it.png", {"theme": "auto"}, "found the theme 'auto'"),
        ("timeline", "it.png", {"step": 44}, "found no step 44"),
    ],
)
def test_what_there_is_not_is_refused(
    tmp_path: Path, view: str, name: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        write_picture(sample_recording(), view, tmp_path / name, **options)  # type: ignore[arg-type]


def test_without_a_browser_it_is_said_what_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DDPVIZ_BROWSER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(browser.BrowserError) as raised:
        sample_recording().picture("timeline", tmp_path / "it.png")
    for command in browser.COMMANDS:
        assert command in str(raised.value)
    assert "install chromium" in str(raised.value)


@pytest.mark.browser
@needs_chromium
def test_what_cannot_be_drawn_is_said_and_the_browser_ends(tmp_path: Path) -> None:
    page_path = tmp_path / "page.html"
    page_path.write_text("<title>it</title>")
    before = children()
    with browser.opened(page_path, "?x", 200, 100, dark=True) as page:
        page.wait_for("document.readyState == 'complete'")
        assert page.value("document.title + location.search") == "it?x"
        assert page.value("matchMedia('(prefers-color-scheme: dark)').matches") is True
        assert children() > before
        with pytest.raises(browser.BrowserError, match="could not draw it: ReferenceError: nothi"):
            page.value("nothing.there")
        with pytest.raises(browser.BrowserError, match="refused Page.nothing"):
            page.ask("Page.nothing")
    assert children() <= before


@pytest.mark.browser
@needs_chromium
def test_what_was_compared_is_a_picture_too(tmp_path: Path) -> None:
    recording = sample_recording(steps=4)
    with pytest.raises(ValueError, match="found no comparison in the recording, expected one"):
        write_picture(recording, "comparison", tmp_path / "it.svg")
    recording.trials = tuple(
        Trial(name, 0, 2 * place, 2 * place, 2 * place + 1, 0.0, 0)
        for place, name in enumerate(("one", HOSTILE))
    )
    said = texts(write_picture(recording, "comparison", tmp_path / "it.svg"))
    assert "one" in said and any("</script>" in text for text in said)
    verdict = recording.compared.verdict
    assert all(any(word in text for text in said) for word in verdict.split()[:3])
