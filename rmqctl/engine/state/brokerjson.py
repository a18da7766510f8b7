"""``config/*.json``: a broker's settings and offsets, in the JSON dialect that it writes.

``ConfigManager#persist`` writes with fastjson 1.2.76, pretty with tabs: JSON, but keys that are
numbers have no quotes (``{0:124}``), and such entries stay on one line. It keeps the older file as
``.bak``, and ``ConfigManager#load`` reads that when the file is absent, empty or broken.

Reading is strict: only the dialect that is written, without comments, single quotes and extra
commas, which fastjson would skip. Sizes, depth and the length of numbers are bounded.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.engine.files.paths import NOT_REGULAR, open_for_reading
from rmqctl.errors import ConfigFileUnreadable, NotAConfigFile

CONFIG = "config"
BACKUP = ".bak"
TOPICS = "topics.json"
CONSUMER_OFFSET = "consumerOffset.json"
LMQ_CONSUMER_OFFSET = "lmqConsumerOffset.json"
SUBSCRIPTION_GROUP = "subscriptionGroup.json"
CONSUMER_FILTER = "consumerFilter.json"
DELAY_OFFSET = "delayOffset.json"
#: Files of consumer offsets, and their tables. With ``enableLmq`` all offsets are in the second.
OFFSET_TABLES = {
    CONSUMER_OFFSET: ("offsetTable",),
    LMQ_CONSUMER_OFFSET: ("offsetTable", "lmqOffsetTable"),
}
#: ``ConsumerOffsetManager.TOPIC_GROUP_SEPARATOR``.
TOPIC_GROUP_SEPARATOR = "@"

#: The most bytes of a file. The largest ones of brokers have some megabytes.
MAX_BYTES = 256 << 20
MAX_DEPTH = 64
_MAX_DIGITS = 40

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BARE_KEY = re.compile(r"-?(?:0|[1-9][0-9]*)(?=[ \t\r\n]*:)")
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_WORDS = {"true": True, "false": False, "null": None}
_WORD = re.compile(r"[A-Za-z]+")


class DuplicateKey(NamedTuple):
    """A key that occurs twice in one object; fastjson keeps the last value."""

    key: str | int
    line: int
    column: int


class _Problem(Exception):
    def __init__(self, reason: str, position: int) -> None:
        self.reason = reason
        self.position = position


def parse(text: str, *, path: str = "config", duplicates: list[DuplicateKey] | None = None) -> Any:
    """The value of a text. Keys without quotes are ints, quoted ones are strings.

    :param path: the file that an error names.
    :param duplicates: gets keys that occur twice (the last value counts); None: they are an error.
    :raises ConfigFileUnreadable: the text is not in the dialect.
    """
    try:
        value, position = _Parser(text, duplicates).value(_skip(text, 0), 0)
        position = _skip(text, position)
        if position < len(text):
            raise _Problem("text after the end of the value", position)
        return value
    except _Problem as problem:
        line, column = _place(text, problem.position)
        raise ConfigFileUnreadable(
            path=path, line=line, column=column, reason=problem.reason
        ) from None


def read(path: Path, duplicates: list[DuplicateKey] | None = None) -> Any:
    """The value of one file; None when it is absent or empty, as for ``ConfigManager#load``.

    :raises CannotRead: the system refuses.
    :raises ConfigFileUnreadable: it is no regular file, too large, not UTF-8, or not the dialect.
    """
    try:
        text = read_text(path)
    except FileNotFoundError:
        return None
    return parse(text, path=str(path), duplicates=duplicates) if text else None


def read_text(path: Path) -> str:
    """The text of one file. :raises FileNotFoundError: there is none; others as :func:`read`."""
    if not os.path.lexists(path):
        raise FileNotFoundError(path)
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
    except (
        OSError
    ) as error:  # Other errors than a link that leads nowhere are raised when it is opened.
        is_file = not isinstance(error, FileNotFoundError)
    if not is_file:
        raise NotAConfigFile(path=str(path), line=1, column=1, reason=NOT_REGULAR)
    with os.fdopen(open_for_reading(path), "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ConfigFileUnreadable(
            path=str(path), line=1, column=1, reason=f"it has more than {MAX_BYTES} bytes"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line, column = _place(before := data[: error.start].decode(), len(before))
        raise ConfigFileUnreadable(
            path=str(path), line=line, column=column, reason="it is not UTF-8 text"
        ) from error


def read_config(root: Path, name: str) -> Any:
    """:func:`read_kept` of ``config/<name>`` of the store at ``root``."""
    return read_kept(root / CONFIG / name)


def read_kept(path: Path) -> Any:
    """A file's value as a broker loads it (``ConfigManager#load``): from its ``.bak`` if the file
    is absent, empty or broken. :raises ConfigFileUnreadable: it is broken, and so is the
    ``.bak``."""
    backup = path.with_name(path.name + BACKUP)
    try:
        value = read(path, [])
    except ConfigFileUnreadable:
        with suppress(ConfigFileUnreadable):
            if (value := read(backup, [])) is not None:
                return value
        raise
    return read(backup, []) if value is None else value


def table_of(value: Any, name: str) -> dict[Any, Any]:
    """The object ``name`` in a file's value; empty when it is absent or null."""
    table = value.get(name) if isinstance(value, dict) else None
    return table if isinstance(table, dict) else {}


