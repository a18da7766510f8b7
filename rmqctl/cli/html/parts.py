"""Parts of pages: cards, bars, tables, and data of a store as text.

Data of a store is never HTML: it is escaped, and control characters are shown as escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.rows import Row

NONE = '<span class="none">none</span>'
#: Milliseconds: later times are after the year 9999, which no chart has room for.
_LATEST = 253_402_300_800_000


def card(title: str, content: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f"<section{attribute}><h2>{escape(title)}</h2>{content}</section>"


def bars(
    title: str, rows: list[Row], label: Callable[[Row], object], measure: str = "messages"
) -> str:
    """One line a row: its name, a bar, its number."""
    return card(title, bar_lines(rows, label, (measure,)) if rows else NONE)


def bar_lines(rows: list[Row], label: Callable[[Row], object], measures: tuple[str, ...]) -> str:
    """The lines of :func:`bars`; of several measures one bar has the parts."""
    show = size if measures == ("bytes",) else count
    most = max(sum(row[name] for name in measures) for row in rows) or 1
    lines = []
    for row in rows:
        parts, start = [], 0.0
        for name, kind in zip(measures, ("", ' class="second"'), strict=False):
            width = max(100 * row[name] / most, 0.5) if row[name] else 0.0
            parts.append(f'<rect{kind} x="{start:.2f}" width="{width:.2f}" height="10"/>')
            start += width
        lines.append(
            f"<span>{text(label(row))}</span>"
            '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
            f"{''.join(parts)}</svg>"
            f"<span>{' + '.join(text(show(row[name])) for name in measures)}</span>"
        )
    return f'<div class="bars {measures[0]}">{"".join(lines)}</div>'


def table(names: Sequence[str], rows: Iterable[Sequence[str]], wrapped: Sequence[str] = ()) -> str:
    """A table of cells that are HTML; in a narrow window each row is a block, with the name of a
    column before its cell. :param wrapped: columns whose cells are broken into lines."""
    kinds = [' class="wrap"' if name in wrapped else "" for name in names]
    lines = "".join(
        "<tr>"
        + "".join(
            f'<td data-name="{name}"{kind}>{cell}</td>'
            for name, kind, cell in zip(names, kinds, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    head = "".join(f"<th>{name}</th>" for name in names)
    return f'<div class="scroll"><table class="places"><tr>{head}</tr>{lines}</table></div>'


def text(value: object) -> str:
    """A value as escaped text; characters that cannot be shown are written as escapes."""
    shown = str(value)
    if not shown.isprintable():
        shown = "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown
        )
    return escape(shown)


def count(number: int) -> str:
    return f"{number:,}"


def size(number: int) -> str:
    length, unit = float(number), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if length < 1024 or unit == "TiB":
            break
        length /= 1024
    return f"{int(length):,} {unit}" if length == int(length) else f"{length:,.1f} {unit}"


def is_moment(milliseconds: int | None) -> bool:
    """Whether it is a time that a clock may show: of 1970 to 9999."""
    return milliseconds is not None and 0 <= milliseconds < _LATEST


def moment(milliseconds: int, *, seconds: bool = False) -> str:
    if not is_moment(milliseconds):
        return f"{milliseconds} ms"
    shown = "%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime(shown)


def sentences(words: str) -> str:
    """Sentences as HTML: escaped text, in which text between backticks is code."""
    parts = text(words).split("`")
    if len(parts) % 2 == 0:
        return "`".join(parts)
    return "".join(f"<code>{one}</code>" if n % 2 else one for n, one in enumerate(parts))
