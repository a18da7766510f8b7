"""Statistics as one HTML page. It needs no network, and fits light, dark, narrow and wide screens.

Only its own two scripts can run in it, which are allowed by their hashes: uPlot (MIT,
``uPlot.LICENSE``), which draws the charts over time, and ``page.js``, which gives it the numbers.
Words of a store are text and never reach the scripts (:mod:`~rmqctl.cli.html.parts`). See
docs/decisions/0016-charts-of-the-stats-page.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from rmqctl.cli.html.document import document, made, part
from rmqctl.cli.html.parts import NONE, bar_lines, bars, card, count, moment, size, text
from rmqctl.cli.statspage.times import by_hour, reach

if TYPE_CHECKING:
    from rmqctl.rows import Row

#: In rows of five or two, so there are ten. What is marked is bad unless it is nothing.
_TILES: tuple[tuple[str, str, Callable[[Any], str], bool], ...] = (
    ("messages", "messages", count, False),
    ("bytes", "in the log", size, False),
    ("topics", "topics", count, False),
    ("queues", "queues", count, False),
    ("waiting", "delayed messages wait", count, False),
    ("retry_rate", "are retries", lambda v: f"{v:.2%}", False),
    ("dead_letter_rate", "are dead letters", lambda v: f"{v:.2%}", False),
    ("pending_halves", "half messages pending", count, False),
    ("duplicate_keys", "keys stand twice or more", count, False),
    ("damages", "places unreadable", count, True),
)


def page(rows: Iterable[Row], title: str, top: int = 20) -> str:
    """The page of the rows of ``stats``, with bars for at most ``top`` groups of each type."""
    sections: dict[str, list[Row]] = {}
    for row in rows:
        sections.setdefault(row["type"], []).append(row)
    summary = sections.get("summary", [{}])[0]
    body = (
        f"<h1>Messages of {text(title)}</h1>\n"
        f"<p>Made by rmqctl stats, {made()}. Times are UTC.</p>\n"
        f'<dl class="tiles">{_tiles(summary)}</dl>\n<main>\n{_body(sections, summary, top)}\n'
        "</main>\n"
    )
    styles = [part(name, __package__) for name in ("uPlot.min.css", "page.css")]
    scripts = [part(name, __package__) for name in ("uPlot.iife.min.js", "page.js")]
    return document(title, body, styles, scripts)


def _tiles(summary: Row) -> str:
    tiles = []
    for name, label, show, is_bad in _TILES:
        value = summary.get(name)
        kind = ' class="bad"' if is_bad and value else ""
        shown = "not known" if value is None else text(show(value))
        tiles.append(f"<div{kind}><dt>{label}</dt><dd>{shown}</dd></div>")
    return "".join(tiles)


def _body(sections: dict[str, list[Row]], summary: Row, top: int) -> str:
    def get(name: str) -> list[Row]:
        return sections.get(name, [])

    places = [_places(get("unreadable"), summary)] if get("unreadable") else []
    if not summary.get("messages"):
        return "\n".join([*places, card("Messages", NONE, "wide")])
    cards = [
        *_by_both("broker", get("broker"), top),
        *_by_both("topic", get("topic"), top),
        _consumer_groups(get("consumer_group")),
        bars("Messages by queue", get("queue"), lambda r: f"{r['topic']} · {r['queue_id']}"),
        bars("Messages by tag", get("tag"), lambda r: f"{r['topic']} · {r['tag'] or '(none)'}"),
        bars("Messages by producer host", get("producer"), lambda r: r["producer"]),
        bars("Body size", get("size"), lambda r: f"up to {size(r['body_length_up_to'])}"),
        bars("Delay from born to stored", get("delay"), lambda r: _delay(r["delay_ms_up_to"])),
        bars("Pending half messages by producer group", get("half"), _half),
        bars(
            "Keys that several messages have",
            get("duplicate_key"),
            lambda r: f"{r['topic']} · {r['kind']} {r['key']}",
        ),
    ]
    wide = [
        *places,
        reach(get("store")),
        by_hour("Messages by hour", get("hour")),
        by_hour("Delayed messages that wait, by the hour in which they are due", get("due")),
    ]
    return "\n".join([*wide, '<div class="cards">', *cards, "</div>"])


def _by_both(name: str, rows: list[Row], top: int) -> list[str]:
    """The groups with most messages, and those with most bytes; the rows have both."""
    if not rows and name == "broker":
        return []
    by_bytes = sorted(rows, key=lambda row: -row["bytes"])
    return [
        bars(f"Messages by {name}", rows[:top], lambda r: r[name]),
        bars(f"Bytes by {name}", by_bytes[:top], lambda r: r[name], "bytes"),
    ]


def _consumer_groups(rows: list[Row]) -> str:
    title = "Retries and dead letters by consumer group"
    if not rows:
        return card(title, NONE)
    key = '<p class="key"><i></i> retries <i class="second"></i> dead letters</p>'
    lines = bar_lines(rows, lambda r: r["group"], ("retries", "dead_letters"))
    return card(title, lines + key)


def _places(rows: list[Row], summary: Row) -> str:
    lines = "".join(
        f"<tr><td>{text(row['store'])}</td><td>{_or_not(row['physical_offset'])}</td>"
        f"<td>{_or_not(row['length'])}</td><td>{text(row['reason'])}</td></tr>"
        for row in rows
    )
    more = summary.get("damages", len(rows)) - len(rows)
    return card(
        "Places that cannot be read",
        '<table class="places"><tr><th>store</th><th>physical offset</th><th>bytes</th>'
        f"<th>reason</th></tr>{lines}</table>"
        f"<p>{f'{count(more)} more. ' if more > 0 else ''}"
        "rmqctl verify says what each means, and what to do next.</p>",
        "wide",
    )


def _or_not(number: int | None) -> str:
    return "–" if number is None else text(number)


def _half(row: Row) -> str:
    group = row["producer_group"]
    return f"{'(none)' if group is None else group} · oldest {moment(row['oldest_born_timestamp'])}"


def _delay(limit: int | None) -> str:
    if limit is None:
        return "more than 1 h"
    for length, unit in ((3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if limit >= length:
            return f"up to {limit // length} {unit}"
    return f"up to {limit} ms" if limit else "none, or clocks differ"
