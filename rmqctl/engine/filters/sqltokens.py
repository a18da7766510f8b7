"""The tokens of RocketMQ's SQL92 filters (``SelectorParser``), with their positions."""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from rmqctl.errors import FilterSyntaxError

#: A bound against hostile expressions: the most characters.
MAX_LENGTH = 16384

_TOKEN = re.compile(
    r"""(?P<space>[ \t\n\r\f]+|--[^\n\r]*[\n\r]|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)
    |(?P<float>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<decimal>0|[1-9][0-9]*[lL]?)
    |(?P<string>'(?:''|[^'])*')
    |(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
    |(?P<operator><>|<=|>=|[<>=(),+-])""",
    re.VERBOSE,
)
_RESERVED = {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"}


class Token(NamedTuple):
    """``kind`` is a group of ``_TOKEN``, a reserved word, an operator, or ``end``."""

    kind: str
    text: str
    position: int


def tokenize(text: str) -> list[Token]:
    """The tokens of an expression, the last one of kind ``end``.

    :raises FilterSyntaxError: it is too long, or something in it has no meaning.
    """
    if len(text) > MAX_LENGTH:
        fail(MAX_LENGTH, f"it has {len(text)} characters, at most {MAX_LENGTH} are taken")
    tokens, at = [], 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            what = text[at]
            fail(at, "a string that does not end" if what == "'" else f"{what!r} has no meaning")
        kind, image = str(found.lastgroup), found[0]
        if kind == "name" and image.upper() in _RESERVED:
            kind = image.upper()
        elif kind == "operator":
            kind = image
        if kind != "space":
            tokens.append(Token(kind, image, at))
        at = found.end()
    tokens.append(Token("end", "", len(text)))
    return tokens


def fail(position: int, reason: str) -> NoReturn:
    """:raises FilterSyntaxError: always; ``position`` counts from 0."""
    raise FilterSyntaxError(position=position + 1, reason=reason)
