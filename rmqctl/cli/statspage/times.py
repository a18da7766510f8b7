"""The charts over time: messages by hour, and how far the logs reach back.

Each chart is first a still picture in the page. Where scripts run, uPlot draws it anew from the
same numbers (``page.js``).
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING

from rmqctl.cli.html.parts import NONE, card, count, is_moment, moment, size, text

if TYPE_CHECKING:
    from rmqctl.rows import Row

HOUR = 3_600_000
#: How many columns the still picture of a chart has.
_COLUMNS = 500
_HINT = (
    '<p class="hint">Drag over a part of the time to see it alone; a double click shows all '
    "of it.</p>"
)


def by_hour(title: str, rows: list[Row]) -> str:
    """A chart with a column for each hour; hours without messages are gaps of their real length."""
    known = [row for row in rows if is_moment(row["hour"])]
    beyond = sum(row["messages"] for row in rows) - sum(row["messages"] for row in known)
    said = f"<p>{count(beyond)} more at times that no clock shows.</p>" if beyond else ""
    if not known:
        return card(title, (said or NONE), "wide")
    if len(known) == 1:
        (row,) = known
        start = row["hour"]
        return card(
            title,
            f"{count(row['messages'])} messages, {size(row['bytes'])}, all between "
            f"{moment(start)} and {moment(start + HOUR)[-5:]}.{said}",
            "wide",
        )
    hours = [row["hour"] // HOUR * 3600 for row in known]
    numbers = [hours, [row["messages"] for row in known], [row["bytes"] for row in known]]
    return card(
        title,
        # Numbers alone: no word of a store is in it.
        f'<figure role="img" aria-label="{escape(title)}">{_still(known)}'
        f'<script type="application/json">{json.dumps(numbers, separators=(",", ":"))}</script>'
        f"</figure>{said}{_HINT}",
        "wide",
    )


def _still(rows: list[Row]) -> str:
    """The chart as a still picture; with very many hours a column stands for several."""
    first = rows[0]["hour"] // HOUR
    span = rows[-1]["hour"] // HOUR - first + 1
    step = -(-span // _COLUMNS)
    columns: dict[int, int] = {}
    for row in rows:
        at = (row["hour"] // HOUR - first) // step
        columns[at] = columns.get(at, 0) + row["messages"]
    most, width = max(columns.values()) or 1, 1000 * step / span
    drawn = "".join(
        f'<rect x="{at * width:.2f}" y="{100 - 100 * messages / most:.2f}" '
        f'width="{width * 0.9:.2f}" height="{100 * messages / most:.2f}">'
        f"<title>{moment((first + at * step) * HOUR)}: {count(messages)}</title></rect>"
        for at, messages in columns.items()
    )
    ends = (first, first + span // 2, first + span)
    return (
        f'<div class="still"><div class="ends"><span>{count(most)} in '
        f"{'an hour' if step == 1 else f'{count(step)} hours'}</span></div>"
        f'<svg viewBox="0 0 1000 100" preserveAspectRatio="none">{drawn}</svg><div class="ends">'
        + "".join(f"<span>{moment(hour * HOUR)}</span>" for hour in ends)
        + "</div></div>"
    )


def reach(rows: list[Row]) -> str:
    """The range of store times of each store, and the part that is older than its retention."""
    known = [
        row
        for row in rows
        if is_moment(row["first_store_timestamp"]) and is_moment(row["last_store_timestamp"])
    ]
    title = "How far the logs reach back"
    if not known:
        return card(title, NONE, "wide")
    start = min(row["first_store_timestamp"] for row in known)
    span = max(row["last_store_timestamp"] for row in known) - start or 1
    lines = "".join(_reach_line(row, start, span) for row in known)
    return card(
        title,
        f'<div class="bars reach">{lines}</div>'
        '<p class="key"><i></i> kept by fileReservedTime, counted from the newest message; '
        '<i class="old"></i> older: log files that hold nothing else are what a broker deletes '
        "next</p>",
        "wide",
    )


def _reach_line(row: Row, start: int, span: int) -> str:
    first, last = row["first_store_timestamp"], row["last_store_timestamp"]
    kept = min(max(last - row["file_reserved_hours"] * HOUR, first), last)
    parts = "".join(
        f'<rect{kind} x="{1000 * (begin - start) / span:.2f}" '
        f'width="{max(1000 * (end - begin) / span, least):.2f}" height="10"/>'
        for kind, begin, end, least in ((' class="old"', first, kept, 0), ("", kept, last, 2))
    )
    return (
        f"<span>{text(row['store'])}</span>"
        '<svg viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">'
        f"{parts}</svg>"
        f"<span>{moment(first)} to {moment(last)}: {_days(last - first)}, "
        f"kept for {_days(row['file_reserved_hours'] * HOUR)}</span>"
    )


def _days(milliseconds: int) -> str:
    hours, minutes = divmod(milliseconds // 60_000, 60)
    days, hours = divmod(hours, 24)
    parts = [f"{number} {unit}" for number, unit in ((days, "d"), (hours, "h"), (minutes, "min"))]
    told = [part for part in parts if not part.startswith("0 ")][:2]
    return " ".join(told) or "less than a minute"
