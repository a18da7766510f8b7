"""A record survives building and parsing, and one whose lengths lie is refused at once."""

import io
import struct
import time
import tracemalloc
from typing import Any

import pytest
from construct import ConstructError, Container, ValidationError
from hypothesis import given
from hypothesis import strategies as st

from formats import layouts
from formats.commitlog import BLANK, RECORD
from formats.constants import (
    BLANK_MAGIC_CODE,
    MAX_PROPERTIES_LENGTH,
    MAX_TOPIC_LENGTH,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    MIN_RECORD_SIZE,
)
from formats.consumequeue_ext import EXT_UNIT

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    magic_code = draw(st.sampled_from((MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2)))
    longest_topic = 300 if magic_code == MESSAGE_MAGIC_CODE_V2 else MAX_TOPIC_LENGTH
    sys_flag = draw(INT32)
    born_size = 16 if sys_flag & 16 else 4
    store_size = 16 if sys_flag & 32 else 4
    return {
        "magic_code": magic_code,
        "body_crc": draw(INT32),
        "queue_id": draw(INT32),
        "flag": draw(INT32),
        "queue_offset": draw(INT64),
        "physical_offset": draw(INT64),
        "sys_flag": sys_flag,
        "born_timestamp": draw(INT64),
        "born_address": draw(st.binary(min_size=born_size, max_size=born_size)),
        "born_port": draw(INT32),
        "store_timestamp": draw(INT64),
        "store_address": draw(st.binary(min_size=store_size, max_size=store_size)),
        "store_port": draw(INT32),
        "reconsume_times": draw(INT32),
        "prepared_transaction_offset": draw(INT64),
        "body": draw(st.binary(max_size=200)),
        "topic": draw(st.binary(max_size=longest_topic)),
        "properties": draw(st.binary(max_size=200)),
    }


def plain_record(**changes: Any) -> dict[str, Any]:
    values = {field.name: 0 for field in layouts.RECORD_PREFIX[0].fields}
    del values["total_size"], values["body_length"]
    hosts = {"born_address": bytes(4), "store_address": bytes(4)}
    content = {"body": b"body", "topic": b"topic", "properties": b"a\x01b"}
    return {**values, "magic_code": MESSAGE_MAGIC_CODE, **hosts, **content, **changes}


@given(records(), st.binary(max_size=20))
def test_build_parse_build_gives_the_same_record(values: dict[str, Any], behind: bytes) -> None:
    data = RECORD.build(values)
    parsed = RECORD.parse(data + behind)
    assert {name: parsed[name] for name in values} == values
    assert parsed.total_size == len(data)
    assert RECORD.build(parsed) == data


@given(records())
def test_the_prefix_layout_finds_the_fields_and_the_rest(values: dict[str, Any]) -> None:
    data = RECORD.build(values)
    layout = layouts.RECORD_PREFIX[values["sys_flag"] & 48]
    prefix = dict(
        zip((f.name for f in layout.fields), struct.unpack_from(layout.format, data), strict=True)
    )
    assert prefix["total_size"] == len(data)
    assert {name: value for name, value in prefix.items() if name in values} == {
        name: value for name, value in values.items() if name in prefix
    }
    assert data[layout.size : layout.size + prefix["body_length"]] == values["body"]
    assert data.endswith(struct.pack(">h", len(values["properties"])) + values["properties"])


def test_the_smallest_record() -> None:
    data = RECORD.build(plain_record(body=b"", topic=b"", properties=b""))
    assert len(data) == MIN_RECORD_SIZE
    assert RECORD.parse(data).body == b""


def test_the_magic_code_may_be_left_out() -> None:
    values = plain_record()
    del values["magic_code"]
    assert RECORD.build(values) == RECORD.build(plain_record())


def test_the_largest_topic_and_properties() -> None:
    topic, properties = b"t" * MAX_TOPIC_LENGTH, b"p" * MAX_PROPERTIES_LENGTH
    parsed = RECORD.parse(RECORD.build(plain_record(topic=topic, properties=properties)))
    assert (parsed.topic, parsed.properties) == (topic, properties)


