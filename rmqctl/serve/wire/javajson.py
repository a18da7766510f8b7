"""JSON of clients as a broker reads it (``RemotingSerializable#decode``): the bytes become a string
first, by Java's rules, and nothing in them is refused for being no text."""

from __future__ import annotations

import re
from typing import Any

import orjson

from formats.text import decode_utf8

#: An escape in a string: a pair of surrogates, one without its other half, or any other.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
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
        return orjson.loads(_ESCAPE.sub(_joined, decode_utf8(data)))


def _joined(match: re.Match[str]) -> str:
    return "?" if match[1] else match[0]
