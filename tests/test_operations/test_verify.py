"""verify on stores that are odd in ways which no damage case shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.text import index_key_hash
from rmqctl.engine.indexservice import IndexService
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record import Record
from rmqctl.operations.verify import ERROR, INFO
from tests.test_operations.small_store import (
    CONFIG,
    GEOMETRY,
    findings_of,
    make_small_store,
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_small_store(tmp_path / "store")


def last_keyed(root: Path) -> Record:
    with MessageStore(root, CONFIG) as opened:
        records = [entry for entry in opened.commit_log.walk() if isinstance(entry, Record)]
    return [record for record in records if "UNIQ_KEY" in record.properties][-1]


@pytest.mark.parametrize(
    ("key", "code", "severity"),
    [(None, "index-item-repeated", INFO), ("none of its", "index-item-without-key", ERROR)],
)
def test_a_second_item_of_a_key_is_no_damage_but_one_of_no_key_is(
    store: Path, key: str | None, code: str, severity: str
) -> None:
    """After a kill the engine indexes the last message of the file before once more."""
    record = last_keyed(store)
    key_hash = index_key_hash(record.topic, key or record.properties["UNIQ_KEY"])
    service = IndexService(store / "index", GEOMETRY, writable_root=store)
    file = service.last()
    assert file is not None
    assert file.put_keys([key_hash], record.physical_offset, record.store_timestamp) == 1
    service.close()
    findings, summary = findings_of(store)
    assert [(f.code, f.severity, f.physical_offset) for f in findings] == [
        (code, severity, record.physical_offset)
    ]
    assert summary.is_clean == (severity == INFO)


@pytest.mark.parametrize(
    ("position", "data", "code"),
    [
        (84, b"\x80\0\0\0", "body-length-out-of-range"),
        (8, b"\0\0\0\1", "body-crc-mismatch"),
    ],
)
def test_what_the_engine_passes_over_in_an_empty_body_is_named(
    store: Path, position: int, data: bytes, code: str
) -> None:
    path = store / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
    findings, summary = findings_of(store)
    assert [(f.code, f.physical_offset, f.severity) for f in findings] == [(code, 0, ERROR)]
    assert summary.records == 30  # the engine reads it as a record, and so do we
