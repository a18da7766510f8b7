"""Statistics as one HTML page: no script, no network, light and dark, narrow and wide.

Every word of a store is text: it is escaped, and control characters are shown as escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqctl.rows import Row


_STYLE = """
:root { color-scheme: light dark; --ground: #fbfbf9; --card: #fff; --ink: #1d2430; --dim: #66707f;
  --line: #e2e5ea; --bar: #2f6fb0; --bar2: #d9822b; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171c; --card: #1c2027; --ink: #e6e9ee;
  --dim: #98a2b1; --line: #313844; --bar: #6aa9e9; --bar2: #f0a35a; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 1.5rem clamp(.75rem, 3vw, 3rem) 3rem; background: var(--ground);
  color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 0 0 .75rem; }
p, footer { color: var(--dim); margin: .25rem 0 1.25rem; overflow-wrap: anywhere; }
.tiles { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr));
  margin: 0 0 1rem; }
.tiles div, section { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .75rem 1rem; min-width: 0; }
.tiles dt { color: var(--dim); font-size: .8rem; }
.tiles dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.grid { display: grid; gap: 1rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.wide { grid-column: 1 / -1; }
.bars { display: grid; gap: .3rem .75rem;
  grid-template-columns: minmax(0, 1fr) minmax(3rem, 1fr) auto;
  align-items: center; margin: 0; }
.bars span { overflow-wrap: anywhere; font-size: .85rem; }
.bars span:nth-child(3n) { text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
.bars svg { width: 100%; height: .8rem; display: block; }
.columns svg { width: 100%; height: 9rem; display: block; border-bottom: 1px solid var(--line); }
.columns div { display: flex; justify-content: space-between; gap: 1rem; color: var(--dim);
  font-size: .8rem; margin-top: .3rem; }
.columns span:nth-child(2) { text-align: center; }
.columns span:last-child { text-align: right; }
@media (max-width: 34rem) { .bars { grid-template-columns: minmax(0, 1fr) auto; gap: .1rem .75rem; }
  .bars span:nth-child(3n+1) { grid-column: 1 / -1; margin-top: .35rem; } }
rect { fill: var(--bar); } .bytes rect { fill: var(--bar2); }
.none { color: var(--dim); }
"""
_TILES: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("messages", "messages", lambda v: f"{v:,}"),
    ("bytes", "in the log", lambda v: _bytes(v)),  # noqa: PLW0108 (defined below)
    ("topics", "topics", lambda v: f"{v:,}"),
    ("queues", "queues", lambda v: f"{v:,}"),
    ("retry_rate", "are retries", lambda v: f"{v:.2%}"),
    ("dead_letter_rate", "are dead letters", lambda v: f"{v:.2%}"),
    ("duplicate_keys", "duplicate keys", lambda v: f"{v:,}"),
    ("damages", "places unreadable", lambda v: f"{v:,}"),
)


def page(rows: Iterable[Row], title: str) -> str:
    """The page of the rows of :func:`rmqctl.spark.report.stats.statistics`."""
    sections: dict[str, list[Row]] = {}
    for row in rows:
        sections.setdefault(row["type"], []).append(row)
    summary = sections.get("summary", [{}])[0]
    get = sections.get
    brokers = get("broker", [])
    body = [
        *([_bars("Messages by broker", brokers, lambda r: r["broker"])] if brokers else []),
        _bars("Messages by topic", get("topic", []), lambda r: r["topic"]),
        _bars("Bytes by topic", get("topic", []), lambda r: r["topic"], "bytes"),
        _columns("Messages by hour", get("hour", [])),
        _bars("Messages by queue", get("queue", []), lambda r: f"{r['topic']} · {r['queue_id']}"),
        _bars(
            "Messages by tag", get("tag", []), lambda r: f"{r['topic']} · {r['tag'] or '(none)'}"
        ),
        _bars("Messages by producer host", get("producer", []), lambda r: r["producer"]),
        _bars("Body size", get("size", []), lambda r: f"up to {_bytes(r['body_length_up_to'])}"),
        _bars("Delay from born to stored", get("delay", []), lambda r: _delay(r["delay_ms_up_to"])),
        _bars(
            "Keys that several messages have",
            get("duplicate_key", []),
            lambda r: f"{r['topic']} · {r['kind']} {r['key']}",
        ),
    ]
    tiles = "".join(
        f"<div><dt>{label}</dt><dd>{_text(show(summary[name]))}</dd></div>"
        for name, label, show in _TILES
        if name in summary
    )
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Whatever a store holds, nothing of it can run or call home.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>Messages of {_text(title)}</h1>\n"
        f"<p>Made by rmqctl stats, {made}. Times are UTC.</p>\n"
        f'<dl class="tiles">{tiles}</dl>\n<main class="grid">\n'
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _bars(
    title: str, rows: list[Row], label: Callable[[Row], object], measure: str = "messages"
) -> str:
    """One line a row: its name, a bar, its number."""
    if not rows:
        return _card(title, '<span class="none">none</span>')
    show = _bytes if measure == "bytes" else lambda value: f"{value:,}"
    most = max(row[measure] for row in rows) or 1
    lines = [
        f"<span>{_text(label(row))}</span>"
        '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{max(100 * row[measure] / most, 0.5):.2f}" height="10" rx="1"/></svg>'
        f"<span>{_text(show(row[measure]))}</span>"
        for row in rows
    ]
    return _card(title, f'<div class="bars {measure}">{"".join(lines)}</div>')


def _columns(title: str, rows: list[Row], measure: str = "messages") -> str:
    """A column an hour; hours without messages are gaps as wide as they are long."""
    rows = [row for row in rows if row["hour"] is not None]
    if not rows:
        return _card(title, '<span class="none">none</span>', "wide")
    hours = [row["hour"] // 3_600_000 for row in rows]
    first, span = hours[0], max(hours[-1] - hours[0] + 1, 1)
    most = max(row[measure] for row in rows) or 1
    width = 1000 / span
    columns = "".join(
        f'<rect x="{(hour - first) * width:.2f}" y="{100 - 100 * row[measure] / most:.2f}" '
        f'width="{max(min(width * 0.9, 60), 0.6):.2f}" height="{100 * row[measure] / most:.2f}">'
        f"<title>{_moment(row['hour'])}: {row[measure]:,}</title></rect>"
        for hour, row in zip(hours, rows, strict=True)
    )
    ends = (
        f"<span>{_moment(rows[0]['hour'])}</span><span>most: {most:,} an hour</span>"
        f"<span>{_moment(rows[-1]['hour'])}</span>"
    )
    return _card(
        title,
        '<div class="columns"><svg viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(title)}">{columns}</svg><div>{ends}</div></div>',
        "wide",
    )


def _card(title: str, content: str, kind: str = "") -> str:
    return f'<section class="{kind}"><h2>{escape(title)}</h2>{content}</section>'


def _text(value: object) -> str:
    """A value as text of the page; what is no character to show is shown as its escape."""
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(value)
    )
    return escape(shown)


def _bytes(count: int) -> str:
    size, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{int(size):,} {unit}" if size == int(size) else f"{size:,.1f} {unit}"


def _delay(limit: int | None) -> str:
    if limit is None:
        return "more than 1 h"
    for size, unit in ((3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if limit >= size:
            return f"up to {limit // size} {unit}"
    return f"up to {limit} ms" if limit else "none, or clocks differ"


def _moment(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
