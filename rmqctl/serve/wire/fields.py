"""The fields of a request's own header, each read as its Java type
(``RemotingCommand#decodeCommandCustomHeader``).

A broker logs a field that is missing (also one that is ``@CFNotNull``) or cannot be read, leaves
it null, and fails later, at a null pointer; but not where it does not look at the field. Here a
request without a field that is looked at is answered at once, with what is wrong with it. What a
broker can do without is read by the methods that begin with ``find``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping

from formats.constants import (
    DLQ_GROUP_TOPIC_PREFIX,
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    RETRY_GROUP_TOPIC_PREFIX,
)

#: What ``Long.parseLong`` takes, with a bound on the digits: Python refuses to read thousands.
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
#: Digits of numbers without a sign that the type has all of are fewer.
_INT_DIGITS, _LONG_DIGITS = 10, 19
#: ``TopicValidator``: topics to which is sent, and that are made.
_TOPIC_TO_SEND = re.compile(r"[%|a-zA-Z0-9_-]{1,127}", re.ASCII)
#: ``Validators.CHARACTER_MAX_LENGTH``: of a group, by clients. Brokers ask for no length; without
#: one anybody could have this server keep as much as he likes.
_MAX_NAME = 255
#: What names cannot hold that nobody has given here: they become directories, lines on a terminal,
#: and keys of consumerOffset.json, in which an @ parts topic and group.
_ODD = re.compile("[\0-\x1f/@\\\\\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_OF_GROUPS = (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)


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

    def topic(self, name: str, known: Container[str] = ()) -> str:
        """A topic, as of :func:`checked_topic`."""
        return checked_topic(name, self.text(name), known)

    def group(self, name: str, known: Container[str] = ()) -> str:
        """A group, as of :func:`checked_group`."""
        return checked_group(name, self.text(name), known)

    def find_topic(self, name: str, known: Container[str] = ()) -> str | None:
        """A topic that may be absent, or empty."""
        value = self.find(name)
        return checked_topic(name, value, known) if value else None

    def find_group(self, name: str, known: Container[str] = ()) -> str | None:
        """A group that may be absent, or empty."""
        value = self.find(name)
        return checked_group(name, value, known) if value else None

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

    def find_int32(self, name: str) -> int | None:
        """A number that may be absent; one that cannot be read counts as absent."""
        return self._readable(self.int32, name)

    def find_int64(self, name: str) -> int | None:
        """As :meth:`find_int32`."""
        return self._readable(self.int64, name)

    @staticmethod
    def _readable(read: Callable[[str], int], name: str) -> int | None:
        try:
            return read(name)
        except BadRequest:
            return None

    def boolean(self, name: str) -> bool:
        """``Boolean.parseBoolean``: anything but ``true`` is false."""
        return self._values.get(name, "").lower() == "true"

    def _whole(self, name: str, low: int, high: int) -> int:
        text = self.text(name)
        value = int(text) if _WHOLE.fullmatch(text) else None
        if value is None or not low <= value <= high:
            raise BadRequest(f"the field {name} is no whole number of Java: {text[:40]!r}")
        return value


def checked_topic_to_send(field: str, value: str) -> str:
    """A topic to which is sent, or that is to be made (``TopicValidator#validateTopic``).

    :raises BadRequest: it is none.
    """
    if _TOPIC_TO_SEND.fullmatch(value) is None:
        raise BadRequest(
            f"the {field} {value[:40]!r} is no name: letters, digits, %, |, - and _, at most 127"
        )
    return value


def checked_topic(field: str, value: str, known: Container[str] = ()) -> str:
    """A topic that is asked for, of which a broker checks nothing; the topic of a group is as much
    longer as that may be.

    :param known: the topics that are served, whatever their names.
    :raises BadRequest: it is none of these, and is too long, or has a character that could lead
        elsewhere.
    """
    prefix = next((one for one in _OF_GROUPS if value.startswith(one)), "")
    return _checked(field, value, known, _MAX_NAME + len(prefix))


def checked_group(field: str, value: str, known: Container[str] = ()) -> str:
    """A group, of which a broker checks nothing. :raises BadRequest: as of
    :func:`checked_topic`."""
    return _checked(field, value, known, _MAX_NAME)


def _checked(field: str, value: str, known: Container[str], most: int) -> str:
    if 0 < len(value) <= most and value not in (".", "..") and _ODD.search(value) is None:
        return value
    if value in known:
        return value
    raise BadRequest(
        f"the {field} {value[:40]!r} is no name: at most {most} characters, and no /, \\, @ nor "
        "control characters"
    )