def test_a_given_length_is_written_even_when_it_is_wrong() -> None:
    data = RECORD.build(plain_record(total_size=5, body_length=-1))
    prefix = struct.unpack_from(layouts.RECORD_PREFIX[0].format, data)
    assert (prefix[0], prefix[-1]) == (5, -1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"total_size": 2**31 - 1}, "total_size is 2147483647, expected 91 to 103"),
        ({"total_size": 90}, "total_size is 90, expected 91 to 103"),
        ({"total_size": -1}, "total_size is -1"),
        ({"total_size": 102}, "properties_length is 3, expected 0 to 2"),
        ({"body_length": 2**31 - 1}, "body_length is 2147483647, expected 0 to 12"),
        ({"body_length": -1}, "body_length is -1"),
        ({"topic_length": 127}, "topic_length is 127, expected 0 to 8"),
        ({"topic_length": -1}, "topic_length is -1"),
        ({"properties_length": 32767}, "properties_length is 32767, expected 0 to 3"),
        ({"properties_length": -1}, "properties_length is -1"),
        ({"properties_length": 2}, "total_size is 103, expected 102"),
        ({"magic_code": BLANK_MAGIC_CODE}, "magic_code is 0xcbd43194, expected 0xdaa320a7"),
        ({"magic_code": 0}, "magic_code is 0x0, expected 0xdaa320a7"),
    ],
)
def test_a_length_that_cannot_be_is_refused(changes: dict[str, int], message: str) -> None:
    data = RECORD.build(plain_record(**changes))
    with pytest.raises(ValidationError, match=message):
        RECORD.parse(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"total_size": 2**31 - 1},
        {"body_length": 2**31 - 1},
        {"total_size": 2**31 - 1, "body_length": 2**31 - 200},
    ],
)
def test_a_claim_of_two_gigabytes_is_refused_quickly_and_allocates_nothing(
    changes: dict[str, int], tmp_path: Any
) -> None:
    file = tmp_path / "record"
    file.write_bytes(RECORD.build(plain_record(**changes)))
    tracemalloc.start()
    started = time.process_time()
    # From a file, where a read of two gigabytes would allocate them before finding out.
    with file.open("rb") as stream, pytest.raises(ValidationError):
        RECORD.parse_stream(stream)
    seconds = time.process_time() - started
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 60
    assert peak < 1 << 20


@given(st.binary(max_size=300))
def test_any_bytes_parse_or_raise_a_construct_error(data: bytes) -> None:
    for schema in (RECORD, EXT_UNIT, BLANK):
        try:
            parsed = schema.parse(data)
        except ConstructError:
            continue
        assert data.startswith(schema.build(parsed))


@given(records(), st.data())
def test_a_damaged_record_parses_consistently_or_raises(values: dict[str, Any], data: Any) -> None:
    raw = bytearray(RECORD.build(values))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        parsed = RECORD.parse(bytes(raw))
    except ConstructError:
        return
    assert parsed.total_size == len(raw)
    assert RECORD.build(parsed) == raw


@given(INT64, INT64, st.binary(max_size=100))
def test_extension_unit_round_trip(tags_code: int, msg_store_time: int, bit_map: bytes) -> None:
    values = Container(tags_code=tags_code, msg_store_time=msg_store_time, bit_map=bit_map)
    data = EXT_UNIT.build(values)
    parsed = EXT_UNIT.parse(data)
    assert (parsed.size, parsed.bit_map_size) == (len(data), len(bit_map))
    assert {name: parsed[name] for name in values} == values
    assert EXT_UNIT.build(parsed) == data


@pytest.mark.parametrize("changes", [{"size": -1}, {"size": 21}, {"bit_map_size": -1}])
def test_an_extension_unit_whose_sizes_disagree_is_refused(changes: dict[str, int]) -> None:
    values = {"tags_code": 0, "msg_store_time": 0, "bit_map": b"", **changes}
    with pytest.raises(ValidationError):
        EXT_UNIT.parse(EXT_UNIT.build(values))


@given(st.binary(max_size=20), records())
def test_a_record_is_found_at_any_place_of_a_stream(before: bytes, values: dict[str, Any]) -> None:
    data = RECORD.build(values)
    stream = io.BytesIO(before + data)
    stream.seek(len(before))
    assert RECORD.parse_stream(stream).total_size == len(data)
