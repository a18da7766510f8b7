"""Java's string rules: known values, models of the Java code, and what a JVM has answered."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from formats.constants import LONG_MAX, LONG_MIN
from formats.properties import PROPERTIES
from formats.text import (
    decode_properties,
    decode_utf8,
    encode_properties,
    encode_utf8,
    hash_map_order,
    index_key_hash,
    java_long,
    java_long_value,
    java_split,
    join_properties,
    split_properties,
    string_hash_code,
    tags_code,
)

PROPERTY_LIKE = st.lists(
    st.sampled_from([b"\x01", b"\x02", b"a", b"KEYS", b" ", "中".encode(), b"\xe4", b"\xff"]),
    max_size=20,
).map(b"".join)
NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("é", 233),
        ("中文", 646394),
        ("😀", 1772899),
        ("polygenelubricants", -(2**31)),
        ("TagA", 2598919),
        ("\ud83d", 0xD83D),
    ],
)
def test_string_hash_code(text: str, code: int) -> None:
    assert string_hash_code(text) == tags_code(text) == code


@given(st.text(st.characters(exclude_categories=[])))
def test_string_hash_code_follows_the_definition(text: str) -> None:
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for place in range(0, len(units), 2):
        code = code * 31 + int.from_bytes(units[place : place + 2])
    assert string_hash_code(text) == (code + 2**31) % 2**32 - 2**31


def test_index_key_hash_drops_the_sign() -> None:
    assert index_key_hash("TopicA", "k1") == 1903240649
    assert string_hash_code("t#poly") == -index_key_hash("t", "poly") == -938215813


@given(st.text(), st.text())
def test_index_key_hash_is_the_absolute_hash(topic: str, key: str) -> None:
    code = string_hash_code(f"{topic}#{key}")
    assert index_key_hash(topic, key) == (0 if code == -(2**31) else abs(code))


def test_index_key_hash_of_the_one_value_without_an_absolute_is_0() -> None:
    assert string_hash_code("t#qolyi7H") == -(2**31)
    assert index_key_hash("t", "qolyi7H") == 0


# The orders below are what java.util.HashMap of OpenJDK 17 answered.


def test_hash_map_order_of_a_few_names() -> None:
    names = ["UNIQ_KEY", "WAIT", "TAGS", "KEYS"]
    assert hash_map_order(names) == ["KEYS", "UNIQ_KEY", "WAIT", "TAGS"]


def test_hash_map_order_after_the_table_has_grown() -> None:
    put = """
        KEYS TAGS UNIQ_KEY DELAY WAIT REAL_TOPIC REAL_QID TRAN_MSG PGROUP INNER_MULTI_DISPATCH
        INNER_MULTI_QUEUE_OFFSET MIN_OFFSET MAX_OFFSET CLUSTER trace
    """
    read = """
        TRAN_MSG INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET MIN_OFFSET REAL_TOPIC trace
        MAX_OFFSET KEYS UNIQ_KEY CLUSTER DELAY WAIT PGROUP TAGS REAL_QID
    """
    assert hash_map_order(put.split()) == read.split()


def test_hash_map_order_after_a_crowded_bucket_has_grown_the_table() -> None:
    names = [*map(chr, range(48, 193, 16)), "z"]
    expected = [64, 96, 128, 160, 192, 48, 80, 112, 144, 176, 122]
    assert hash_map_order(names) == [chr(code) for code in expected]


def test_hash_map_order_keeps_the_order_of_names_that_collide() -> None:
    assert hash_map_order(["Aa", "BB"]) == ["Aa", "BB"]
    assert hash_map_order(["BB", "Aa", "BB"]) == ["BB", "Aa"]


@given(st.lists(st.text(max_size=4), unique=True, max_size=60))
def test_hash_map_order_is_that_of_a_table_built_step_by_step(names: list[str]) -> None:
    assert hash_map_order(names) == model_hash_map(names)


def model_hash_map(names: list[str]) -> list[str]:
    """Put names into real buckets, as HashMap#putVal and HashMap#resize do, and read them out."""
    table: list[list[str]] = [[] for _ in range(16)]

    def place(name: str) -> list[str]:
        code = string_hash_code(name) % 2**32
        return table[(code ^ code >> 16) % len(table)]

    for count, name in enumerate(names, 1):
        bucket = place(name)
        bucket.append(name)
        crowded = len(bucket) > 8 and len(table) < 64
        for grow in (crowded, count > (len(table) * 2 if crowded else len(table)) * 0.75):
            if grow:
                stored = [each for bucket in table for each in bucket]
                table = [[] for _ in range(2 * len(table))]
                for each in stored:
                    place(each).append(each)
    return [name for bucket in table for name in bucket]


