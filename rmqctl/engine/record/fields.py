"""A message as named values: what each value may be, and which are passed over.

Input lines have these fields, and so have the rows that commands print of messages: printed rows
can be put again. A row tells more of its body than the bytes: ``body_crc`` and ``body_length`` as
stored, ``status`` whether the body matched its CRC, and ``body_status`` what ``--decompress`` did.
A body that contradicts them is refused: a put computes a CRC of its own, so damaged bytes would
become a sound message.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Any

from isal.isal_zlib import crc32

from formats import constants
from rmqctl.engine.record.message import NOT_IN_PROPERTIES, Host, parse_host
from rmqctl.engine.record.status import BODY_CRC_MISMATCH, OK, UNCHECKED, BodyStatus

TRANSACTIONS = {
    "none": constants.TRANSACTION_NOT_TYPE,
    "prepared": constants.TRANSACTION_PREPARED_TYPE,
    "commit": constants.TRANSACTION_COMMIT_TYPE,
    "rollback": constants.TRANSACTION_ROLLBACK_TYPE,
}


_INT = (constants.INT_MIN, constants.INT_MAX)
_LONG = (constants.LONG_MIN, constants.LONG_MAX)
_CONTAINERS: dict[type, str] = {list: "an array", dict: "an object"}


class NotAMessage(ValueError):
    """The fields make no message; the text says why. ``ignored_by`` is the argument that would
    accept them all the same; empty without one."""

    def __init__(self, reason: str, ignored_by: str = "") -> None:
        super().__init__(reason)
        self.ignored_by = ignored_by


def text_of(name: str, value: Any) -> str:
    if type(value) is not str:
        raise NotAMessage(f"{name} must be a string, not {spelled(value)}")
    return value


def spelled(value: Any) -> str:
    """A value for an error message, always short."""
    if type(value) in _CONTAINERS:
        return _CONTAINERS[type(value)]
    text = repr(value[:60] if type(value) is str else value)
    return text if len(text) <= 60 else text[:57] + "..."


def _within(limits: tuple[int, int]) -> Callable[[str, Any], int]:
    low, high = limits

    def check(name: str, value: Any) -> int:
        # orjson makes floats of integers beyond 64 bits; True is an int to Python.
        if type(value) is not int:
            raise NotAMessage(f"{name} must be a whole number of 64 bits, not {spelled(value)}")
        if not low <= value <= high:
            raise NotAMessage(f"{name} {value} is not within {low} to {high}")
        return value

    return check


def _host(name: str, value: Any) -> Host:
    text = text_of(name, value)
    try:
        return parse_host(text)
    except ValueError as error:
        raise NotAMessage(f"{name}: {error}") from None


def check_property(name: str, value: Any) -> None:
    """:raises NotAMessage: the property could not be read back as it is."""
    if type(value) is not str:
        raise NotAMessage(f"property {spelled(name)} must be a string, not {spelled(value)}")
    if not name:
        raise NotAMessage("a property has an empty name")
    for mark in NOT_IN_PROPERTIES:
        if mark in name or mark in value:
            raise NotAMessage(
                f"property {spelled(name)} holds the character {mark!r}: 0x01 and 0x02 separate "
                "properties, and 0x00 counts as damage"
            )


def _properties(_: str, value: Any) -> dict[str, str]:
    if type(value) is not dict:
        raise NotAMessage(f"properties must be an object of strings, not {spelled(value)}")
    for name, text in value.items():
        check_property(name, text)
    return value


def _keys(name: str, value: Any) -> str:
    if type(value) is list:
        return constants.KEY_SEPARATOR.join(text_of(name, key) for key in value)
    return text_of(name, value)


def _one_of(*texts: str) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if text_of(name, value) not in texts:
            raise NotAMessage(f"{name} {spelled(value)} is none of {', '.join(texts)}")
        return str(value)

    return check


def _transaction(name: str, value: Any) -> int:
    kind = TRANSACTIONS.get(text_of(name, value))
    if kind is None:
        raise NotAMessage(f"{name} {spelled(value)} is none of {', '.join(TRANSACTIONS)}")
    return kind


#: How a body may be spelled.
ENCODINGS = ("utf8", "base64", "hex")
#: Every field of an input line, with its check: JSON value → value.
FIELDS: dict[str, Callable[[str, Any], Any]] = {
    "topic": text_of,
    "queue_id": _within((0, constants.INT_MAX)),
    "tags": text_of,
    "keys": _keys,
    "properties": _properties,
    "body": text_of,
    "body_encoding": _one_of(*ENCODINGS),
    "body_base64": text_of,
    "flag": _within(_INT),
    "sys_flag": _within(_INT),
    "delay_level": _within((0, constants.INT_MAX)),
    "transaction": _transaction,
    "born_timestamp": _within(_LONG),
    "born_host": _host,
    "store_host": _host,
    "reconsume_times": _within(_INT),
    "prepared_transaction_offset": _within(_LONG),
    "body_crc": _within(_INT),
    "body_length": _within(_INT),
    "status": _one_of(OK, UNCHECKED, BODY_CRC_MISMATCH),
    "body_status": _one_of(*(status.value for status in BodyStatus)),
}

#: Other fields of rows: they belong to the old store, or follow from the rest.
PASSED_OVER = frozenset(
    (
        *("type", "physical_offset", "total_size", "queue_offset", "store_timestamp"),
        *("tags_code", "msg_id", "body_compression", "body_reason", "damage"),
        *("born_time", "store_time", "store", "broker", "day", "found_by"),
    )
)
#: Types of the other rows that stand among rows of messages.
OTHER_TYPES = frozenset(("blank", "damage", "moved", "index_item", "summary"))
MESSAGE = "message"
DECOMPRESSED = "decompressed"
#: Bits of the sys flag that say whether and how a body is compressed (``MessageSysFlag``).
COMPRESSION = constants.COMPRESSED_FLAG | constants.COMPRESSION_TYPE_MASK


def is_other_row(given: dict[str, Any], *, ignore_unknown: bool = False) -> bool:
    """Whether the fields are a row of something else than a message.

    :raises NotAMessage: no row among messages has this type.
    """
    kind = given.get("type")
    if kind is None or text_of("type", kind) == MESSAGE:
        return False
    if kind not in OTHER_TYPES and not ignore_unknown:
        raise NotAMessage(
            f"a row of type {spelled(kind)} is no message (type {MESSAGE}, or none; passed over: "
            f"{', '.join(sorted(OTHER_TYPES))})",
            "ignore_unknown",
        )
    return True


def checked(given: dict[str, Any], *, ignore_unknown: bool = False) -> dict[str, Any]:
    """Checks each field of a message. Leaves out null ones and those that are passed over.

    :raises NotAMessage: a field is wrong or unknown.
    """
    values = {}
    for name, value in given.items():
        check = FIELDS.get(name)
        if check is not None:
            if value is not None:
                values[name] = check(name, value)
        elif name not in PASSED_OVER and not ignore_unknown:
            known = ", ".join(FIELDS)
            raise NotAMessage(f"unknown field {spelled(name)} (known: {known})", "ignore_unknown")
    return values


def body_of(fields: dict[str, Any], *, ignore_body_crc: bool = False) -> bytes:
    """The body in checked fields; empty without one.

    :raises NotAMessage: it contradicts the other fields.
    """
    name, encoding = "body", fields.get("body_encoding", "utf8")
    if "body_base64" in fields:
        if "body" in fields:
            raise NotAMessage("body and body_base64 exclude each other")
        name, encoding = "body_base64", "base64"
    problem = _lacks_body(fields)
    if problem:
        raise NotAMessage(problem)
    try:
        body = _body_bytes(fields.get(name, ""), encoding)
    except ValueError as error:
        raise NotAMessage(f"{name} is not {encoding}: {error}") from None
    problem = "" if ignore_body_crc else changed_body(fields, body)
    if problem:
        raise NotAMessage(problem, "ignore_body_crc")
    return body


def _body_bytes(text: str, encoding: str) -> bytes:
    if encoding == "base64":
        return b64decode(text, validate=True)
    return bytes.fromhex(text) if encoding == "hex" else text.encode("utf-8", "replace")


def plain_sys_flag(fields: dict[str, Any], sys_flag: int) -> int:
    """The sys flag for the body in checked fields: after ``--decompress`` it is not compressed any
    more."""
    return sys_flag & ~COMPRESSION if fields.get("body_status") == DECOMPRESSED else sys_flag


def _lacks_body(fields: dict[str, Any]) -> str:
    """Why the checked fields lack a body; empty when they do not."""
    if "body" in fields or "body_base64" in fields:
        return ""
    if fields.get("body_status", DECOMPRESSED) not in (DECOMPRESSED, "stored"):
        return (
            f"the body is missing, for it could not be decompressed ({fields['body_status']}): "
            "take rows without --decompress, with the body as it is stored"
        )
    if fields.get("body_length"):
        return (
            f"the body of {fields['body_length']} bytes is missing: print the rows with "
            "--body-as base64"
        )
    return ""


def changed_body(fields: dict[str, Any], body: bytes) -> str:
    """Why a body is not the stored one, by the checked fields; empty when nothing says so."""
    if fields.get("status") == BODY_CRC_MISMATCH:
        return "the body is not what was stored: its row has the status body-crc-mismatch"
    if fields.get("body_status") == DECOMPRESSED:
        return ""  # Length and CRC are those of the stored body.
    length = fields.get("body_length")
    if length is not None and length != len(body):
        return f"the body has {len(body)} bytes, and body_length says {length}"
    # The engine never checks the CRC of an empty body, so it may be any number.
    crc = crc32(body) & 0x7FFFFFFF
    if crc != fields.get("body_crc", crc) and (body or length is None):
        return f"the body is not what was stored: its CRC-32 is {crc}, not {fields['body_crc']}"
    return ""
