"""JSON of clients as a broker reads it (``RemotingSerializable#decode``): the bytes become a string
first, by Java's rules, and nothing in them is refused for being no text."""

from __future__ import annotations

import re
from typing import Any

import orjson

from formats.text import decode_utf8

#: Backslashes, and behind them what may be one half of a pair of surrogates, or both. Other escapes
#: are passed over: there may be millions, and each match costs as much as a thousand characters.
_SURROGATES = re.compile(
    r"(?<!\\)(\\+)(?:(u[dD][89abAB][0-9a-fA-F]{2})(\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    r"|(u[dD][c-fC-F][0-9a-fA-F]{2}))"
)


def loads(data: bytes) -> Any:
    """The value. Malformed UTF-8 in it becomes U+FFFD, and half a pair of surrogates a question
    mark, as which Java would write it. Takes time and memory in proportion to the bytes.

    :raises orjson.JSONDecodeError: it is no JSON, or deeper than anybody nests it.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        # Strict readers refuse both for the whole of it.
        return orjson.loads(_SURROGATES.sub(_joined, decode_utf8(data)))


def _joined(match: re.Match[str]) -> str:
    """The text with a question mark for each half that stands alone."""
    backslashes, high, low, _ = match.groups()
    if len(backslashes) % 2 == 0:
        # They stand for themselves, and the first half is none; its fellow is one, alone.
        return f"{backslashes}{high}?" if low else match[0]
    return match[0] if low else f"{backslashes[:-1]}?"