# ---- UTF-8


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        ("中😀".encode(), "中😀"),
        (b"\xff", "\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xed\x9f\xbf", "\ud7ff"),
        (b"\xe4\xb8", "\ufffd"),
        (b"\xf5\x80\x80\x80", "\ufffd" * 4),
        (b"\x9f\x80\x80", "\ufffd" * 3),
        (b"\xf0\x41\xf8", "\ufffdA\ufffd"),
    ],
)
def test_decode_utf8_replaces_as_java_does(data: bytes, text: str) -> None:
    assert decode_utf8(data) == text


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("中😀", "中😀".encode()),
        ("a\ud83db", b"a?b"),
        ("\ud83d\ude00", "😀".encode()),
        ("\ude00\ud83d", b"??"),
    ],
)
def test_encode_utf8_replaces_as_java_does(text: str, data: bytes) -> None:
    assert encode_utf8(text) == data


# ---- properties


@given(PROPERTY_LIKE)
@example(b"\x02")
@example(b"\x01\x02")
@example(b"a\x01b\x02")
def test_split_and_join_and_the_schema_keep_every_byte(data: bytes) -> None:
    assert join_properties(split_properties(data)) == data
    entries = PROPERTIES.parse(data)
    assert [(entry.name, entry.value) for entry in entries] == split_properties(data)
    assert PROPERTIES.build(entries) == data


def test_split_properties_tells_apart_what_is_stored() -> None:
    assert split_properties(b"") == []
    assert split_properties(b"a\x01b") == [(b"a", b"b")]
    assert split_properties(b"a\x01b\x02") == [(b"a", b"b"), (b"", None)]
    assert split_properties(b"a\x02b\x01\x02c\x01d\x01e") == [
        (b"a", None),
        (b"b", b""),
        (b"c", b"d\x01e"),
    ]


@pytest.mark.parametrize(
    ("data", "properties"),
    [
        (b"", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01\x02c\x01d", {"c": "d"}),
        (b"\x01b\x02c\x01d", {"c": "d"}),
        (b"abc\x02c\x01d", {"c": "d"}),
        (b"a\x01b\x01c", {"a": "b\x01c"}),
        (b"a\x01b\x02a\x01c", {"a": "c"}),
        (b"a\x01\xff", {"a": "\ufffd"}),
    ],
)
def test_decode_properties(data: bytes, properties: dict[str, str]) -> None:
    assert decode_properties(data) == properties


@given(PROPERTY_LIKE)
def test_decode_properties_is_string_to_message_properties(data: bytes) -> None:
    assert decode_properties(data) == model_decode(decode_utf8(data))


def model_decode(text: str) -> dict[str, str]:
    """Scan by index, as MessageDecoder#string2messageProperties does."""
    properties = {}
    start = 0
    while start < len(text):
        end = text.find("\x02", start)
        end = len(text) if end < 0 else end
        separator = text.find("\x01", start)
        if end - start >= 3 and start < separator < end - 1:
            properties[text[start:separator]] = text[separator + 1 : end]
        start = end + 1
    return properties


@given(st.dictionaries(NAMES, NAMES, max_size=20))
def test_encoded_properties_decode_to_the_same(properties: dict[str, str]) -> None:
    data = encode_properties(properties)
    assert decode_properties(data) == properties
    assert not data.endswith(b"\x02")
    assert list(decode_properties(data)) == hash_map_order(properties)


def test_encode_properties_writes_the_empty_and_skips_none() -> None:
    assert encode_properties({}) == b""
    assert encode_properties({"a": None}) == b""
    assert encode_properties({"a": "", "b": None, "c": "d"}) == b"a\x01\x02c\x01d"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("00000000000000001024", 1024),
        ("+5", 5),
        ("-5", -5),
        ("\uff15", 5),
        ("0" * 30 + "7", 7),
        (str(LONG_MAX), LONG_MAX),
        (str(LONG_MIN), LONG_MIN),
        (str(LONG_MAX + 1), None),
        (str(LONG_MIN - 1), None),
        *((text, None) for text in ("", "-", "12x", " 1", "1 ", "1_0", "9" * 5000)),
    ],
)
def test_java_long_is_parse_long(text: str, number: int | None) -> None:
    assert java_long(text) == number


def test_a_long_wraps() -> None:
    assert java_long_value(LONG_MAX + 1) == LONG_MIN
    assert java_long_value(LONG_MAX) == LONG_MAX
    assert java_long_value(LONG_MIN * 3) == LONG_MIN


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", [""]),
        (",", []),
        (",,", []),
        ("a", ["a"]),
        ("a,,", ["a"]),
        (",a", ["", "a"]),
        ("a,,b,", ["a", "", "b"]),
    ],
)
def test_java_split_is_split(text: str, parts: list[str]) -> None:
    assert java_split(text, ",") == parts
