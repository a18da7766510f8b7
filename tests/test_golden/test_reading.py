"""What rmqctl reads in every golden store is what RocketMQ's own engine says of it."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from formats.commitlog import BLANK, RECORD
from formats.constants import MAX_ADDR
from formats.consumequeue_ext import EXT_UNIT
from rmqctl.engine.dispatch.batches import key_batch, unit_batch
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Blank, End, Record
from rmqctl.engine.scan.backend import ScanBackend, backends
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.look.walk import Selection
from rmqctl.operations.look.walkqueues import walk_queues
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_to
from rmqctl.operations.verify import INFO, Finding, Summary, verify
from rmqctl.rows import Row
from tests.conftest import Golden
from tests.golden_data import (
    DLEDGER_STORES,
    STORES,
    ExpectedRow,
    broker_conf,
    content,
    expected,
    index_contents,
    tree_content,
)

every_store = pytest.mark.parametrize("name", STORES + DLEDGER_STORES)
LONG_MIN = -(2**63)


def open_store(golden: Golden, name: str) -> MessageStore:
    return MessageStore(golden(name), broker_conf(name))


def host(text: str) -> str:
    """The expected rows' ``address|port`` in rmqctl's spelling."""
    address, port = text.split("|")
    parsed = ipaddress.ip_address(address)
    return f"{parsed}:{port}" if parsed.version == 4 else f"[{parsed}]:{port}"


def as_expected(store: MessageStore, record: Record) -> ExpectedRow:
    """A record in the form of an expected row, hosts in rmqctl's spelling."""
    return {
        "kind": "message",
        "physicalOffset": record.physical_offset,
        "size": record.total_size,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bodyCRC": record.body_crc,
        "bornTimestamp": record.born_timestamp,
        "bornHost": record.born_host,
        "storeTimestamp": record.store_timestamp,
        "storeHost": record.store_host,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "bodyLength": record.body_length,
        "bodySha256": sha256(store.body(record)).hexdigest(),
        "msgId": record.msg_id,
        "properties": record.properties,
    }


@every_store
def test_the_walk_yields_the_engines_messages_and_blanks(golden: Golden, name: str) -> None:
    rows = expected(name)
    wanted: dict[int, ExpectedRow] = {}
    for row in sorted(rows["message"] + rows.get("blank", []), key=lambda r: r["physicalOffset"]):
        names = [name for name in ("bornHost", "storeHost") if name in row]
        hosts: ExpectedRow = {name: host(row[name]) for name in names}
        wanted[row["physicalOffset"]] = {**row, **hosts}
    with open_store(golden, name) as store:
        found: dict[int, ExpectedRow] = {}
        for entry in store.commit_log.walk():
            if isinstance(entry, Record):
                found[entry.physical_offset] = as_expected(store, entry)
            elif isinstance(entry, Blank):
                size = entry.total_size
                blank = {"kind": "blank", "physicalOffset": entry.physical_offset, "size": size}
                found[entry.physical_offset] = blank
            else:
                assert entry == End(rows["store"][0]["maxPhyOffset"])
    assert list(found) == list(wanted)
    for offset, row in found.items():
        assert row == wanted[offset]


@every_store
def test_the_log_begins_and_ends_where_the_engine_says(golden: Golden, name: str) -> None:
    (row,) = expected(name)["store"]
    with open_store(golden, name) as store:
        assert (store.min_offset, store.max_offset) == (row["minPhyOffset"], row["maxPhyOffset"])


