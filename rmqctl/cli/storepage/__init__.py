"""A store as one HTML page, to read and to send on. It needs no network and has no script.

It shows what ``verify`` found, what a start would do, the log as a strip, the queues, the index,
and the next command lines. Words of a store are text (:mod:`~rmqctl.cli.html.parts`), and long ones
are cut. Of long lists a part is shown, with the number of what is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.cli.html.document import document, made, part
from rmqctl.cli.html.parts import card, count, is_moment, moment, sentences, size, table, text
from rmqctl.cli.storepage.collected import SEVERITIES, Collected, OfCode
from rmqctl.cli.storepage.strips import log_card, log_range, queue_strip, severities
from rmqctl.operations.doctor.startrows import estimated_seconds

if TYPE_CHECKING:
    from rmqctl.cli.storepage.collected import OfPart
    from rmqctl.operations.doctor.portrait import IndexFill, Portrait, QueueRange
    from rmqctl.operations.doctor.simulatestart import LostOfQueue, Simulation
    from rmqctl.operations.verify import Finding

__all__ = ["Collected", "Report", "log_range", "page"]

#: The most lines of a card; it then says how many more there are.
_MOST_QUEUES, _MOST_INDEX_FILES, _MOST_STEPS = 100, 40, 200
#: With at most so many queues, those without findings are drawn as well.
_FEW = 32
#: The most characters of a word, and of a sentence, that come from the store.
_LONGEST = 200


class Report(NamedTuple):
    """What a page tells. ``verdict`` and ``by`` (the command that makes it) are texts. ``found`` is
    None where nothing was checked. ``start`` is None where no start was simulated, and
    ``why_no_start`` then says why."""

    by: str
    verdict: str
    store: Portrait
    found: Collected | None
    start: Simulation | None
    why_no_start: str = ""
    records: int | None = None


def page(report: Report) -> str:
    """The page."""
    store, start = report.store, report.start
    found = report.found or Collected(*log_range(store))
    cards = [
        log_card(store, found, start),
        _problems(report),
        *([] if report.found is None else _findings(report.found)),
        _start(start),
        _queues(store, found, start),
        _index(store, found, start),
    ]
    name = str(store.root.absolute())
    body = (
        f"<h1>Store {_cut(name)}</h1>\n"
        f'<p class="verdict {_mood(report, found)}">{text(report.verdict)}</p>\n'
        f'<p class="made">Made by rmqctl {report.by}, {made()}. Times are UTC.</p>\n'
        f'<dl class="tiles">{_tiles(report, found)}</dl>\n<main>\n{"".join(cards)}\n</main>\n'
    )
    return document(f"Store {name[:_LONGEST]}", body, [part("page.css", __package__)])


def _cut(value: object, longest: int = _LONGEST) -> str:
    """A value as text, cut if it is long."""
    shown = str(value)
    return text(shown) if len(shown) <= longest else f"{text(shown[:longest])}…"


def _mood(report: Report, found: Collected) -> str:
    is_bad = report.start is not None and report.found is None and not report.start.is_harmless
    if is_bad or found.severities["error"]:
        return "error"
    return "warning" if found.severities["warning"] else "sound"


def _tiles(report: Report, found: Collected) -> str:
    store, start = report.store, report.start
    begin = log_range(store)[0]
    tiles: list[tuple[str, str, str]] = []
    if report.found is not None:
        for name, kind in (("error", "bad"), ("warning", "warn")):
            number = found.severities[name]
            tiles.append((f"{name}s", count(number), kind if number else ""))
    if start is not None:
        lost, of_queues = start.messages_lost, start.queue_messages_lost
        # A queue loses what the log loses. Where queues lose more, the start cuts units whose
        # messages stay in the log.
        if report.found is not None and of_queues > lost:
            tiles.append(("queues would lose, messages", count(of_queues), "bad"))
        else:
            tiles.append(("a start would lose, messages", count(lost), "bad" if lost else ""))
        if report.found is None:
            tiles.append(("a start reads", size(start.outcome.scanned_bytes), ""))
    elif report.found is not None:
        tiles.append(("a start would lose, messages", "not known", ""))
    if report.records is not None:
        tiles.append(("messages", count(report.records), ""))
    elif start is not None:
        seconds = estimated_seconds(start.outcome.scanned_bytes)
        tiles.append(("and takes for it, about", f"{seconds:,} s", ""))
        lost = start.queue_messages_lost
        tiles.append(("queues would lose, messages", count(lost), "bad" if lost else ""))
    tiles += [
        ("in the log", size(max(store.log_end - begin, 0)), ""),
        ("log files", count(len(store.log)), ""),
        ("queues", count(len(store.queues)), ""),
        ("index files", count(len(store.index)), ""),
    ]
    return "".join(
        f"<div{f' class={kind}' if kind else ''}><dt>{label}</dt><dd>{value}</dd></div>"
        for label, value, kind in tiles
    )


def _problems(report: Report) -> str:
    told = list(report.store.problems)
    if report.why_no_start:
        told.append(f"What a start would do is not known: {report.why_no_start}")
    if not told:
        return ""
    return card("Not looked at", "".join(f"<p>{_cut(one, 500)}</p>" for one in told), "wide")


# --- findings --------------------------------------------------------------------------------


def _findings(found: Collected) -> list[str]:
    """A card for each code and advice, the worst first."""
    cards = [
        _finding(name, code)
        for severity in SEVERITIES
        for (name, _), code in found.codes.items()
        if code.severity == severity
    ]
    return cards or [card("Findings", '<span class="none">Nothing is wrong.</span>', "wide")]


def _finding(name: str, code: OfCode) -> str:
    times = "once" if code.count == 1 else f"{count(code.count)} times"
    commands = "".join(f"<pre>{_cut(command, 2000)}</pre>" for command in code.commands)
    if code.has_more_commands:
        commands += "<p>The other command lines stand in the rows of rmqctl verify.</p>"
    more = code.count - len(code.places)
    told = f"<p>and {count(more)} more, in the rows of rmqctl verify</p>" if more else ""
    shown = " open" if len(code.places) <= 3 else ""
    return (
        f'<section class="finding {code.severity}"><h2><b class="{code.severity}">{text(name)}</b>'
        f"<span>{code.severity}, {times}</span></h2><p>{sentences(code.advice)}</p>{commands}"
        f"<details{shown}><summary>where</summary>{_places(code.places)}{told}</details></section>"
    )


#: Columns of the table of a code's places, and how a finding is shown in each.
_COLUMNS: dict[str, Callable[[Finding], str]] = {
    "path": lambda one: _or_nothing(one.path),
    "log offset": lambda one: _number(one.physical_offset),
    "queue": lambda one: "" if one.topic is None else f"{_cut(one.topic)} · {one.queue_id}",
    "offset": lambda one: _number(one.queue_offset),
    "expected": lambda one: _or_nothing(one.expected),
    "found": lambda one: _or_nothing(one.found),
}


def _places(places: list[Finding]) -> str:
    """A table without the columns that are empty in all rows."""
    cells = {name: [show(one) for one in places] for name, show in _COLUMNS.items()}
    names = [name for name, column in cells.items() if any(column)]
    rows = zip(*(cells[name] for name in names), strict=True)
    return table(names, rows, wrapped=("expected", "found"))


def _or_nothing(value: object) -> str:
    return "" if value is None else _cut(value)


def _number(value: int | None) -> str:
    return "" if value is None else count(value)


# --- a start ---------------------------------------------------------------------------------


def _start(start: Simulation | None) -> str:
    if start is None:
        return ""
    steps = start.steps[:_MOST_STEPS]
    rows = [(text(one.what), _cut(one.where), _cut(one.why, 500)) for one in steps]
    more = len(start.steps) - len(steps)
    told = f"<p>and {count(more)} more steps</p>" if more else ""
    shown = table(("step", "where", "why"), rows, wrapped=("why",))
    return card(f"What a start of {start.version} would do", f"{shown}{told}", "wide")


# --- queues and index ------------------------------------------------------------------------


def _queues(store: Portrait, found: Collected, start: Simulation | None) -> str:
    """The queues with findings, the worst first; if there are few queues, all of them."""
    lost: dict[tuple[str, int], LostOfQueue] = {}
    if start is not None:
        lost = {(one.state.topic, one.state.queue_id): one for one in start.queues if one.lost}
    known = {(one.topic, one.queue_id) for one in store.queues}
    telling = [one for one in store.queues if _key(one) in found.queues or _key(one) in lost]
    quiet = [one for one in store.queues if _key(one) not in found.queues.keys() | lost.keys()]
    telling.sort(key=lambda one: _rank(found.queues.get(_key(one)), lost.get(_key(one))))
    shown = telling[:_MOST_QUEUES]
    if len(store.queues) <= _FEW:
        shown += quiet
    lines = [_queue(one, found.queues.get(_key(one)), lost.get(_key(one))) for one in shown]
    absent = [key for key in found.queues if key not in known]
    lines += [
        f"<span>{_cut(topic)} · {queue_id}</span><span></span>"
        f'<span class="said">no such queue; {severities(found.queues[topic, queue_id])}</span>'
        for topic, queue_id in absent[: _MOST_QUEUES - min(len(shown), _MOST_QUEUES)]
    ]
    left = len(store.queues) + len(absent) - len(lines)
    told = f"{count(len(telling) + len(absent))} of {count(len(known) + len(absent))} queues "
    told += "have something to tell."
    told += f" {count(left)} are not shown." if left else ""
    if not store.queues and not absent:
        told = "There is no queue."
    return card("Queues", f'<div class="lines">{"".join(lines)}</div><p>{told}</p>', "wide")


def _key(queue: QueueRange) -> tuple[str, int]:
    return queue.topic, queue.queue_id


def _rank(part: OfPart | None, lost: LostOfQueue | None) -> tuple[int, int]:
    worst = len(SEVERITIES) if part is None else SEVERITIES.index(part.worst)
    return worst, -(lost.lost if lost is not None else 0)


def _queue(queue: QueueRange, part: OfPart | None, lost: LostOfQueue | None) -> str:
    told = [f"{count(queue.min_offset)} to {count(queue.max_offset)}"]
    if part is not None:
        told.append(severities(part))
    if lost is not None:
        told.append(f'<b class="error">a start loses {count(lost.lost)}</b>')
    return (
        f"<span>{_cut(queue.topic)} · {queue.queue_id}</span>{queue_strip(queue, part, lost)}"
        f'<span class="said">{"; ".join(told)}</span>'
    )


def _index(store: Portrait, found: Collected, start: Simulation | None) -> str:
    """How full each index file is: first those with findings, then the newest."""
    gone = set()
    if start is not None:
        gone = {one.path.name for one in start.outcome.deleted if one.path.parent.name == "index"}
    parts = {one.name: found.files.get(f"index/{one.name}") for one in store.index}
    newest_first = store.index[::-1]
    order = sorted(newest_first, key=lambda one: _rank(parts[one.name], None))
    lines = [_fill(one, parts[one.name], is_gone=one.name in gone) for one in order]
    more = len(lines) - _MOST_INDEX_FILES
    told = f"<p>{count(more)} more files are not shown.</p>" if more > 0 else ""
    if not lines:
        told = "<p>There is no index file.</p>"
    shown = "".join(lines[:_MOST_INDEX_FILES])
    return card("Index: how full its files are", f'<div class="lines">{shown}</div>{told}', "wide")


def _fill(one: IndexFill, part: OfPart | None, *, is_gone: bool) -> str:
    items = min(max(one.items, 0), one.room)
    width = 1000 * items / max(one.room, 1)
    told = [f"{count(items)} of {count(one.room)} items"]
    if is_moment(one.begins) and is_moment(one.ends):
        told.append(f"{moment(one.begins)} to {moment(one.ends)}")
    if part is not None:
        told.append(severities(part))
    if is_gone:
        told.append('<b class="warning">a start deletes it</b>')
    return (
        f"<span>{_cut(one.name)}</span>"
        '<svg viewBox="0 0 1000 12" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="empty" x="0" y="2" width="1000" height="8"/>'
        f'<rect class="data" x="0" y="2" width="{width:.1f}" height="8"/></svg>'
        f'<span class="said">{"; ".join(told)}</span>'
    )
