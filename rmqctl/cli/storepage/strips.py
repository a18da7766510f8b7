"""The log, and each queue, as a strip: the borders of files, what is wrong, what a start leaves.

Only numbers become part of a drawing; names stand beside a strip as text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmqctl.cli.html.parts import card, count, is_moment, moment, size, table, text
from rmqctl.cli.storepage.collected import COLUMNS, SEVERITIES, Collected
from rmqctl.engine.files.shown import shown
from rmqctl.operations.doctor.portrait import gaps

if TYPE_CHECKING:
    from rmqctl.cli.storepage.collected import OfPart
    from rmqctl.operations.doctor.portrait import LogFile, Portrait, QueueRange
    from rmqctl.operations.doctor.simulatestart import LostOfQueue, Simulation

#: The width of every strip in SVG units, and the least width of a mark.
_WIDTH, _MARK = 1000.0, 4.0
#: With so many files, no borders are drawn between them.
_MOST_BORDERS = 150
#: The most files that are listed one by one.
_MOST_FILES = 40


class Scale:
    """Maps offsets between ``begin`` and ``end`` to positions on a strip."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end = begin, max(end, begin + 1)

    def x(self, place: int) -> float:
        place = min(max(place, self.begin), self.end)
        return _WIDTH * (place - self.begin) / (self.end - self.begin)

    def rect(self, begin: int, end: int, kind: str, row: tuple[int, int]) -> str:
        """A rectangle over a stretch of the strip; ``row`` gives its top and bottom."""
        x, width = self.x(begin), self.x(end) - self.x(begin)
        if width <= 0:
            return ""
        top, bottom = row
        return (
            f'<rect class="{kind}" x="{x:.1f}" y="{top}" width="{width:.1f}" '
            f'height="{bottom - top}"/>'
        )

    def mark(self, x: float, kind: str, row: tuple[int, int]) -> str:
        top, bottom = row
        return (
            f'<rect class="{kind}" x="{min(x, _WIDTH - _MARK):.1f}" y="{top}" width="{_MARK}" '
            f'height="{bottom - top}"/>'
        )


def svg(height: int, parts: Iterable[str], label: str) -> str:
    """A strip as SVG; ``label`` must not come from a store."""
    return (
        f'<svg viewBox="0 0 1000 {height}" preserveAspectRatio="none" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg>'
    )


# --- the log ---------------------------------------------------------------------------------


def log_card(store: Portrait, found: Collected, start: Simulation | None) -> str:
    """The card of the log: the log now, and below it what a start leaves of it."""
    title = "The log"
    if not store.log:
        return card(title, '<span class="none">There is no file of the log.</span>', "wide")
    strips = [f'<div class="strip">{_now(store, found)}</div>']
    if start is not None and start.outcome.walked_to is not None:
        strips.append(
            f"<p>After a start of {text(start.version)}:</p>"
            f'<div class="strip after">{_after(store, start)}</div>'
        )
    return card(
        title,
        f"{''.join(strips)}{_axis(store)}{_key(store, found, start)}{_files(store, found, start)}",
        "wide",
    )


def log_range(store: Portrait) -> tuple[int, int]:
    """The physical offsets of the begin and the end of the log's files."""
    if not store.log:
        return 0, 0
    return store.log[0].offset, max(one.offset + one.size for one in store.log)


def _now(store: Portrait, found: Collected) -> str:
    scale, row = Scale(*log_range(store)), (8, 32)
    parts = [scale.rect(one.offset, one.offset + one.size, "empty", row) for one in store.log]
    parts += [
        scale.rect(one.offset, min(one.offset + one.size, store.log_end), "data", row)
        for one in store.log
    ]
    parts += _borders(store.log, scale, row)
    parts += [scale.rect(begin, end, "gone", row) for begin, end in gaps(store.log)]
    for column, severity in sorted(found.marks.items()):
        if severity != "info":
            parts.append(scale.mark(column * _WIDTH / COLUMNS, severity, (0, 40)))
    return svg(40, parts, "The files of the log, and where something is wrong")


def _after(store: Portrait, start: Simulation) -> str:
    scale, row, outcome = Scale(*log_range(store)), (2, 18), start.outcome
    gone = {shown(store.root, one.path) for one in outcome.deleted}
    end = outcome.max_offset if outcome.starts else outcome.walked_to or 0
    parts = []
    for one in store.log:
        last = min(one.offset + one.size, store.log_end)
        if one.path in gone:
            parts.append(scale.rect(one.offset, one.offset + one.size, "lost", row))
            continue
        parts.append(scale.rect(one.offset, one.offset + one.size, "empty", row))
        parts.append(scale.rect(one.offset, min(last, end), "data", row))
        parts.append(scale.rect(max(one.offset, end), last, "lost", row))
    parts += _borders(store.log, scale, row)
    return svg(20, parts, "What a start leaves of the log")