@pytest.mark.parametrize("backend", backends().values(), ids=backends())
@every_store
def test_scanner_and_walk_agree_and_dispatch_alike(
    golden: Golden, name: str, backend: ScanBackend
) -> None:
    config = broker_conf(name)
    log = open_commit_log(golden(name), config, config.mapped_file_size_commit_log)
    dispatcher = Dispatcher(config)
    walked = list(log.walk())
    records = [entry for entry in walked if isinstance(entry, Record)]
    scanner = Scanner(log, check=True, backend=backend)
    units: list[tuple[Any, ...]] = []
    keys: list[tuple[int, ...]] = []
    scanned, others = [], []
    for entry in scanner.scan():
        if not isinstance(entry, Batch):
            others.append(entry)
            continue
        scanned += [entry.record(row) for row in range(len(entry))]
        batch = unit_batch(entry, dispatcher)
        units += [
            (scanner.topics.names[topic], *values)
            for topic, *values in zip(*(column.tolist() for column in batch), strict=True)
        ]
        columns = key_batch(entry)
        keys += zip(*(column.tolist() for column in columns), strict=True)
        assert entry.crc_matches.all()
        assert not len(entry.malformed)
    assert scanned == records
    assert others == [entry for entry in walked if not isinstance(entry, Record)]
    assert units == [tuple(unit) for record in records for unit in dispatcher.units(record)]
    assert keys == [
        (key, record.physical_offset, record.store_timestamp)
        for record in records
        for key in dispatcher.keys(record)
    ]


@every_store
def test_the_queues_are_the_engines(golden: Golden, name: str) -> None:
    found, only_in_memory = [], []
    with open_store(golden, name) as store:
        for row in expected(name)["queue"]:
            queue = store.consume_queue(row["topic"], row["queueId"])
            if queue is None:
                only_in_memory.append(row)
                continue
            found.append((row["topic"], row["queueId"]))
            assert queue.min_offset == row["minOffset"]
            assert queue.max_offset == row["maxOffset"]
            assert queue.max_physical_offset == row["maxPhysicOffset"]
        on_disk = [(where.topic, where.queue_id) for where in store.queues.directories()]
    assert sorted(found) == sorted(on_disk)
    # The engine makes the queues of all delay levels in memory.
    assert {(r["topic"], r["maxOffset"]) for r in only_in_memory} <= {("SCHEDULE_TOPIC_XXXX", 0)}


def unit_key(row: ExpectedRow) -> tuple[str, int, int]:
    return row["topic"], row["queueId"], row["queueOffset"]


@every_store
def test_the_units_are_the_engines(golden: Golden, name: str) -> None:
    wanted = [
        (*unit_key(row), row["physicalOffset"], row["size"], row["tagsCode"])
        for row in sorted(expected(name)["unit"], key=unit_key)
    ]
    with open_store(golden, name) as store:
        walked: list[Row] = list(walk_queues(store, Selection()))
    *rows, summary = walked
    assert [tuple(row.values())[1:] for row in rows] == wanted
    assert (summary["units"], summary["damages"]) == (len(wanted), 0)
    # In this store, and no other, the units hold addresses of the extension.
    assert any(unit[-1] <= MAX_ADDR for unit in wanted) == (name == "cqext")


def test_extension_addresses_lead_to_the_tags(golden: Golden) -> None:
    messages = {row["physicalOffset"]: row for row in expected("cqext")["message"]}
    resolved = 0
    with open_store(golden, "cqext") as store:
        for row in expected("cqext")["unit"]:
            queue = store.consume_queue(row["topic"], row["queueId"])
            assert queue is not None
            unit = queue.unit(row["queueOffset"])
            assert unit is not None
            assert unit.tags_code == row["tagsCode"]
            where = golden("cqext") / "consumequeue_ext" / row["topic"] / str(row["queueId"])
            engine_unit = ext_unit(where, row["tagsCode"])
            assert queue.tags_code(unit) == engine_unit.tags_code
            stored = messages[row["physicalOffset"]]["storeTimestamp"]
            assert engine_unit.msg_store_time == stored
            resolved += 1
    assert resolved == len(messages)


def ext_unit(directory: Path, address: int) -> Any:
    """The extension unit at an address, read with the schema alone."""
    file = directory / f"{0:020d}"
    size = file.stat().st_size
    offset = address - LONG_MIN
    file = directory / f"{offset - offset % size:020d}"
    return EXT_UNIT.parse(file.read_bytes()[offset % size :])


