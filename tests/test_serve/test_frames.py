"""Frames: what is written is read back, RocketMQ's own bytes are understood, and nothing that a
peer sends is more than a closed connection."""

from __future__ import annotations

import json
import struct
import tracemalloc

import pytest
from construct import Struct
from hypothesis import given
from hypothesis import strategies as st

from formats import remoting
from formats.remotingcodes import FRAME_MAX_LENGTH, LANGUAGES, SerializeType
from rmqctl.serve.wire import bodies, javajson
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.frames import MAX_HEADER_LENGTH, FrameReader, encode_frame
from rmqctl.serve.wire.header import MAX_EXT_FIELDS, FrameError

INT = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def commands(draw: st.DrawFn) -> RemotingCommand:
    kind = draw(st.sampled_from(SerializeType))
    binary = kind is SerializeType.ROCKETMQ
    return RemotingCommand(
        code=draw(st.integers(-(2**15), 2**15 - 1) if binary else INT),
        opaque=draw(INT),
        flag=draw(INT),
        language=draw(st.sampled_from(LANGUAGES)),
        version=draw(st.integers(0, 2**15 - 1)),
        remark=draw(st.none() | (TEXT.filter(bool) if binary else TEXT)),
        ext_fields=draw(st.dictionaries(TEXT, TEXT, max_size=5)),
        body=draw(st.binary(max_size=40)),
        serialize_type=kind,
    )


@given(st.lists(commands(), max_size=4), st.integers(1, 50))
def test_what_is_written_is_read_back_however_it_is_cut(
    sent: list[RemotingCommand], size: int
) -> None:
    data = b"".join(map(encode_frame, sent))
    reader = FrameReader()
    got = [c for at in range(0, len(data), size) for c in reader.feed(data[at : at + size])]
    assert got == sent
    assert reader.pending == 0


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    length = 4 + len(header) + len(body)
    return struct.pack(">iI", length, kind << 24 | len(header)) + header + body


def test_a_header_of_java_is_understood() -> None:
    """Keys in fastjson's order, as a consumer of 4.9.3 asks for a route."""
    header = (
        b'{"code":105,"extFields":{"topic":"orders"},"flag":0,"language":"JAVA","opaque":-7,'
        b'"serializeTypeCurrentRPC":"JSON","version":399}'
    )
    (command,) = FrameReader().feed(frame(header, b"{}"))
    assert (command.code, command.opaque, command.version) == (105, -7, 399)
    assert command.ext_fields == {"topic": "orders"}
    assert command.body == b"{}"
    assert not command.is_response and not command.is_oneway
    again = json.loads(encode_frame(command)[8:-2])
    assert again == json.loads(header)
    assert list(again) == list(json.loads(header))


def test_a_binary_header_is_its_schema() -> None:
    command = RemotingCommand(
        11, 5, 2, "GO", 317, "why", {"topic": "a"}, b"x", SerializeType.ROCKETMQ
    )
    data = encode_frame(command)
    parsed = Struct("frame" / remoting.FRAME_PREFIX, "header" / remoting.BINARY_HEADER).parse(data)
    assert parsed.frame.length == len(data) - 4
    assert parsed.frame.header_word == 1 << 24 | len(data) - 8 - 1
    header = parsed.header
    assert (header.code, header.language, header.version) == (11, 9, 317)
    assert (header.opaque, header.flag, header.remark_length) == (5, 2, 3)
    assert data[25:] == b"why" + b"\0\0\0\x0c" + b"\0\5topic" + b"\0\0\0\1a" + b"x"


def test_fields_are_strings_whatever_a_client_writes() -> None:
    header = b'{"code":"14","extFields":{"a":7,"b":true,"c":null,"d":"x"},"language":"KLINGON"}'
    (command,) = FrameReader().feed(frame(header))
    assert command.code == 14
    assert command.ext_fields == {"a": "7", "b": "true", "d": "x"}
    assert command.language == ""