def offset_table(value: Any) -> dict[int, int]:
    """A ``{number: offset}`` of ``consumerOffset.json`` or ``delayOffset.json``, without other
    entries. Quoted numbers count, as for fastjson."""
    table = {}
    for key, offset in value.items() if isinstance(value, dict) else ():
        number, place = whole(key), whole(offset)
        if number is not None and place is not None:
            table[number] = place
    return table


def consumer_offsets(root: Path) -> dict[tuple[str, str], dict[int, int]]:
    """``(topic, group)`` → queue id → the offset that the group consumes next.

    From both :data:`OFFSET_TABLES`, without keys other than ``topic@group``.
    """
    offsets: dict[tuple[str, str], dict[int, int]] = {}
    for name, tables in OFFSET_TABLES.items():
        value = read_config(root, name)
        for key, item in (pair for table in tables for pair in table_of(value, table).items()):
            owner = topic_and_group(key)
            if owner is None:
                continue
            # LmqConsumerOffsetManager keeps one offset for each group: that of queue 0.
            offset = whole(item)
            offsets[owner] = {0: offset} if offset is not None else offset_table(item)
    return offsets


def topic_and_group(key: str | int) -> tuple[str, str] | None:
    """The two parts of ``topic@group``; None if there are not exactly two."""
    parts = str(key).split(TOPIC_GROUP_SEPARATOR)
    return (parts[0], parts[1]) if len(parts) == 2 and all(parts) else None


def delay_offsets(root: Path) -> dict[int, int]:
    """Delay level → the queue offset in ``SCHEDULE_TOPIC_XXXX`` that is delivered next."""
    return offset_table(table_of(read_config(root, DELAY_OFFSET), "offsetTable"))