@every_store
def test_every_pull_is_answered_as_the_engine_does(golden: Golden, name: str) -> None:
    rows = expected(name)["get"]
    assert len(rows) > 100
    with open_store(golden, name) as store:
        for row in rows:
            answer = store.get_message(
                row["topic"], row["queueId"], row["offset"], row["maxMsgNums"]
            )
            assert {
                **row,
                "status": answer.status.value,
                "nextBeginOffset": answer.next_begin_offset,
                "minOffset": answer.min_offset,
                "maxOffset": answer.max_offset,
                "physicalOffsets": [record.physical_offset for record in answer.records],
            } == row


def engines_answer(store: MessageStore, topic: str, key: str) -> list[int]:
    """The newest 64 hits, then in log order (``DefaultMessageStore#queryMessage``)."""
    hits = islice(store.query_message(topic, key), 64)
    return sorted(match.hit.item.physical_offset for match in hits)


@every_store
def test_every_query_is_answered_as_the_engine_does(golden: Golden, name: str) -> None:
    rows = expected(name)["query"]
    assert len(rows) > 100
    different = []
    with open_store(golden, name) as store:
        for row in rows:
            if engines_answer(store, row["topic"], row["key"]) != row["physicalOffsets"]:
                different.append(row)
        if name != "crash":
            assert not different
            return
        # After the kill the engine threw the last index file away and indexed again from the
        # last record of the file before: that record's key is there twice since.
        first = store.index.open(store.index.paths[0])
        seam = first.header.end_phy_offset
        first.close()
        assert [row["physicalOffsets"] for row in different] == [[seam, seam]]
        assert engines_answer(store, different[0]["topic"], different[0]["key"]) == [seam]


@every_store
def test_hits_are_compared_with_topic_and_key(golden: Golden, name: str) -> None:
    """No hash collides here, so every hit really has its key."""
    with open_store(golden, name) as store:
        for row in expected(name)["query"][::7]:
            assert all(m.matches for m in store.query_message(row["topic"], row["key"]))
            assert not any(m.matches for m in store.query_message(row["topic"] + "x", row["key"]))


def test_other_delay_levels_than_the_brokers_are_named(golden: Golden) -> None:
    """A sound store's delivery times look wrong under other levels: the finding says so."""
    config = replace(
        broker_conf("broker"), message_delay_level=MessageStoreConfig().message_delay_level
    )
    codes = {found.code for found in verify(golden("broker"), config) if isinstance(found, Finding)}
    assert codes == {"unit-delivery-time-mismatch"}


@every_store
def test_verify_is_clean(golden: Golden, name: str) -> None:
    *findings, summary = verify(golden(name), broker_conf(name))
    assert isinstance(summary, Summary)
    infos = ["unclean-shutdown"] if name == "crash" else []
    assert [finding.code for finding in findings if isinstance(finding, Finding)] == infos
    assert summary.is_clean
    assert set(summary.severities) <= {INFO}
    rows = expected(name)
    assert summary.records == len(rows["message"])
    assert summary.blanks == len(rows.get("blank", []))
    assert summary.units == len(rows["unit"])
    assert summary.max_offset == rows["store"][0]["maxPhyOffset"]


