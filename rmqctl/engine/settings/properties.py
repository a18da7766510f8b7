"""Reads a ``.properties`` text as ``java.util.Properties#load`` does: so a broker reads its
``broker.conf``.

A line ends at CR, LF or both. If it ends in an odd number of backslashes, it goes on in the next
line, without that one's leading blanks. A key ends at the first ``=``, ``:`` or blank without a
backslash before it. The value is everything behind, including blanks at its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rmqctl.errors import BrokerConfError

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_COMMENT = "#!"
_TRAILING_BACKSLASHES = re.compile(r"\\*\Z")
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(?:u(.{0,4})|(.?))", re.DOTALL)
_LETTERS = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}


class Property(NamedTuple):
    """One entry, and the number (from 1) of the line at which it begins."""

    name: str
    value: str
    line: int


def properties(text: str, source: str = "broker.conf") -> Iterator[Property]:
    """The entries in order. If several have the same name, the last one counts.

    :raises BrokerConfError: an escape is malformed; a broker does not start with such a file.
    """
    for number, line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        try:
            yield Property(_unescaped(key[0]), _unescaped(line[separator.end() :]), number)
        except ValueError as error:
            raise BrokerConfError(path=source, reason=f"line {number}: {error}") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """``(number of its first line, logical line)``, without comments and leading blanks."""
    joined, first = "", 0
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.lstrip(_BLANKS)
        if not joined:
            first = number
            if not line or line[0] in _COMMENT:
                continue
        backslashes = _TRAILING_BACKSLASHES.search(line)
        assert backslashes is not None
        if len(backslashes[0]) % 2:
            joined += line[:-1]
            continue
        if joined or line:
            yield first, joined + line
        joined = ""
    if joined:
        yield first, joined


def _unescaped(text: str) -> str:
    """:raises ValueError: ``\\u`` without four hexadecimal digits."""
    if "\\" not in text:
        return text

    def replaced(match: re.Match[str]) -> str:
        if match[1] is None:
            return _LETTERS.get(match[2], match[2])
        if not re.fullmatch(r"[0-9a-fA-F]{4}", match[1]):
            raise ValueError(f"{match[0]!r} is a malformed \\uxxxx escape")
        return chr(int(match[1], 16))

    # Two escapes may be the two halves of one character.
    joined = _ESCAPE.sub(replaced, text).encode("utf-16-le", "surrogatepass")
    return joined.decode("utf-16-le", "surrogatepass")


def properties_text(values: Mapping[str, object]) -> str:
    """One line for each value, sorted, as ``MixAll#properties2String`` writes them. Line ends and
    unprintable characters are escaped."""
    lines = (f"{name}={_escaped(value)}\n" for name, value in sorted(values.items()))
    return "".join(lines)


def _escaped(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    pieces = (
        one if one.isprintable() and one != "\\" else f"\\u{ord(one):04x}"
        for one in text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")
    )
    return "".join(pieces)
