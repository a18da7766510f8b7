"""Every layout reads and writes exactly what its construct schema does, and so does its dtype."""

import struct
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from construct import GreedyBytes, SizeofError, Struct
from hypothesis import given
from hypothesis import strategies as st

from formats import (
    batchconsumequeue,
    checkpoint,
    commitlog,
    constants,
    consumequeue,
    consumequeue_ext,
    ha,
    indexfile,
    layouts,
    remoting,
    tiered,
    timer,
)
from formats.declare import field
from formats.derive import dtype_of, layout_of, struct_of, tail_of
from formats.layouts import Field, Layout

SCHEMAS: dict[str, tuple[Layout, Struct, dict[str, int]]] = {
    "blank": (layouts.BLANK, commitlog.BLANK, {}),
    "queue_unit": (layouts.QUEUE_UNIT, consumequeue.UNIT, {}),
    "queue_ext_unit": (layouts.QUEUE_EXT_UNIT, consumequeue_ext.EXT_UNIT_PREFIX, {}),
    "batch_queue_unit": (layouts.BATCH_QUEUE_UNIT, batchconsumequeue.UNIT, {}),
    "index_header": (layouts.INDEX_HEADER, indexfile.HEADER, {}),
    "index_slot": (layouts.INDEX_SLOT, indexfile.SLOT, {}),
    "index_item": (layouts.INDEX_ITEM, indexfile.ITEM, {}),
    "checkpoint": (layouts.CHECKPOINT, checkpoint.CHECKPOINT, {}),
    "timer_slot": (layouts.TIMER_SLOT, timer.SLOT, {}),
    "timer_unit": (layouts.TIMER_UNIT, timer.UNIT, {}),
    "timer_checkpoint": (layouts.TIMER_CHECKPOINT, timer.CHECKPOINT, {}),
    "tiered_index_header": (layouts.TIERED_INDEX_HEADER, tiered.INDEX_HEADER, {}),
    "tiered_index_slot": (layouts.TIERED_INDEX_SLOT, tiered.INDEX_SLOT, {}),
    "tiered_index_item": (layouts.TIERED_INDEX_ITEM, tiered.INDEX_ITEM, {}),
    "tiered_compacted_slot": (
        layouts.TIERED_COMPACTED_INDEX_SLOT,
        tiered.COMPACTED_INDEX_SLOT,
        {},
    ),
    "tiered_compacted_item": (
        layouts.TIERED_COMPACTED_INDEX_ITEM,
        tiered.COMPACTED_INDEX_ITEM,
        {},
    ),
    "remoting_frame": (layouts.REMOTING_FRAME, remoting.FRAME_PREFIX, {}),
    "remoting_header": (layouts.REMOTING_HEADER, remoting.BINARY_HEADER, {}),
    "ha_report": (layouts.HA_REPORT, ha.REPORT, {}),
    "ha_frame": (layouts.HA_FRAME, ha.FRAME_PREFIX, {}),
} | {
    f"record_prefix_{flags}": (layout, commitlog.RECORD_PREFIX, {"sys_flag": flags})
    for flags, layout in layouts.RECORD_PREFIX.items()
}

BITS = {"h": 16, "i": 32, "q": 64}


def values_of(field: Field, fixed: dict[str, int]) -> st.SearchStrategy[Any]:
    if field.name in fixed:
        # The other bits are free, but these have to say how long the hosts are.
        flags = st.integers(-(2**31), 2**31 - 1)
        return flags.map(lambda value: value & ~constants.HOST_V6_MASK | fixed[field.name])
    if field.code == "B":
        return st.integers(0, 255)
    if field.code == "I":
        return st.integers(0, 2**32 - 1)
    if field.code in BITS:
        limit = 1 << (BITS[field.code] - 1)
        return st.integers(-limit, limit - 1)
    return st.binary(min_size=field.size, max_size=field.size)


@pytest.mark.parametrize("name", SCHEMAS)
@given(data=st.data())
def test_values_are_written_alike_and_read_back_by_all_three(name: str, data: Any) -> None:
    layout, schema, fixed = SCHEMAS[name]
    values = {each.name: data.draw(values_of(each, fixed)) for each in layout.fields}
    written = schema.build(values)
    assert len(written) == layout.size
    assert struct_of(layout).pack(*values.values()) == written
    row = np.zeros(1, dtype_of(layout))
    for key, value in values.items():
        row[key] = np.void(value) if isinstance(value, bytes) else value
    assert row.tobytes() == written
    assert_read_alike(layout, schema, written)


