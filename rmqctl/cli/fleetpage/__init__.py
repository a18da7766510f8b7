"""A fleet as one HTML page without network and scripts, to look at and to send on.

It shows the stores that could not be read, those that are not sound, where the bytes are, and a
table of all stores. Names and paths are escaped (:mod:`~rmqctl.cli.html.parts`), and very long ones
are cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rmqctl.cli.html.document import document, made, part
from rmqctl.cli.html.parts import bars, card, count, moment, sentences, size, table, text

if TYPE_CHECKING:
    from rmqctl.rows import Row

_SHEET = "rmqctl.cli.storepage"
#: Most lines of the large tables, and of the other cards. How many more there are is said below.
_MOST, _SOME = 5000, 40
#: Characters of a name, a path or an error.
_LONGEST = 300
_NOTHING = "–"

Tile = tuple[str, str, Callable[[Any], str], str]
#: Tiles: field of the summary, label, how it is shown, and its class where it is not zero. They
#: stand in rows of four or two, so there are eight.
_FIRST: tuple[Tile, ...] = (("stores", "stores", count, ""), ("failed", "not read", count, "bad"))
_TILES: dict[str, tuple[Tile, ...]] = {
    "verify": (
        *_FIRST,
        ("unclean", "with errors or warnings", count, "warn"),
        ("records", "records", count, ""),
        ("bytes", "in the logs", size, ""),
        ("errors", "errors", count, "bad"),
        ("warnings", "warnings", count, "warn"),
        ("kept", "as they were before", count, ""),
    ),
    "stats": (
        *_FIRST,
        ("records", "messages", count, ""),
        ("bytes", "in the logs", size, ""),
        ("retries", "retries", count, ""),
        ("dead_letters", "dead letters", count, ""),
        ("damages", "places unreadable", count, "bad"),
        ("kept", "as they were before", count, ""),
    ),
    "du": (
        *_FIRST,
        ("records", "messages", count, ""),
        ("bytes", "in the logs", size, ""),
        ("files", "files", count, ""),
        ("size", "is their length", size, ""),
        ("allocated_bytes", "on disk", size, ""),
        ("damages", "places unreadable", count, "bad"),
    ),
}
#: Columns of the table of all stores between the name and the times.
_COLUMNS: dict[str, tuple[tuple[str, str], ...]] = {
    "verify": (("errors", "errors"), ("warnings", "warnings"), ("worst", "worst")),
    "stats": (
        ("topics", "topics"),
        ("queues", "queues"),
        ("retries", "retries"),
        ("dead_letters", "dead letters"),
        ("damages", "damages"),
    ),
    "du": (("files", "files"), ("allocated_bytes", "on disk"), ("damages", "damages")),
}
_SIZES = frozenset(("bytes", "allocated_bytes"))


def page(rows: Sequence[Row], summary: Row, verb: str) -> str:
    """The page of a verb: its rows, in their order, and their summary."""
    read = [one for one in rows if one["error"] is None]
    failed = [one for one in rows if one["error"] is not None]
    measure = "allocated_bytes" if verb == "du" else "bytes"
    cards = [
        *([_failed(failed)] if failed else []),
        *(_unsound(read) if verb == "verify" else []),
        _largest(read, measure),
        _all(rows, verb),
    ]
    body = (
        f"<h1>Fleet of {count(len(rows))} stores</h1>\n"
        f'<p class="verdict {_mood(summary)}">{_verdict(summary)}</p>\n'
        f'<p class="made">Made by rmqctl fleet {verb}, {made()}. Times are UTC.</p>\n'
        f'<dl class="tiles">{_tiles(summary, verb)}</dl>\n<main>\n{"".join(cards)}\n</main>\n'
    )
    return document(f"Fleet of {len(rows)} stores", body, [part("page.css", _SHEET)])


def _mood(summary: Row) -> str:
    if summary["failed"]:
        return "error"
    return "warning" if summary["unclean"] else "sound"


def _verdict(summary: Row) -> str:
    sound = summary["stores"] - summary["failed"] - summary["unclean"]
    told = [f"{count(sound)} of {count(summary['stores'])} stores are sound"]
    if summary["unclean"]:
        told.append(f"{count(summary['unclean'])} are not")
    if summary["failed"]:
        told.append(f"{count(summary['failed'])} could not be read")
    return text(", ".join(told) + ".")


def _tiles(summary: Row, verb: str) -> str:
    tiles = []
    for name, label, show, kind in _TILES[verb]:
        value = summary[name]
        mark = f' class="{kind}"' if kind and value else ""
        tiles.append(f"<div{mark}><dt>{label}</dt><dd>{text(show(value))}</dd></div>")
    return "".join(tiles)


def _cut(value: object) -> str:
    shown = str(value)
    return text(shown) if len(shown) <= _LONGEST else f"{text(shown[:_LONGEST])}…"


def _failed(rows: list[Row]) -> str:
    lines = [
        [_cut(row["store"]), _cut(row["path"]), sentences(row["error"][:_LONGEST])]
        for row in rows[:_MOST]
    ]
    names = ("store", "path", "why, and what to do")
    return card(
        "Stores that could not be read", table(names, lines, names[1:]) + _more(rows, _MOST)
    )


def _unsound(rows: list[Row]) -> list[str]:
    bad = [row for row in rows if row["exit_code"]]
    if not bad:
        return []
    bad.sort(key=lambda row: (-row["errors"], -row["warnings"]))
    names = ("store", "errors", "warnings", "worst", "path")
    lines = [
        [
            _cut(row["store"]),
            count(row["errors"]),
            count(row["warnings"]),
            f'<b class="{"error" if row["errors"] else "warning"}">{_cut(row["worst"])}</b>',
            _cut(row["path"]),
        ]
        for row in bad[:_MOST]
    ]
    codes = Counter(row["worst"] for row in bad)
    by_code: list[Row] = [{"code": code, "stores": times} for code, times in codes.most_common()]
    return [
        card(
            "Stores with errors or warnings, the worst first",
            table(names, lines, ("path",))
            + _more(bad, _MOST)
            + "<p>rmqctl verify of a store has its findings, and what to do.</p>",
        ),
        bars("The worst finding, by how many stores have it", by_code, _code, "stores"),
    ]


def _code(row: Row) -> object:
    return row["code"]


def _largest(rows: list[Row], measure: str) -> str:
    known = [row for row in rows if row[measure] is not None]
    known.sort(key=lambda row: -row[measure])
    shown: list[Row] = [
        {"store": str(row["store"])[:_LONGEST], "bytes": row[measure]} for row in known[:_SOME]
    ]
    title = "Bytes on disk by store" if measure == "allocated_bytes" else "Bytes of log by store"
    return bars(title, shown, lambda row: row["store"], "bytes") + _more(known, _SOME)


def _all(rows: Sequence[Row], verb: str) -> str:
    columns = (("records", "records"), ("bytes", "log"), *_COLUMNS[verb])
    names = ("store", *(label for _, label in columns), "from", "to", "seconds")
    lines = [
        [
            _cut(row["store"]),
            *(_cell(row, name) for name, _ in columns),
            _time(row["first_store_timestamp"]),
            _time(row["last_store_timestamp"]),
            f"{row['seconds']:.1f}" if row["error"] is None else '<b class="error">not read</b>',
        ]
        for row in rows[:_MOST]
    ]
    return card("All stores", table(names, lines) + _more(rows, _MOST))


def _cell(row: Row, name: str) -> str:
    value = row[name]
    if value is None:
        return _NOTHING
    if isinstance(value, str):
        return _cut(value)
    return text(size(value) if name in _SIZES else count(value))


def _time(milliseconds: int | None) -> str:
    return _NOTHING if milliseconds is None else text(moment(milliseconds))


def _more(rows: Sequence[Row], most: int) -> str:
    more = len(rows) - most
    return f"<p>{count(more)} more, in the rows of the command.</p>" if more > 0 else ""
