"""``config/*.json``: the dialect that a broker writes, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.engine.state import brokerjson, fastjson
from rmqctl.errors import ConfigFileUnreadable

#: What fastjson 1.2.76 writes for a map with every kind of value, ``JSON.toJSONString(map, true)``.
FASTJSON = (
    '{\n\t"s":"\\u0000\\b\\t\\n\\u000B\\f\\r\\u001F \\"/\\\\~\\u007F\\u009F\u00a0\\u2028\\u2029😀",'
    '\n\t"ia":[1,2,3],\n\t"e":[],\n\t"strs":[\n\t\t"a",\n\t\t"b"\n\t],\n\t"im":{1:2,-3:4\n\t},'
    '\n\t"em":{},\n\t"d":1.5,\n\t"b":true,\n\t"mm":{1:{2:3\n\t\t}\n\t}\n}'
)
KEYS = st.text() | st.integers(-(2**31), 2**63)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


def test_a_brokers_files_come_back_byte_for_byte(golden: Any) -> None:
    files = sorted((golden("broker") / "config").iterdir())
    assert len(files) == 9
    for path in files:
        text = brokerjson.read_text(path)
        assert fastjson.dumps(fastjson.parse(text)) == text, path.name


def test_fastjsons_own_spelling_of_everything() -> None:
    value = fastjson.parse(FASTJSON)
    assert value["s"] == '\0\b\t\n\x0b\f\r\x1f "/\\~\x7f\x9f\xa0\u2028\u2029😀'
    assert value["im"] == {1: 2, -3: 4} and value["mm"] == {1: {2: 3}}
    assert fastjson.dumps(value) == FASTJSON


@given(VALUES)
def test_what_is_written_is_read(value: Any) -> None:
    assert fastjson.parse(fastjson.dumps(value)) == value


@given(VALUES)
def test_plain_json_is_read_as_json(value: Any) -> None:
    text = json.dumps(value, indent=1)
    assert fastjson.parse(text, duplicates=[]) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("", 1, 1),
        ('{"a":{0:5,}}', 1, 11),
        ('{\n  "a": 1,\n  b: 2}', 3, 3),
        ("{'a':1}", 1, 2),
        ('{"a":1}x', 1, 8),
        ('{"a":01}', 1, 7),
        ('/* */{"a":1}', 1, 1),
        ('{"a":+1}', 1, 6),
        ('{"a":NaN}', 1, 6),
        ('{"a":"\t"}', 1, 6),
        ('{"a":"\\x"}', 1, 7),
        ('{"a"', 1, 5),
        ('{"a":1,"a":2}', 1, 8),
        ("{1:2,1:3}", 1, 6),
        ("[" * 1000, 1, 65),
        ("1" * 5000, 1, 1),
        ('{"a":1e400}', 1, 6),
        ('{"a":' + "9" * 5000 + "}", 1, 6),
        ('\ufeff{"a":1}', 1, 1),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_anything_else_is_refused_with_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(ConfigFileUnreadable) as caught:
        fastjson.parse(text, path="topics.json")
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith(f"topics.json, line {line}, column {column}: ")


@given(st.text(alphabet='{}[]":,0123456789-+.eE \n\\untrlf\0é', max_size=60))
def test_bad_text_raises_only_our_error(text: str) -> None:
    try:
        fastjson.parse(text)
    except ConfigFileUnreadable as error:
        assert 1 <= error.line <= text.count("\n") + 1  # type: ignore[operator]


_NUMBER = st.sampled_from(["0", "-0", "7", "-7", "07", "1" * 39, "1" * 40, "-" + "1" * 39, "1.0"])


@given(
    st.lists(st.tuples(_NUMBER, _NUMBER), min_size=1, max_size=4),
    st.sampled_from(["", "\n\t", " ,"]),
)
def test_tables_of_numbers_are_read_at_once_as_piece_by_piece(
    pairs: list[tuple[str, str]], end: str
) -> None:
    """With a blank in front of the first key they are read one after the other."""
    inside = ",".join(f"{key}:{value}" for key, value in pairs) + end + "}"
    told = []
    for text in ("{" + inside, "{ " + inside):
        duplicates: list[fastjson.DuplicateKey] = []
        try:
            value = fastjson.parse(text, duplicates=duplicates)
        except ConfigFileUnreadable as error:
            value = str(error.reason)
        told.append((value, [one.key for one in duplicates]))
    assert told[0] == told[1]


def test_duplicates_are_told_and_the_last_one_counts() -> None:
    twice: list[fastjson.DuplicateKey] = []
    assert fastjson.parse('{"a":1,\n"a":2}', duplicates=twice) == {"a": 2}
    assert twice == [("a", 2, 1)]


def test_reading_as_a_broker_loads(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    main, backup = config / "topics.json", config / "topics.json.bak"
    assert brokerjson.read_config(tmp_path, "topics.json") is None
    backup.write_text('{"a":1}')
    assert brokerjson.read_config(tmp_path, "topics.json") == {"a": 1}
    for broken in ("", "{", '{"b":'):
        main.write_text(broken)
        assert brokerjson.read_config(tmp_path, "topics.json") == {"a": 1}
    backup.write_text("{")
    with pytest.raises(ConfigFileUnreadable, match=r"topics\.json, line"):
        brokerjson.read_config(tmp_path, "topics.json")
    main.write_bytes(b'{"a":\n"\xff"}')
    with pytest.raises(ConfigFileUnreadable, match="line 2, column 2: it is not UTF-8"):
        brokerjson.read(main)
    main.unlink()
    main.mkdir()
    with pytest.raises(ConfigFileUnreadable, match="not a regular file"):
        brokerjson.read(main)


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokerjson, "MAX_BYTES", 100)
    path = tmp_path / "big.json"
    path.write_text("1" * 101)
    with pytest.raises(ConfigFileUnreadable, match="more than 100 bytes"):
        brokerjson.read(path)


def test_offsets_of_groups_light_queues_and_delay_levels(golden: Any, tmp_path: Path) -> None:
    offsets = brokerjson.consumer_offsets(golden("broker"), None)
    assert offsets["orders", "cg_orders"] == {0: 124, 1: 122, 2: 122, 3: 122}
    assert brokerjson.delay_offsets(golden("broker")) == {1: 2, 2: 1, 3: 3, 4: 3}
    (tmp_path / "config").mkdir()
    (tmp_path / "config/lmqConsumerOffset.json").write_text(
        '{"lmqOffsetTable":{"%LMQ%a@%LMQ%g":7,"%LMQ%b@%LMQ%g":{0:7},"no group":8},'
        '"offsetTable":{"t@g":{"0":"5",1:null,2:true},"u@g":7}}'
    )
    found = brokerjson.consumer_offsets(tmp_path, None)
    assert found == {
        ("%LMQ%a", "%LMQ%g"): {0: 7},
        ("%LMQ%b", "%LMQ%g"): {},
        ("t", "g"): {0: 5},
        ("u", "g"): {},
    }


def test_consumer_offsets_are_of_all_tables_of_both_files(tmp_path: Path) -> None:
    """A broker with ``enableLmq`` has all offsets in the other file (``LmqConsumerOffsetManager``).
    Where nobody says whether it is one, who has read what would else not be known."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config/consumerOffset.json").write_text('{"offsetTable":{"a@g":{0:1,1:2}}}')
    (tmp_path / "config/lmqConsumerOffset.json").write_text(
        '{"lmqOffsetTable":{"%LMQ%x@h":7,"%LMQ%y@h@i":8},"offsetTable":{"b@g":{3:4}}}'
    )
    plain: Any = {("a", "g"): {0: 1, 1: 2}}
    light: Any = {("b", "g"): {3: 4}, ("%LMQ%x", "h"): {0: 7}}
    assert brokerjson.consumer_offsets(tmp_path, None) == plain | light
    # A broker that is said to be one, or none, reads one of them.
    assert brokerjson.consumer_offsets(tmp_path, True) == light
    assert brokerjson.consumer_offsets(tmp_path, False) == plain


def test_keys_that_stand_twice_are_told_by_their_places() -> None:
    text = '{"a":1,\n "a":2, "a":3,\n\n  "b":{"c":1,"c":2},\n"a":4}'
    found: list[fastjson.DuplicateKey] = []
    assert fastjson.parse(text, duplicates=found) == {"a": 4, "b": {"c": 2}}
    lines = text.split("\n")
    assert [(key, line) for key, line, _ in found] == [("a", 2), ("a", 2), ("c", 4), ("a", 5)]
    for key, line, column in found:
        assert lines[line - 1][column - 1 :].startswith(f'"{key}"')


def test_what_fastjson_escapes_in_a_string() -> None:
    """``SerializeWriter``: control characters of both kinds, and the separators of lines."""
    assert fastjson.dumps("\x7f\x80\x9f\xa0\u2028\u2029é\x01") == (
        '"\\u007F\\u0080\\u009F\xa0\\u2028\\u2029é\\u0001"'
    )
