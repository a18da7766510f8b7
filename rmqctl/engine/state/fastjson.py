"""The JSON dialect of fastjson 1.2.76, in which a broker writes the files of ``config/``
(``ConfigManager#persist``): pretty with tabs, but keys that are numbers have no quotes
(``{0:124}``), and such entries stay on one line.

Reading is strict: only the dialect that is written, without comments, single quotes and extra
commas, which fastjson would skip. Depth and the length of numbers are bounded.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rmqctl.errors import ConfigFileUnreadable

MAX_DEPTH = 64
_MAX_DIGITS = 40

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BARE_KEY = re.compile(r"-?(?:0|[1-9][0-9]*)(?=[ \t\r\n]*:)")
#: An object of whole numbers, as all offsets of a consumer group in a topic are.
_WHOLE = f"-?(?:0|[1-9][0-9]{{0,{_MAX_DIGITS - 2}}})"
_NUMBERS = re.compile(rf"{{({_WHOLE}:{_WHOLE}(?:,{_WHOLE}:{_WHOLE})*)[ \t\r\n]*}}")
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
        line, column = place(text, problem.position)
        raise ConfigFileUnreadable(
            path=path, line=line, column=column, reason=problem.reason
        ) from None


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
        if (numbers := _NUMBERS.match(text, at)) is not None:
            pairs = [pair.split(":") for pair in numbers[1].split(",")]
            table: dict[str | int, Any] = {int(key): int(value) for key, value in pairs}
            if len(table) == len(pairs):
                return table, numbers.end()
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


def place(text: str, position: int) -> tuple[int, int]:
    """Line and column of a position in a text, both from 1."""
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
