"""The fields of a request's own header, each read as its Java type
(``RemotingCommand#decodeCommandCustomHeader``).

A broker logs a field that cannot be read, leaves it null, and fails later, at a null pointer. Here
such a request is answered at once, with what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from formats.constants import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN

#: What ``Long.parseLong`` takes, with a bound on the digits: Python refuses to read thousands.
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
#: Digits of numbers without a sign that the type has all of are fewer.
_INT_DIGITS, _LONG_DIGITS = 10, 19
#: ``Validators``: what topics and groups of clients are made of, and how long they are.
_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,127}", re.ASCII)


class BadRequest(Exception):
    """A request that cannot be understood; the text says why, and goes back to who sent it."""


class Fields:
    """The fields of one request."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def find(self, name: str) -> str | None:
        """A field that may be absent."""
        return self._values.get(name)

    def text(self, name: str) -> str:
        """:raises BadRequest: there is no such field; as of all that follow."""
        value = self._values.get(name)
        if value is None:
            raise BadRequest(f"the field {name} is missing")
        return value

    def name(self, name: str) -> str:
        """A topic or a group."""
        return checked_name(name, self.text(name))

    def find_name(self, name: str) -> str | None:
        """A topic or a group that may be absent, or empty."""
        value = self.find(name)
        return checked_name(name, value) if value else None

    def int32(self, name: str) -> int:
        text = self._values.get(name)
        if text is not None and len(text) < _INT_DIGITS and text.isdecimal() and text.isascii():
            return int(text)
        return self._whole(name, INT_MIN, INT_MAX)

    def int64(self, name: str) -> int:
        text = self._values.get(name)
        if text is not None and len(text) < _LONG_DIGITS and text.isdecimal() and text.isascii():
            return int(text)
        return self._whole(name, LONG_MIN, LONG_MAX)

    def boolean(self, name: str) -> bool:
        """``Boolean.parseBoolean``: anything but ``true`` is false."""
        return self._values.get(name, "").lower() == "true"

    def _whole(self, name: str, low: int, high: int) -> int:
        text = self.text(name)
        value = int(text) if _WHOLE.fullmatch(text) else None
        if value is None or not low <= value <= high:
            raise BadRequest(f"the field {name} is no whole number of Java: {text[:40]!r}")
        return value


def is_name(value: str) -> bool:
    """Whether a client could give a topic or a group this name."""
    return _NAME.fullmatch(value) is not None


def checked_name(field: str, value: str) -> str:
    """A topic or group of a request. :raises BadRequest: it is no name: it would become a directory
    and a line on a terminal."""
    if not is_name(value):
        raise BadRequest(
            f"the {field} {value[:40]!r} is no name: letters, digits, %, |, - and _, at most 127"
        )
    return value