def whole(value: Any) -> int | None:
    """A whole number, also a quoted one, as for fastjson; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value, re.ASCII):
        return int(value)
    return None


# --- reading ---------------------------------------------------------------------------------


class _Parser:
    """Parses one text. Each method takes a position and returns a value and the position after
    it."""

    def __init__(self, text: str, duplicates: list[DuplicateKey] | None) -> None:
        self._text = text
        self._duplicates = duplicates
        self._line = 1
        self._line_start = self._counted = 0

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        start = self._text[at : at + 1]
        if start == "{":
            return self._object(at, depth + 1)
        if start == "[":
            return self._array(at, depth + 1)
        if start == '"':
            return self._string(at)
        number = _NUMBER.match(self._text, at)
        if number is not None:
            return self._number(number), number.end()
        word = _WORD.match(self._text, at)
        if word is not None and word[0] in _WORDS:
            return _WORDS[word[0]], word.end()
        raise _Problem("a value is expected" + self._instead(at), at)

    def _object(self, at: int, depth: int) -> tuple[dict[str | int, Any], int]:
        text, found = self._text, {}
        self._check_depth(at, depth)
        at = _skip(text, at + 1)
        if text[at : at + 1] == "}":
            return {}, at + 1
        while True:
            place = at
            key, at = self._key(at)
            if key in found:
                self._duplicate(key, place)
            at = _skip(text, at)
            if text[at : at + 1] != ":":
                raise _Problem("':' is expected" + self._instead(at), at)
            found[key], at = self.value(_skip(text, at + 1), depth)
            at = _skip(text, at)
            if text[at : at + 1] == "}":
                return found, at + 1
            if text[at : at + 1] != ",":
                raise _Problem("',' or '}' is expected" + self._instead(at), at)
            at = _skip(text, at + 1)

    def _array(self, at: int, depth: int) -> tuple[list[Any], int]:
        text: str = self._text
        found: list[Any] = []
        self._check_depth(at, depth)
        at = _skip(text, at + 1)
        if text[at : at + 1] == "]":
            return found, at + 1
        while True:
            value, at = self.value(at, depth)
            found.append(value)
            at = _skip(text, at)
            if text[at : at + 1] == "]":
                return found, at + 1
            if text[at : at + 1] != ",":
                raise _Problem("',' or ']' is expected" + self._instead(at), at)
            at = _skip(text, at + 1)

    def _key(self, at: int) -> tuple[str | int, int]:
        if self._text[at : at + 1] == '"':
            return self._string(at)
        bare = _BARE_KEY.match(self._text, at)
        if bare is None:
            raise _Problem("a key in double quotes or a whole number is expected", at)
        return self._whole_number(bare[0], at), bare.end()

    def _string(self, at: int) -> tuple[str, int]:
        quoted = _STRING.match(self._text, at)
        if quoted is None:
            raise _Problem("the string that starts here has no end on its line", at)
        if "\\" not in quoted[0]:
            return quoted[0][1:-1], quoted.end()
        try:
            return str(json.loads(quoted[0])), quoted.end()
        except json.JSONDecodeError as error:
            raise _Problem("an escape that JSON does not know", at + error.pos) from None

    def _number(self, match: re.Match[str]) -> int | float:
        if match[2] is None and match[3] is None:
            return self._whole_number(match[1], match.start())
        if len(match[0]) > _MAX_DIGITS:
            raise _Problem("the number is too long", match.start())
        value = float(match[0])
        if math.isinf(value):
            raise _Problem("the number is too large", match.start())
        return value

    def _whole_number(self, digits: str, at: int) -> int:
        if len(digits) > _MAX_DIGITS:
            raise _Problem("the number is too long", at)
        return int(digits)

    def _duplicate(self, key: str | int, at: int) -> None:
        if self._duplicates is None:
            raise _Problem(f"the key {key!r} stands here a second time", at)
        # Keys come in order, and may be millions: so counting goes on where it ended.
        self._line += self._text.count("\n", self._counted, at)
        newline = self._text.rfind("\n", self._counted, at)
        self._line_start = newline + 1 if newline >= 0 else self._line_start
        self._counted = at
        self._duplicates.append(DuplicateKey(key, self._line, at - self._line_start + 1))

    def _check_depth(self, at: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise _Problem(f"more than {MAX_DEPTH} objects and arrays in each other", at)

    def _instead(self, at: int) -> str:
        return f", not {self._text[at]!r}" if at < len(self._text) else ", not the end of the file"


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _place(text: str, position: int) -> tuple[int, int]:
    """Line and column, both from 1."""
    line_start = text.rfind("\n", 0, position) + 1
    return text.count("\n", 0, position) + 1, position - line_start + 1


# --- writing ---------------------------------------------------------------------------------

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f"}
_ESCAPES |= {"\r": "\\r"}
#: A lone surrogate cannot be encoded in UTF-8, so it is escaped.
_ESCAPED = re.compile(r'["\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')


def dumps(value: Any) -> str:
    """A value as ``ConfigManager#encode(true)`` writes it, in the order of its dicts.

    int keys have no quotes and share a line; each str key has its own line. A list of ints counts
    as a Java array, on one line.
    """
    return "".join(_pieces(value, 0))


def _pieces(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from _object_pieces(value, depth + 1)
    elif isinstance(value, list):
        yield from _array_pieces(value, depth + 1)
    elif isinstance(value, str):
        yield _quoted(value)
    elif value is None or isinstance(value, bool):
        yield {None: "null", True: "true", False: "false"}[value]
    else:
        yield repr(value)


def _object_pieces(value: Mapping[Any, Any], depth: int) -> Iterator[str]:
    yield "{"
    for number, (key, item) in enumerate(value.items()):
        if number:
            yield ","
        if isinstance(key, str):
            yield f"{_line(depth)}{_quoted(key)}:"
        else:
            yield f"{key}:"
        yield from _pieces(item, depth)
    yield f"{_line(depth - 1)}}}" if value else "}"


def _array_pieces(value: list[Any], depth: int) -> Iterator[str]:
    on_one_line = all(isinstance(item, int) for item in value)
    yield "["
    for number, item in enumerate(value):
        if number:
            yield ","
        if not on_one_line:
            yield _line(depth)
        yield from _pieces(item, depth)
    yield "]" if on_one_line else f"{_line(depth - 1)}]"


def _line(depth: int) -> str:
    return "\n" + "\t" * depth


def _quoted(text: str) -> str:
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04X}"