@pytest.mark.parametrize("name", SCHEMAS)
@given(data=st.data())
def test_any_bytes_are_read_alike_by_all_three(name: str, data: Any) -> None:
    layout, schema, fixed = SCHEMAS[name]
    raw = bytearray(data.draw(st.binary(min_size=layout.size, max_size=layout.size)))
    if "sys_flag" in fixed:
        offset = next(each.offset for each in layout.fields if each.name == "sys_flag")
        low_byte = offset + 3
        raw[low_byte] = raw[low_byte] & ~constants.HOST_V6_MASK | fixed["sys_flag"]
    assert_read_alike(layout, schema, bytes(raw))


def assert_read_alike(layout: Layout, schema: Struct, raw: bytes) -> None:
    parsed = schema.parse(raw)
    names = [each.name for each in layout.fields]
    expected = [parsed[name] for name in names]
    assert list(struct_of(layout).unpack(raw)) == expected
    row = np.frombuffer(raw, dtype_of(layout))[0]
    assert [item.tobytes() if isinstance(item := row[n], np.void) else item for n in names] == (
        expected
    )
    assert schema.build(parsed) == raw


@pytest.mark.parametrize("name", SCHEMAS)
def test_stored_layout_is_the_derived_one(name: str) -> None:
    layout, schema, fixed = SCHEMAS[name]
    assert layout_of(schema, layout.name, **fixed) == layout
    assert struct_of(layout).size == dtype_of(layout).itemsize == layout.size


def test_stored_tails_are_the_derived_ones() -> None:
    tails = {code: tail_of(version) for code, version in commitlog.VERSIONS.items()}
    assert tails == layouts.TAIL
    assert next(iter(tails)) == constants.MESSAGE_MAGIC_CODE
    for code in tails:
        assert code.to_bytes(4, "big").startswith(layouts.RECORD_MAGIC_HEAD)


@pytest.mark.parametrize("code", layouts.TAIL)
@given(data=st.data())
def test_a_tail_reads_what_the_schema_writes(code: int, data: Any) -> None:
    tail = layouts.TAIL[code]
    flags = data.draw(st.sampled_from(list(layouts.RECORD_PREFIX)))
    topic, properties = (
        bytes(data.draw(st.one_of(st.integers(0, 9), st.just(length.limit))))
        for length in (tail.topic_length, tail.properties_length)
    )
    prefix = layouts.RECORD_PREFIX[flags]
    zeros = {each.name: bytes(each.size) if "s" in each.code else 0 for each in prefix.fields}
    for name in ("total_size", "body_length"):
        del zeros[name]
    record = zeros | {"magic_code": code, "sys_flag": flags, "body": b"b"}
    written = commitlog.RECORD.build(record | {"topic": topic, "properties": properties})
    at = prefix.size + len(b"b")
    for length, text in ((tail.topic_length, topic), (tail.properties_length, properties)):
        assert struct.unpack_from(f">{length.code}", written, at) == (len(text),)
        assert struct.calcsize(f">{length.code}") == length.size
        at += length.size + len(text)
    assert at == len(written)


def test_the_named_fields_lie_in_every_record_where_they_say() -> None:
    named = [value for name, value in vars(layouts).items() if name.startswith("RECORD_")]
    fields = [value for value in named if isinstance(value, Field)]
    assert [field.name for field in fields] == list(layouts.RecordPrefix._fields[: len(fields)])
    for layout in layouts.RECORD_PREFIX.values():
        offsets = {each.name: each.offset for each in layout.fields}
        assert [field.offset for field in fields] == [offsets[field.name] for field in fields]
        assert tuple(offsets) == layouts.RecordPrefix._fields


def test_layout_sizes_are_the_sizes_rocketmq_computes_with() -> None:
    assert (
        min(
            layouts.RECORD_PREFIX[0].size + tail.topic_length.size + tail.properties_length.size
            for tail in layouts.TAIL.values()
        )
        == constants.MIN_RECORD_SIZE
    )
    assert layouts.BLANK.size == constants.END_FILE_MIN_BLANK_LENGTH
    assert layouts.QUEUE_UNIT.size == constants.CQ_STORE_UNIT_SIZE
    assert layouts.QUEUE_EXT_UNIT.size == constants.MIN_EXT_UNIT_SIZE
    assert layouts.INDEX_HEADER.size == constants.INDEX_HEADER_SIZE
    assert layouts.INDEX_SLOT.size == constants.HASH_SLOT_SIZE
    assert layouts.INDEX_ITEM.size == constants.INDEX_SIZE
    assert indexfile.Geometry().file_size == 420_000_040


def test_a_field_without_a_fixed_size_has_no_layout() -> None:
    with pytest.raises(SizeofError):
        layout_of(Struct(field("rest", GreedyBytes, "the rest")), "REST")


def test_the_modules_for_hot_paths_import_neither_construct_nor_numpy() -> None:
    program = (
        "import sys, formats.constants, formats.geometry, formats.layouts, formats.text;"
        "sys.exit(bool({'construct', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
