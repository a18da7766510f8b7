"""index query of many keys: lines of their messages where the kernel can make them, else rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rmqctl.engine.files.holes import is_whole
from rmqctl.engine.read.lines import KeyLines, Lines, WantedLines, line_maker
from rmqctl.operations.look.index import DEFAULT_MAX, query
from rmqctl.operations.look.lines import wanted_lines
from rmqctl.operations.look.rows import bodies_counted

if TYPE_CHECKING:
    from rmqctl.engine.files.mappedfile import MappedFile
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.rows.keyed import AbsentKeyRow, IndexKeysSummary
    from rmqctl.rows.structures import MessageRow
    from rmqctl.rows.summaries import IndexQuerySummary

#: How many keys one call of the kernel gets: during a call Ctrl-C has no effect.
_KEYS_AT_ONCE = 256
#: The earliest time to look for: items have whole seconds, and none may be left out.
_EVER = -999

#: Makes the lines of the first of some keys; None where it cannot.
LinesOfKeys = Callable[[Sequence[str]], KeyLines | None]


@bodies_counted
def query_keys(
    store: MessageStore,
    topic: str,
    keys: Iterable[str | None],
    *,
    form: str = "",
    max_messages: int = DEFAULT_MAX,
    since: int | None = None,
    until: int | None = None,
    body: str = "none",
    decompress_limit: int | None = None,
) -> Iterator[Lines | MessageRow | AbsentKeyRow | IndexKeysSummary]:
    """The messages of each of ``keys``, in their order, as of
    :func:`~rmqctl.operations.look.index.query`: rows ``message``, or a row ``absent_key`` where
    there is none. Then comes one ``summary`` of all.

    :param keys: None among them means that no more keys are there for now, so that the keys before
        it are to be answered.
    :param form: ``ndjson`` or ``csv``: lines of it may take the place of rows ``message``.
    """
    lines: LinesOfKeys | None = None
    columns: tuple[str, ...] = ()
    if form and since is None and until is None:
        wanted = wanted_lines(form, body, decompress_limit)
        columns = tuple(name for name, _ in wanted.cells)
        lines = _lines_of_keys(store, topic, wanted, max_messages)

    def rows(key: str) -> Iterator[MessageRow | IndexQuerySummary]:
        return query(
            store,
            topic,
            key,
            max_messages=max_messages,
            since=since,
            until=until,
            body=body,
            decompress_limit=decompress_limit,
        )

    total: Counter[str] = Counter()
    for some in _together(keys):
        yield from _answers(topic, some, lines, columns, rows, total)
    yield {
        "type": "summary",
        "keys": total["keys"],
        "absent_keys": total["absent_keys"],
        "messages": total["messages"],
        "collisions": total["collisions"],
        "missing": total["missing"],
        "index_files": len(store.index.paths),
    }


def _lines_of_keys(
    store: MessageStore, topic: str, wanted: WantedLines, most: int
) -> LinesOfKeys | None:
    """The maker of lines; None where the kernel makes none."""
    store.index.expect_many()
    maker, files, index = line_maker(wanted), store.commit_log.files, store.index
    if maker is None:
        return None

    def find(offset: int) -> MappedFile | None:
        mapped = files.find(offset)
        if mapped is not None:
            place = offset - mapped.file_from_offset
            is_whole(mapped, place, place + 1)
        return mapped

    return lambda keys: index.lines_of_keys(maker, find, topic, keys, _EVER, most)


def _answers(
    topic: str,
    keys: Sequence[str],
    lines: LinesOfKeys | None,
    columns: tuple[str, ...],
    rows: Callable[[str], Iterator[MessageRow | IndexQuerySummary]],
    total: Counter[str],
) -> Iterator[Lines | MessageRow | AbsentKeyRow]:
    """Lines, or rows, of some keys. Adds to ``total``."""
    at, size = 0, len(keys)
    while at < len(keys):
        made = lines(keys[at : at + size]) if lines is not None else None
        if made is not None and made[1]:
            yield from _pieces(topic, keys[at:], made, columns, total)
            at += made[1]
            size *= 2
        else:
            yield from _answer(topic, keys[at], rows(keys[at]), total)
            at += 1
            # The next keys may be like this one, and then their lookups would be lost.
            size = 1


def _pieces(
    topic: str, keys: Sequence[str], made: KeyLines, columns: tuple[str, ...], total: Counter[str]
) -> Iterator[Lines | AbsentKeyRow]:
    """The lines of the first of some keys, with the rows of absent keys between them."""
    (data, messages, mismatches), done, collisions, absent = made
    total.update(keys=done, messages=messages, collisions=collisions, absent_keys=len(absent))
    text, before, given = memoryview(data), 0, 0
    for number, end, count, others in absent:
        if count > given:
            yield Lines(text[before:end], count - given, 0, 0, columns)
        yield _absent_key(topic, keys[number], others, 0)
        before, given = end, count
    if messages > given or mismatches:
        yield Lines(text[before:], messages - given, mismatches, 0, columns)


def _answer(
    topic: str,
    key: str,
    rows: Iterator[MessageRow | IndexQuerySummary],
    total: Counter[str],
) -> Iterator[MessageRow | AbsentKeyRow]:
    """The rows of one key."""
    for row in rows:
        if row["type"] == "message":
            yield row
            continue
        total["keys"] += 1
        total["messages"] += row["messages"]
        total["collisions"] += row["collisions"]
        total["missing"] += row["missing"]
        if not row["messages"]:
            total["absent_keys"] += 1
            yield _absent_key(topic, key, row["collisions"], row["missing"])


def _absent_key(topic: str, key: str, collisions: int, missing: int) -> AbsentKeyRow:
    return {
        "type": "absent_key",
        "topic": topic,
        "key": key,
        "collisions": collisions,
        "missing": missing,
    }


def _together(keys: Iterable[str | None]) -> Iterator[list[str]]:
    """Groups of keys to be looked up together. They are small, and no key waits for keys that have
    not come yet."""
    some: list[str] = []
    for key in keys:
        if key is not None:
            some.append(key)
        if some and (key is None or len(some) == _KEYS_AT_ONCE):
            yield some
            some = []
    if some:
        yield some