def _borders(log: list[LogFile], scale: Scale, row: tuple[int, int]) -> list[str]:
    if len(log) > _MOST_BORDERS:
        return []
    top, bottom = row
    return [
        f'<rect class="border" x="{scale.x(one.offset) - 0.75:.2f}" y="{top}" width="1.5" '
        f'height="{bottom - top}"/>'
        for one in log[1:]
    ]


def _axis(store: Portrait) -> str:
    """The labels below a strip: store time and physical offset of its ends and its middle."""
    begin, end = log_range(store)
    middle = min(store.log, key=lambda one: abs(one.offset - (begin + end) // 2))
    ends = [
        (store.log[0].begins, begin, ""),
        (middle.begins, middle.offset, ' class="middle"'),
        (store.newest, end, ""),
    ]
    if middle in (store.log[0], store.log[-1]) and len(store.log) < 3:
        del ends[1]
    return (
        '<div class="ends">'
        + "".join(
            f"<span{kind}>{_when(time)}<br>{count(offset)}</span>" for time, offset, kind in ends
        )
        + "</div>"
    )


def _when(time: int | None) -> str:
    if time is None or not is_moment(time):
        return "no time known"
    return moment(time, seconds=True)


def _key(store: Portrait, found: Collected, start: Simulation | None) -> str:
    kinds = [("data", "messages"), ("empty", "not written yet")]
    if any(severity == "error" for severity in found.marks.values()):
        kinds.append(("error", "error"))
    if any(severity == "warning" for severity in found.marks.values()):
        kinds.append(("warning", "warning"))
    if next(gaps(store.log), None):
        kinds.append(("gone", "no file"))
    if start is not None and (start.messages_lost or start.outcome.deleted):
        kinds.append(("lost", "cut or deleted by the start"))
    return (
        '<p class="key">'
        + " ".join(f'<span><i class="{kind}"></i> {told}</span>' for kind, told in kinds)
        + "</p>"
    )


def _files(store: Portrait, found: Collected, start: Simulation | None) -> str:
    """The list of files that have findings, or that a start changes."""
    fates = _fates(store, start)
    rows = []
    for one in store.log:
        part, fate = found.files.get(one.path), fates.get(one.path, "")
        if part is not None or fate:
            told = (text(one.path), _when(one.begins), size(one.size), severities(part), fate)
            rows.append(told)
    begin, end = log_range(store)
    files = "1 file" if len(store.log) == 1 else f"{count(len(store.log))} files"
    said = f"{files}, {size(end - begin)}, up to physical offset {count(store.log_end)}."
    if not rows:
        return f"<p>{said}</p>"
    more = len(rows) - _MOST_FILES
    said += f" {count(more)} more files have something to tell." if more > 0 else ""
    names = ("file", "first message", "length", "findings", "a start")
    return f"{table(names, rows[:_MOST_FILES])}<p>{said}</p>"


def _fates(store: Portrait, start: Simulation | None) -> dict[str, str]:
    """What a start does to each file, by path."""
    if start is None:
        return {}
    fates = {shown(store.root, cut.path): f"cuts it at {count(cut.end)}" for cut in start.truncated}
    for one in (*start.removals, *start.outcome.deleted):
        fates[shown(store.root, one.path)] = f"deletes it ({text(one.why)})"
    return fates


def severities(part: OfPart | None) -> str:
    """Counts by severity, in coloured words."""
    if part is None:
        return ""
    return ", ".join(
        f'<b class="{name}">{count(part.severities[name])} {name}'
        f"{'' if part.severities[name] == 1 or name == 'info' else 's'}</b>"
        for name in SEVERITIES
        if part.severities[name]
    )


# --- a queue ---------------------------------------------------------------------------------


def queue_strip(queue: QueueRange, part: OfPart | None, lost: LostOfQueue | None) -> str:
    """The strip of a queue, from its first to its last message."""
    end = max(queue.max_offset, queue.min_offset)
    scale, row = Scale(queue.min_offset, end), (2, 10)
    parts = [scale.rect(queue.min_offset, end, "data", row)]
    if lost is not None and lost.lost:
        parts.append(scale.rect(lost.state.max_offset, end, "lost", row))
    if part is not None:
        columns = {int(scale.x(offset)) // 2 for offset in part.offsets}
        parts += [scale.mark(2.0 * at, part.worst, (0, 12)) for at in sorted(columns)]
    return svg(12, parts, "A queue, and where something is wrong")
