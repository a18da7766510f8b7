"""What later versions put into a store: what stops a writer, and how a record ends there."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats import constants
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.form import FORM_OF_4_9_3, RecordForm
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.laterversions import (
    check_understood,
    indexes_tags,
    is_of_5,
    not_understood,
    queues_not_understood,
    record_form,
)
from rmqctl.errors import UnsupportedStore
from tests import golden_data
from tests.conftest import Golden
from tests.golden_data import make_one_of_5_4


def put(root: Path, name: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    return path


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("consumequeue_r/CURRENT", "consumequeue_r"),
        ("consumequeue_rocksdb/000004.sst", "consumequeue_rocksdb"),
        ("consumequeue/CURRENT", "consumequeue"),
    ],
)
def test_queues_in_rocksdb_stop_a_writer(name: str, shown: str, tmp_path: Path) -> None:
    """What is put would be in no queue that the broker reads."""
    put(tmp_path, name)
    assert [found for found, _ in not_understood(tmp_path)] == [shown]
    with pytest.raises(UnsupportedStore, match="RocksDB"):
        check_understood(tmp_path, MessageStoreConfig())
    assert queues_not_understood(tmp_path)


def test_what_is_passed_over_stops_nobody(tmp_path: Path) -> None:
    """5.x makes directories of things that nobody has switched on: empty ones say nothing."""
    for name in ("consumequeue_r", "kvStore/below", "rocksdb"):
        (tmp_path / name).mkdir(parents=True)
    assert list(not_understood(tmp_path)) == []
    for name in ("kvStore/CURRENT", "rocksdbstore/CURRENT", "config/acls/LOG"):
        put(tmp_path, name)
    put(tmp_path, "batchconsumequeue/batches/0/00000000000000000000")
    assert {name for name, _ in not_understood(tmp_path)} == {
        "kvStore", "rocksdbstore", "config/acls",
    }  # fmt: skip
    check_understood(tmp_path, MessageStoreConfig())
    assert not queues_not_understood(tmp_path)


@pytest.mark.parametrize(
    ("properties", "form"),
    [
        (b"", FORM_OF_4_9_3),
        (b"a\1b", FORM_OF_4_9_3),
        (b"a\1b\2", RecordForm(property_separator=True)),
        (b"a\1b\2__CRC32#\x010123456789\2", RecordForm(True, True)),
        # A property of that name, which somebody has given, is none of the store's.
        (b"__CRC32#\x010123456789\2a\1b\2", RecordForm(property_separator=True)),
        (b"__CRC32#\x010123456789\2a\1b", FORM_OF_4_9_3),
    ],
    ids=range(6),
)
def test_the_form_is_read_off_the_newest_record(
    properties: bytes, form: RecordForm, golden: Golden, tmp_path: Path
) -> None:
    with MessageStore(golden("basic"), golden_data.broker_conf("basic")) as store:
        newest = next(e for e in store.commit_log.walk() if isinstance(e, Record))
    newest = newest._replace(properties_bytes=properties)
    assert record_form(tmp_path, newest) == form
    assert record_form(tmp_path, None) == FORM_OF_4_9_3
    # Longer topics are there where 5.x has been.
    longer = RecordForm(form.property_separator, form.property_crc, True)
    later = newest._replace(magic_code=constants.MESSAGE_MAGIC_CODE_V2)
    assert record_form(tmp_path, later) == longer
    left = tmp_path / ("compaction" if form.property_separator else "timerwheel")
    left.mkdir() if left.name == "compaction" else left.touch()
    assert record_form(tmp_path, newest) == longer
    assert record_form(tmp_path, None) == RecordForm(long_topics=True)


def test_an_empty_database_of_5_4_says_nothing(tmp_path: Path) -> None:
    """Every broker since 5.4 makes it; it has tables, or a log, once something is switched on."""
    make_one_of_5_4(tmp_path)
    assert list(not_understood(tmp_path)) == []
    assert is_of_5(tmp_path) and indexes_tags(tmp_path)
    for name in ("000012.sst", "000013.log"):
        (tmp_path / "rocksdbstore" / name).write_bytes(b"x")
        assert [found for found, _ in not_understood(tmp_path)] == ["rocksdbstore"]
        (tmp_path / "rocksdbstore" / name).unlink()
