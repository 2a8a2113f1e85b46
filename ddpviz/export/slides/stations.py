"""The stations of a walk, a slide each: torch's lines, what they do, what they cost."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ddpviz.events import Walk as WalkNote
from ddpviz.explain import text
from ddpviz.explain.html import article_place, prose
from ddpviz.explain.station import Seen, Station, Walk
from ddpviz.export.slides.slide import Slide

if TYPE_CHECKING:
    from ddpviz.recording import Recording

#: Slides of stations.
MOST = 8
#: Those that tell a step's story in the fewest; where a walk has others only, the longest tell it.
_STORY = (
    "DistributedDataParallel.forward",
    "DistributedDataParallel._pre_forward",
    "DistributedDataParallel._sync_buffers",
    "DistributedDataParallel._post_forward",
    "Reducer::autograd_hook",
    "Reducer::mark_variable_ready",
    "Reducer::all_reduce_bucket",
    "Reducer::finalize_backward",
)
#: Lines of a function on a slide.
_MOST_LINES = 11


def walked(
    recording: Recording, step: int | None, asked: bool, *, exactly: bool = False
) -> Walk | None:
    """The walk of the step whose functions were followed, the given one or the last.

    Where there is none: None, or if it was asked for that of the recorded spans; ``exactly``: of
    the given step, followed or not.
    """
    rank = min(recording.ranks, default=0)
    followed = {note.step for note in recording.notes(WalkNote, rank=rank) if note.frames}
    if not followed and not asked:
        return None
    return recording.walk(step if exactly or step in followed else None, rank)


def stations(walk: Walk, title: str) -> list[Slide]:
    """A slide for each of the stations that tell most, in the order of the step."""
    known: dict[str, Station] = {}
    for one in walk.all():
        station = one[1]
        explained = station.entry is not None and station.seen is not Seen.COLLECTIVE
        if explained and station.place and station.name not in known:
            known[station.name] = station
    order = sorted(
        known.values(), key=lambda one: (one.name not in _STORY, one.begin_ns - one.end_ns)
    )
    shown = [one for one in known.values() if one in order[:MOST]]
    of = f"{title}: {{}} of {len(shown)}, step {walk.step} of rank {walk.rank}"
    if len(known) > len(shown):
        left = len(known) - len(shown)
        of += f"; {left} more in ddpviz explain RECORDING --step={walk.step}"
    return [
        _slide(station, walk, of.format(number), number) for number, station in enumerate(shown, 1)
    ]


def _slide(one: Station, walk: Walk, title: str, number: int) -> Slide:
    entry = one.entry
    assert entry is not None
    said = "".join(
        f"<dt>{escape(heading or 'What')}</dt><dd>{prose(told)}</dd>"
        for heading, told in text.texts(entry)
    )
    place = escape(one.place)
    if one.link:
        place = f'<a href="{escape(one.link)}">{place}</a>'
    html = (
        f'<p class="quiet"><code>{escape(one.name)}</code> · {place} · '
        f"{escape(text.when(one, walk.begin_ns))}</p>{_lines(one)}<dl>{said}</dl>"
    )
    return Slide(f"source-{number}", title, entry.title, html, notes=tuple(_notes(one)))


def _lines(one: Station) -> str:
    """Those around the ones that called what comes next, which are marked."""
    found = one.source
    if found is None:
        return '<p class="quiet">C++: no installed torch has its lines with it.</p>'
    called = {below.called_at[1] for below in one.stations if below.called_at is not None}
    at = [place for place, (number, _) in enumerate(found.lines) if number in called]
    first = max(min(at, default=0) - 2, 0)
    first = max(min(first, len(found.lines) - _MOST_LINES), 0)
    shown = found.lines[first : first + _MOST_LINES]
    indent = min((len(line) - len(line.lstrip()) for _, line in shown if line), default=0)
    rows = []
    for number, line in shown:
        marked = ' class="called"' if number in called else ""
        rows.append(f"<span{marked}>{number:>5}  {escape(line[indent:])}</span>")
    left = len(found.lines) - len(shown)
    more = f"<span>{'':>5}  … {left} more lines</span>" if left else ""
    return f"<pre>{chr(10).join([*rows, more] if more else rows)}</pre>"


def _notes(one: Station) -> list[str]:
    calls = [below.name for below in one.stations]
    found = [f"It goes on into: {', '.join(dict.fromkeys(calls))}."] if calls else []
    if one.entry is not None and one.entry.article_line is not None:
        found.append(f"At the article's commit it is {article_place(one.entry)}.")
    return found