def with_plain_tags_codes(directory: Path, ext_directory: Path) -> dict[str, tuple[int, Any]]:
    """The queue files' content, with what the extension says in place of its addresses."""
    found = {}
    for relative, (length, _) in tree_content(directory).items():
        path = directory / relative
        data = bytearray(path.read_bytes())
        for at in range(0, length, 20):
            code = int.from_bytes(data[at + 12 : at + 20], "big", signed=True)
            if code <= MAX_ADDR:
                unit = ext_unit(ext_directory / Path(relative).parent, code)
                data[at + 12 : at + 20] = unit.tags_code.to_bytes(8, "big", signed=True)
        pieces = {
            n: data[n * 4096 : n * 4096 + 4096].rstrip(b"\0") for n in range(-(-length // 4096))
        }
        found[relative] = (length, {n: bytes(piece) for n, piece in pieces.items() if piece})
    return found


def assert_extension_is_the_engines(root: Path, golden_root: Path) -> None:
    """The engine wrote this store with a filter's bit maps, which a store without clients has none
    of; the queues of the retry topic, which no filter knows, are the same to the byte."""
    ext, engine_ext = root / "consumequeue_ext", golden_root / "consumequeue_ext"
    for where in ("consumequeue", "consumequeue_ext"):
        ours, engines = tree_content(root / where), tree_content(golden_root / where)
        assert list(ours) == list(engines)
        same = [path for path in ours if ours[path] == engines[path]]
        assert [path for path in ours if path.startswith("%RETRY%")] == same
        assert len(same) == 4
    plain = with_plain_tags_codes(root / "consumequeue", ext)
    assert plain == with_plain_tags_codes(golden_root / "consumequeue", engine_ext)
    for path in tree_content(engine_ext):
        assert ext_units(ext / path) == ext_units(engine_ext / path)


def ext_units(path: Path) -> list[tuple[int, int]]:
    """(tags code, store time) of each unit of an extension file."""
    data, found, at = path.read_bytes(), [], 0
    while data[at : at + 2] not in (b"\0\0", b"\xff\xff"):
        unit = EXT_UNIT.parse(data[at:])
        found.append((unit.tags_code, unit.msg_store_time))
        at += unit.size
    return found


@every_store
def test_a_rebuild_into_an_empty_place_is_the_engines_byte_for_byte(
    golden: Golden, name: str, tmp_path: Path
) -> None:
    source, output = golden(name), tmp_path / "rebuilt"
    summary = rebuild_to(plan_rebuild(source, broker_conf(name), "all"), output)
    structures = ["consumequeue", "index"]
    if name == "cqext":
        structures.insert(1, "consumequeue_ext")
        assert_extension_is_the_engines(output, source)
    else:
        assert tree_content(output / "consumequeue") == tree_content(source / "consumequeue")
    assert index_contents(output / "index") == index_contents(source / "index")
    assert sorted(path.name for path in output.iterdir()) == structures
    assert summary.records == len(expected(name)["message"])
    assert summary.units == len(expected(name)["unit"])
    assert not summary.damage
    assert not summary.refused_topics


@pytest.mark.parametrize("name", STORES)
def test_encoding_every_decoded_entry_again_gives_the_same_bytes(golden: Golden, name: str) -> None:
    rows = expected(name)
    size = broker_conf(name).mapped_file_size_commit_log
    entries = sorted(rows["message"] + rows.get("blank", []), key=lambda r: r["physicalOffset"])
    for row in entries:
        start = row["physicalOffset"] - row["physicalOffset"] % size
        with (golden(name) / "commitlog" / f"{start:020d}").open("rb") as file:
            file.seek(row["physicalOffset"] - start)
            data = file.read(row["size"] if row["kind"] == "message" else BLANK.sizeof())
        schema = RECORD if row["kind"] == "message" else BLANK
        parsed = schema.parse(data)
        assert schema.build(parsed) == data
        # Also when the lengths are left to the schema.
        free = {k: v for k, v in parsed.items() if not k.endswith("_length") and k != "_io"}
        if schema is RECORD:
            del free["total_size"]
            assert RECORD.build(free) == data


def test_content_tells_stores_apart(golden: Golden, tmp_path: Path) -> None:
    """The comparison that the tests of this directory rest on."""
    file = tmp_path / "file"
    file.write_bytes(bytes(5000) + b"x" + bytes(5000))
    length, pages = content(file)
    assert (length, pages) == (10001, {1: bytes(5000 - 4096) + b"x"})
    with file.open("r+b") as changed:
        changed.seek(9000)
        changed.write(b"y")
    assert content(file) != (length, pages)
