"""index query of many keys: lines of their messages where the kernel makes them, else rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rmqctl.engine.read.lines import KeyLines, Lines, line_maker
from rmqctl.operations.look.index import DEFAULT_MAX, query
from rmqctl.operations.look.lines import wanted_lines
from rmqctl.operations.look.rows import bodies_counted

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.rows.keyed import AbsentKeyRow, IndexKeysSummary
    from rmqctl.rows.structures import MessageRow
    from rmqctl.rows.summaries import IndexQuerySummary

#: Keys of one call of the kernel, which hears no Ctrl-C.
_KEYS_AT_ONCE = 256
#: An item knows whole seconds, and all are wanted.
_EVER = -999

#: Makes lines of the first of some keys; None where it does not.
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
    """What :func:`~rmqctl.operations.look.index.query` says of each of ``keys``, in their order:
    rows ``message``, or one row ``absent_key`` where there is none; then ``summary``, of all.

    :param keys: None among them: no more is there for now, and what was asked is to be answered.
    :param form: ``ndjson`` or ``csv``: lines of it may come in place of rows ``message``.
    """
    columns: tuple[str, ...] = ()
    lines: LinesOfKeys | None = None
    if form and since is None and until is None:
        store.index.expect_many()
        wanted = wanted_lines(form, body, decompress_limit)
        maker, columns = line_maker(wanted), tuple(name for name, _ in wanted.cells)
        if maker is not None:
            known, find, index = maker, store.commit_log.files.find, store.index

            def lines(some: Sequence[str]) -> KeyLines | None:
                return index.lines_of_keys(known, find, topic, some, _EVER, max_messages)

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


def _answers(
    topic: str,
    keys: Sequence[str],
    lines: LinesOfKeys | None,
    columns: tuple[str, ...],
    rows: Callable[[str], Iterator[MessageRow | IndexQuerySummary]],
    total: Counter[str],
) -> Iterator[Lines | MessageRow | AbsentKeyRow]:
    """Lines, or rows, of some keys; adds to ``total``."""
    at = 0
    while at < len(keys):
        made = lines(keys[at:]) if lines is not None else None
        if made is not None and made[1]:
            (data, messages, mismatches), done, collisions, absent = made
            at += done
            missing = 0
            if messages:
                yield Lines(memoryview(data), messages, mismatches, 0, columns)
        else:
            done = 1
            for row in rows(keys[at]):
                if row["type"] == "message":
                    yield row
                else:
                    messages, collisions, missing = (
                        row["messages"],
                        row["collisions"],
                        row["missing"],
                    )
            absent = None if messages else collisions
            at += 1
        total["keys"] += done
        total["messages"] += messages
        total["collisions"] += collisions
        total["missing"] += missing
        if absent is not None:
            total["absent_keys"] += 1
            yield {
                "type": "absent_key",
                "topic": topic,
                "key": keys[at - 1],
                "collisions": absent,
                "missing": missing,
            }


def _together(keys: Iterable[str | None]) -> Iterator[list[str]]:
    """Keys that are looked up together: few, and none that waits for others that are not there."""
    some: list[str] = []
    for key in keys:
        if key is not None:
            some.append(key)
        if some and (key is None or len(some) == _KEYS_AT_ONCE):
            yield some
            some = []
    if some:
        yield some
