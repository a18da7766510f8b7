"""Both forms of a header: JSON (``RemotingSerializable``) and binary (``RocketMQSerializable``).

What is read was written by anybody: every length is held against what is there before it is used,
and whatever is not a header is a :class:`FrameError`, never another exception.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, NoReturn

import orjson

from formats import layouts
from formats.constants import INT_MAX, INT_MIN
from formats.remotingcodes import LANGUAGES, SerializeType
from rmqctl.serve.wire import javajson
from rmqctl.serve.wire.command import RemotingCommand

FIXED = Struct(layouts.REMOTING_HEADER.format)
_KEY_LENGTH = Struct(">h")
_LENGTH = Struct(">i")
_SHORT = range(-(1 << 15), 1 << 15)
#: No request of RocketMQ has a third of it; without a bound a header of a megabyte would make a
#: hundred times as much of objects.
MAX_EXT_FIELDS = 64
#: Characters of a field's name, in both forms: what goes on to others has to fit into the binary
#: one.
_LONGEST_NAME = 1024


_TEXTS = frozenset((str,))


class FrameError(Exception):
    """The bytes are no frame: the connection is closed without an answer, as a broker does
    (``NettyDecoder#decode``). The text says why."""


def decode_header(kind: int, data: bytes, body: bytes) -> RemotingCommand:
    """A command of its header's bytes. :raises FrameError: they are none."""
    if kind == SerializeType.JSON:
        return _decode_json(data, body)
    if kind == SerializeType.ROCKETMQ:
        return _decode_binary(data, body)
    raise FrameError(f"there is no header of type {kind}")


def encode_header(command: RemotingCommand) -> bytes:
    """The header of a command in the form that it says."""
    if command.serialize_type is SerializeType.ROCKETMQ:
        return _encode_binary(command)
    return _encode_json(command)


# --- JSON ------------------------------------------------------------------------------------


def _decode_json(data: bytes, body: bytes) -> RemotingCommand:
    try:
        value = javajson.loads(data)
    except orjson.JSONDecodeError as error:
        raise FrameError(f"the header is no JSON: {error.msg}") from None
    if not isinstance(value, dict) or not value:
        raise FrameError("the header is no JSON object with something in it")
    find = value.get
    language, remark = find("language"), find("remark")
    # By place: each frame comes here, and names cost as much again.
    return RemotingCommand(
        _whole(find("code"), "code"),
        _whole(find("opaque"), "opaque"),
        _whole(find("flag"), "flag"),
        language if language in LANGUAGES else "",
        _whole(find("version"), "version"),
        remark if isinstance(remark, str) else None,
        _ext_fields(find("extFields"), len(data)),
        body,
        SerializeType.JSON,
    )


def _whole(found: object, name: str) -> int:
    """A Java int of the header, 0 where it is not there; fastjson takes digits in quotes, too."""
    if type(found) is int and INT_MIN <= found <= INT_MAX:
        return found
    if found is None:
        return 0
    if isinstance(found, str) and len(found) < 12 and found.lstrip("-").isdecimal():
        found = int(found) if found.isascii() and found.count("-") < 2 else None
    if type(found) is not int or not INT_MIN <= found <= INT_MAX:
        raise FrameError(f"{name} of the header is no int")
    return found


def _ext_fields(value: object, length: int) -> dict[str, str]:
    """The fields as strings; fastjson makes them of numbers and booleans, and drops nulls.

    :param length: bytes of the header, more than any name in it has.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FrameError("extFields of the header is no object")
    if len(value) > MAX_EXT_FIELDS:
        _too_many()
    if _TEXTS.issuperset(map(type, value.values())):
        # As every client writes them.
        if length > _LONGEST_NAME:
            _check_name(max(value, key=len, default=""))
        return value
    fields = {}
    for name, item in value.items():
        _check_name(name)
        if isinstance(item, str):
            fields[name] = item
        elif isinstance(item, bool | int | float):
            fields[name] = str(item).lower()
        elif item is not None:
            raise FrameError(f"field {name[:40]!r} of the header is no string")
    return fields


def _check_name(name: str) -> None:
    if len(name) > _LONGEST_NAME:
        raise FrameError(f"a field of the header has a name of {len(name)} characters")


def _too_many() -> NoReturn:
    raise FrameError(f"the header has more than {MAX_EXT_FIELDS} fields")


def _encode_json(command: RemotingCommand) -> bytes:
    code, opaque, flag, language, version, remark, fields, _, _ = command
    value: dict[str, Any] = {"code": code}
    if fields:
        value["extFields"] = fields if type(fields) is dict else dict(fields)
    value["flag"], value["language"], value["opaque"] = int(flag), language, opaque
    if remark is not None:
        value["remark"] = remark
    value["serializeTypeCurrentRPC"], value["version"] = "JSON", version
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # A lone surrogate, of a name in a file of config/: UTF-8 has no bytes for it.
        value["remark"] = _in_utf8(command.remark)
        value["extFields"] = {_in_utf8(k): _in_utf8(v) for k, v in command.ext_fields.items()}
        return orjson.dumps(value)


def _in_utf8(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "replace").decode()


# --- binary ----------------------------------------------------------------------------------


def _decode_binary(data: bytes, body: bytes) -> RemotingCommand:
    if len(data) < FIXED.size + _LENGTH.size:
        raise FrameError(f"a binary header has {len(data)} bytes")
    code, language, version, opaque, flag, remark_length = FIXED.unpack_from(data)
    at, remark = FIXED.size, None
    if remark_length > 0:
        remark = _text(data, at, remark_length)
        at += remark_length
    if at + _LENGTH.size > len(data):
        raise FrameError("a binary header ends in its remark")
    (fields_length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if fields_length > len(data) - at:
        raise FrameError(f"a binary header has fields of {fields_length} bytes beyond its end")
    fields = dict(_binary_fields(data, at, at + fields_length)) if fields_length > 0 else {}
    return RemotingCommand(
        code=code,
        opaque=opaque,
        flag=flag,
        language=LANGUAGES[language] if language < len(LANGUAGES) else "",
        version=version,
        remark=remark,
        ext_fields=fields,
        body=body,
        serialize_type=SerializeType.ROCKETMQ,
    )


def _binary_fields(data: bytes, at: int, end: int) -> Iterator[tuple[str, str]]:
    for _ in range(MAX_EXT_FIELDS):
        if at == end:
            return
        pair = []
        for length in (_KEY_LENGTH, _LENGTH):
            if at + length.size > end:
                raise FrameError("a field of a binary header is cut off")
            (size,) = length.unpack_from(data, at)
            at += length.size
            if not 0 <= size <= end - at:
                raise FrameError(f"a field of a binary header has {size} bytes")
            pair.append(_text(data, at, size))
            at += size
        _check_name(pair[0])
        yield pair[0], pair[1]
    if at != end:
        _too_many()


def _text(data: bytes, at: int, length: int) -> str:
    if not 0 <= length <= len(data) - at:
        raise FrameError(f"a text of {length} bytes goes beyond a binary header")
    # As new String(bytes, UTF_8) reads it.
    return data[at : at + length].decode("utf-8", "replace")


def _encode_binary(command: RemotingCommand) -> bytes:
    remark = (command.remark or "").encode("utf-8", "replace")
    pieces = []
    for name, value in command.ext_fields.items():
        for length, text in ((_KEY_LENGTH, name), (_LENGTH, value)):
            data = text.encode("utf-8", "replace")
            pieces += [length.pack(len(data)), data]
    fields = b"".join(pieces)
    language = LANGUAGES.index(command.language) if command.language in LANGUAGES else 0
    # Java cuts a code to 16 bits, too (RocketMQSerializable#rocketMQProtocolEncode).
    code = (command.code - _SHORT.start) % len(_SHORT) + _SHORT.start
    fixed = FIXED.pack(code, language, command.version, command.opaque, command.flag, len(remark))
    return fixed + remark + _LENGTH.pack(len(fields)) + fields