BINARY = struct.pack(">hBhiii", 11, 0, 399, 1, 0, 0)
BAD = {
    "length-0": bytes(8),
    "length-negative": b"\xff" * 8,
    "length-beyond-the-limit": struct.pack(">iI", FRAME_MAX_LENGTH - 3, 0),
    "header-longer-than-its-frame": struct.pack(">iI", 10, 7) + bytes(6),
    "header-beyond-its-limit": struct.pack(">iI", FRAME_MAX_LENGTH - 4, MAX_HEADER_LENGTH + 1),
    "header-type": frame(b"{}", kind=2),
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "empty": frame(b""),
    "no-json": frame(b"{code:1}"),
    "null": frame(b"null"),
    "an-array": frame(b"[1]"),
    "an-empty-object": frame(b"{}"),
    "code-no-int": frame(b'{"code":1.5}'),
    "code-beyond-int": frame(b'{"code":2147483648}'),
    "code-a-word": frame(b'{"code":"--1"}'),
    "code-odd-digits": frame('{"code":"١٢"}'.encode()),
    "fields-an-array": frame(b'{"code":1,"extFields":[1]}'),
    "a-field-an-object": frame(b'{"code":1,"extFields":{"a":{}}}'),
    "many-fields": frame(json.dumps({"extFields": dict.fromkeys(map(str, range(99)))}).encode()),
    "deep": frame(b'{"a":' * 50_000),
    "neither-utf-8-nor-json": frame(b'{"code":1,"remark":"\xff}'),
    "binary-short": frame(BINARY, kind=1),
    "binary-remark": frame(BINARY[:-4] + struct.pack(">ii", 2**31 - 1, 0), kind=1),
    "binary-remark-takes-all": frame(BINARY[:-4] + struct.pack(">i", 4) + bytes(4), kind=1),
    "binary-fields": frame(BINARY + struct.pack(">i", 5) + bytes(4), kind=1),
    "binary-key": frame(BINARY + struct.pack(">ih", 2, -1), kind=1),
    "binary-value": frame(BINARY + struct.pack(">ihi", 6, 0, 7), kind=1),
    "binary-value-cut": frame(BINARY + struct.pack(">ihH", 4, 0, 0), kind=1),
    "binary-many-fields": frame(BINARY + struct.pack(">i", 6 * 65) + bytes(6 * 65), kind=1),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_frame_is_refused_and_so_is_all_after_it(name: str) -> None:
    reader = FrameReader()
    with pytest.raises(FrameError):
        list(reader.feed(BAD[name]))
    assert reader.pending == 0
    with pytest.raises(FrameError):
        list(reader.feed(frame(b'{"code":1}')))


def test_who_speaks_tls_is_known_by_it() -> None:
    with pytest.raises(FrameError, match="TLS"):
        list(FrameReader().feed(BAD["tls"]))


def test_as_many_fields_as_may_be_are_read() -> None:
    fields = {str(number): "x" for number in range(MAX_EXT_FIELDS)}
    for kind in SerializeType:
        sent = RemotingCommand(1, ext_fields=fields, serialize_type=kind)
        assert list(FrameReader().feed(encode_frame(sent))) == [sent]


def fed(data: bytes) -> None:
    """Feeds bytes; nothing but commands and the protocol's own error may come of them."""
    reader = FrameReader()
    try:
        list(reader.feed(data))
    except FrameError:
        assert reader.pending == 0
    assert reader.pending <= len(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_commands_or_no_frame(data: bytes) -> None:
    fed(data)


@given(st.binary(max_size=120), st.binary(max_size=20), st.sampled_from(SerializeType))
def test_any_header_is_a_command_or_no_frame(header: bytes, body: bytes, kind: int) -> None:
    fed(frame(header, body, kind))


@given(commands(), st.data())
def test_a_frame_with_changed_bytes_is_a_command_or_no_frame(
    command: RemotingCommand, data: st.DataObject
) -> None:
    changed = bytearray(encode_frame(command))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    fed(bytes(changed))


def test_what_a_length_claims_is_not_allocated() -> None:
    claims = struct.pack(">iI", FRAME_MAX_LENGTH - 4, 100)
    tracemalloc.start()
    try:
        readers = [FrameReader() for _ in range(100)]
        for reader in readers:
            assert list(reader.feed(claims)) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(reader.pending for reader in readers) == 800
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (b"\xd6\xd0", "\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),
        (rb"\ud800", "?"),
        (rb"\uDC00\uD83D", "??"),
        (rb"\ud83d\ude00 \udC00", "\U0001f600 ?"),
        (rb"\\ud800 \ud800", "\\ud800 ?"),
        (b"\xff" + rb"\ud800\n\u00e9", "\ufffd?\n\u00e9"),
    ],
)
def test_what_is_no_text_in_json_is_read_as_java_reads_it(text: bytes, read: str) -> None:
    """``new String(data, UTF_8)``, and half a pair of surrogates as Java writes it."""
    sent = frame(b'{"code":10,"remark":"' + text + b'","extFields":{"i":"' + text + b'"}}')
    (command,) = FrameReader().feed(sent)
    assert (command.remark, command.ext_fields) == (read, {"i": read})
    assert bodies.decode_body(b'{"clientID":"' + text + b'"}') == {"clientID": read}


PARTS = ["\\", "\\\\", r"\ud83d", r"\ude00", r"\uD800", "ud800", r"\n", "a", "é", r"\ud8"]


@given(st.lists(st.sampled_from(PARTS), max_size=7).map("".join))
def test_halves_of_pairs_are_found_as_a_lenient_reader_finds_them(text: str) -> None:
    """Behind any number of backslashes, each with its own fellow."""
    data = f'"{text}"'.encode()
    try:
        read = "".join("?" if "\ud800" <= one <= "\udfff" else one for one in json.loads(data))
    except ValueError:
        with pytest.raises(ValueError):
            javajson.loads(data)
    else:
        assert javajson.loads(data) == read


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    for kind in SerializeType:
        command = RemotingCommand(
            17, remark="\ud800", ext_fields={"a": "\ud800"}, serialize_type=kind
        )
        (read,) = FrameReader().feed(encode_frame(command))
        assert (read.remark, read.ext_fields) == ("?", {"a": "?"})
