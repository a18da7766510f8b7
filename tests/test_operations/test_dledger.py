"""A log that a DLedger group keeps: read through its entries, whatever their bytes; what verify
says of headers, of the group's own index, and of what is committed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from formats import layouts
from formats.commitlog import RECORD
from formats.dledger import ENTRY_HEADER, INDEX_UNIT
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.read.follow import LiveStore, LogFollower
from rmqctl.engine.record.entries import find_next_framed, next_place, read_framed_entry_of
from rmqctl.engine.record.message import MessageExtBrokerInner, property_crc
from rmqctl.engine.record.record import Blank, Damage, End, Record
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.ranges import PartScan, plan_parts, unmet
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.state.dledger import dledger_state
from rmqctl.errors import AmbiguousLog
from rmqctl.operations.doctor.checkpoint import show, summary_row
from rmqctl.operations.mend.plainstore import _NewLog, write_plain_store
from rmqctl.operations.verify import Finding, Summary, verify
from rmqctl.spark.source.logsplit import meet
from tests.conftest import Golden
from tests.golden_data import DLEDGER_STORES, broker_conf, copy_tree, expected, state
from tests.seeds import times
from tests.test_operations.log_in_parts import found_in_parts

CONFIG = broker_conf("dledger")
MEMBER = "dledger-n0"
DATA, INDEX = f"{MEMBER}/data", f"{MEMBER}/index/{0:020d}"
SIZE = CONFIG.mapped_file_size_commit_log
HEADER = layouts.DLEDGER_ENTRY.size
PLACES = [row["physicalOffset"] for row in expected("dledger")["message"]]


@pytest.fixture
def store(golden: Golden, tmp_path: Path) -> Path:
    return copy_tree(golden("dledger"), tmp_path / "store")


def opened(root: Path) -> CommitLog:
    return open_commit_log(root, CONFIG, SIZE)


def write(root: Path, physical_offset: int, data: bytes) -> None:
    """Stores bytes at a place of the log."""
    start = physical_offset - physical_offset % SIZE
    with (root / DATA / f"{start:020d}").open("r+b") as file:
        file.seek(physical_offset - start)
        file.write(data)


def set_field(root: Path, number: int, name: str, value: int) -> None:
    """Changes a field of the header of the entry with a number."""
    field = next(one for one in layouts.DLEDGER_ENTRY.fields if one.name == name)
    at = PLACES[number] - HEADER + field.offset
    write(root, at, value.to_bytes(field.size, "big", signed=True))


def found(root: Path) -> list[Finding]:
    before = state(root)
    findings = [one for one in verify(root, CONFIG) if isinstance(one, Finding)]
    for part_bytes in (3000, SIZE):
        assert of_entries(found_in_parts(root, CONFIG, part_bytes)) == of_entries(findings)
    assert state(root) == before
    return findings


def of_entries(findings: list[Finding]) -> set[object]:
    """What is found of a member and its entries. Entries without units are told of together, as far
    as they are read at once."""
    own = [one for one in findings if one.code.startswith("dledger-")]
    units = "dledger-index-unit-mismatch", "dledger-index-behind"
    return {one.code if one.code in units else one for one in own}


def walked(log: CommitLog) -> tuple[list[Record], list[Blank | Damage | End]]:
    records, others = [], []
    for entry in log.walk():
        if isinstance(entry, Record):
            records.append(entry)
        else:
            others.append(entry)
    return records, others


Change = Callable[[Path], object]
#: What is done, and code, path and place of what is found; queues and index stay right.
CASES: dict[str, tuple[Change, str, str, int | None]] = {
    "a header names another place": (
        lambda root: set_field(root, 100, "pos", 7),
        *("dledger-header-mismatch", f"{DATA}/{PLACES[100] // SIZE * SIZE:020d}"),
        PLACES[100] - HEADER,
    ),
    "a header of another size": (
        lambda root: set_field(root, 100, "size", 1 << 20),
        *("dledger-header-mismatch", f"{DATA}/{PLACES[100] // SIZE * SIZE:020d}"),
        PLACES[100] - HEADER,
    ),
    "a header without its magic code": (
        lambda root: set_field(root, 100, "magic", 9),
        *("bad-magic", f"{DATA}/{PLACES[100] // SIZE * SIZE:020d}"),
        PLACES[100] - HEADER,
    ),
    "an index that comes again": (
        lambda root: set_field(root, 3, "index", 2),
        *("dledger-index-order", f"{DATA}/{0:020d}", PLACES[3]),
    ),
    "a term that falls": (
        lambda root: set_field(root, 3, "term", -1),
        *("dledger-term-falls", f"{DATA}/{0:020d}", PLACES[3]),
    ),
    "units that are zeros": (
        lambda root: write_index(root, 10, bytes(INDEX_UNIT.sizeof() * 5)),
        *("dledger-index-unit-mismatch", INDEX, PLACES[10]),
    ),
    "an index that is cut": (
        lambda root: write_index(root, 230, bytes(INDEX_UNIT.sizeof() * 10)),
        *("dledger-index-behind", INDEX, PLACES[230]),
    ),
    "no index": (
        lambda root: (root / INDEX).unlink(),
        *("dledger-index-unit-mismatch", f"{MEMBER}/index", PLACES[0]),
    ),
    "more is committed than there is": (
        lambda root: say(root, "committedIndex=400\nendIndex=400\n"),
        *("dledger-committed-past-end", f"{MEMBER}/checkpoint", None),
    ),
    "less is committed than there is": (
        lambda root: say(root, "committedIndex=200\nendIndex=239\n"),
        *("dledger-uncommitted", f"{MEMBER}/checkpoint"),
        PLACES[201] - HEADER,
    ),
    "a checkpoint of nonsense": (
        lambda root: say(root, "committedIndex=\x1b[31m99999999999999999999999\n"),
        *("dledger-state-unreadable", f"{MEMBER}/checkpoint", None),
    ),
}


def write_index(root: Path, number: int, data: bytes) -> None:
    with (root / INDEX).open("r+b") as file:
        file.seek(number * INDEX_UNIT.sizeof())
        file.write(data)


def say(root: Path, text: str) -> None:
    (root / MEMBER / "checkpoint").write_text(text)


@pytest.mark.parametrize("case", CASES)
def test_verify_names_what_was_done(store: Path, case: str) -> None:
    change, code, path, place = CASES[case]
    change(store)
    first, *others = found(store)
    assert (first.code, first.path, first.physical_offset) == (code, path, place)
    # What is wrong with an entry's number is wrong with its unit and with the next one, too.
    assert {one.code for one in others} <= {
        *("dledger-index-order", "dledger-term-falls", "dledger-index-unit-mismatch"),
        *("dledger-index-behind", "dledger-header-mismatch"),
    }
    log = opened(store)
    records, _ = walked(log)
    # A header that is lost takes no message with it.
    assert [record.physical_offset for record in records] == PLACES
    log.close()


def test_an_order_that_breaks_between_two_parts(store: Path) -> None:
    """Parts of 3000 bytes have nine entries or less, so that some begin with what is wrong."""
    path = store / DATA / f"{0:020d}"
    before = path.read_bytes()
    for number in range(3, 13):
        set_field(store, number, "index", 1)
        set_field(store, number, "term", -1)
        codes = {one.code for one in found(store)}
        assert codes >= {"dledger-index-order", "dledger-term-falls"}
        path.write_bytes(before)


def test_a_damaged_header_is_damage_of_its_own_length(store: Path) -> None:
    set_field(store, 100, "body_length", -1)
    log = opened(store)
    (damage,) = [entry for entry in log.walk() if isinstance(entry, Damage)]
    assert (damage.physical_offset, damage.length) == (PLACES[100] - HEADER, HEADER)
    assert (damage.expected, damage.found) == ("size 47", str(PLACES[101] - PLACES[100]))
    log.close()


def test_a_damaged_record_takes_its_entry_and_no_other(store: Path) -> None:
    write(store, PLACES[100] + 4, b"\0\0\0\0")
    log = opened(store)
    records, others = walked(log)
    (damage,) = [entry for entry in others if isinstance(entry, Damage)]
    assert damage.physical_offset == PLACES[100] - HEADER
    assert damage.length == PLACES[101] - PLACES[100]
    assert len(records) == len(PLACES) - 1
    log.close()


def test_a_walk_starts_at_an_entry_or_at_its_record(golden: Golden) -> None:
    log = opened(golden("dledger"))
    for start in (PLACES[50] - HEADER, PLACES[50]):
        places = [one.physical_offset for one in log.walk(start) if isinstance(one, Record)]
        assert places == PLACES[50:]
    places = [one.physical_offset for one in log.walk(end=PLACES[50]) if isinstance(one, Record)]
    assert places == PLACES[:50]
    log.close()


def test_only_a_record_stands_where_a_unit_may_point_to(golden: Golden) -> None:
    log = opened(golden("dledger"))
    assert log.find_record(PLACES[7]) == log.record_at(PLACES[7])
    assert log.find_record(PLACES[7] - HEADER) is None
    mapped, position = log.locate(PLACES[7])
    assert next_place(mapped, position - HEADER) == position
    assert next_place(mapped, position) == position
    assert find_next_framed(mapped, position) == log.locate(PLACES[8])[1] - HEADER
    log.close()


def test_parts_meet_at_entries(golden: Golden) -> None:
    log = opened(golden("dledger"))
    for part_bytes in (3000, 5000, SIZE):
        scanner, bounds, places = Scanner(log), [], []
        for part in plan_parts(log, part_bytes):
            scan = PartScan(scanner, part)
            for entry in scan:
                if isinstance(entry, Batch):
                    places += entry.physical_offset.tolist()
            bounds.append(scan.bounds)
        wrong = unmet(bounds, log.files.end_offset)
        # Only a part whose border lies in a header is to be joined with the one before it.
        borders = [bound.began for bound in bounds if bound.number in wrong]
        assert part_bytes != SIZE or not wrong
        assert len(borders) <= len(bounds) // 4
        if not wrong:
            assert places == PLACES
    log.close()


def test_splits_on_spark_begin_at_entries(golden: Golden) -> None:
    """Wherever they were planned to: both neighbours get the same answer, and no entry is in none
    of them, nor in two."""
    log = opened(golden("dledger"))
    for number, place in enumerate(PLACES[1:20], 1):
        start, before = place - HEADER, PLACES[number - 1]
        for offset in (start, start + 1, place - 1, place):
            assert meet(log, offset, CONFIG) == start
        assert meet(log, before + 1, CONFIG) == start
    log.close()


def test_a_checkpoint_has_no_say_in_what_a_start_reads(golden: Golden) -> None:
    row = summary_row(show(golden("dledger"), CONFIG))
    assert (row["scan_why"], row["scan_from"]) == ("dledger", 5 * SIZE)
    assert row["bytes_to_scan"] == expected("dledger")["store"][0]["maxPhyOffset"] - 5 * SIZE


def test_a_follower_goes_from_entry_to_entry(golden: Golden) -> None:
    with LiveStore(golden("dledger"), CONFIG) as live:
        follower = LogFollower(live, 0)
        found = [*follower.look(), *follower.look()]
        assert [one.physical_offset for one in found if isinstance(one, Record)] == PLACES
        assert follower.offset == expected("dledger")["store"][0]["maxPhyOffset"]
        assert not list(follower.look())


def test_two_members_in_one_place_need_a_name(store: Path) -> None:
    (store / "dledger-n1" / "data").mkdir(parents=True)
    with pytest.raises(AmbiguousLog):
        open_commit_log(store, broker_conf("basic"), SIZE)
    log = opened(store)  # Its broker.conf has dLegerSelfId.
    assert log.files.end_offset == 8 * SIZE
    log.close()


@pytest.mark.parametrize("name", DLEDGER_STORES)
def test_an_export_is_a_plain_store_of_the_same_messages(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    output, config = tmp_path / "plain", broker_conf(name)
    done = write_plain_store(golden(name), config, output)
    assert done == (240, 0, 0)
    plain = replace(config, enable_d_leger_commit_log=False)
    *findings, summary = verify(output, plain)
    assert not findings and isinstance(summary, Summary)
    with MessageStore(golden(name), config) as source, MessageStore(output, plain) as store:
        assert not store.commit_log.files.framed
        records, _ = walked(store.commit_log)
        for before, after in zip(walked(source.commit_log)[0], records, strict=True):
            moved = before._replace(
                physical_offset=after.physical_offset, body_position=after.body_position
            )
            assert moved == after
            assert source.body(before) == store.body(after)
        assert summary.units == len(expected(name)["unit"])
        for row in expected(name)["queue"]:
            queue = store.consume_queue(row["topic"], row["queueId"])
            assert queue is None or queue.max_offset == row["maxOffset"]


def test_an_export_says_what_was_left_out(store: Path, tmp_path: Path) -> None:
    write(store, PLACES[100] + 4, b"\0\0\0\0")
    done = write_plain_store(store, CONFIG, tmp_path / "plain")
    assert (done.messages, done.damages) == (239, 1)
    plain = replace(CONFIG, enable_d_leger_commit_log=False)
    found = {one.code for one in verify(tmp_path / "plain", plain) if isinstance(one, Finding)}
    assert found <= {"unit-hole"}


def test_queues_whose_messages_have_expired_go_on_where_they_were(
    store: Path, tmp_path: Path
) -> None:
    for file in sorted((store / DATA).iterdir())[:7]:
        file.unlink()
    output, plain = tmp_path / "plain", replace(CONFIG, enable_d_leger_commit_log=False)
    done = write_plain_store(store, CONFIG, output)
    assert 0 < done.messages < 10
    *findings, _ = verify(output, plain)
    assert {one.code for one in findings if isinstance(one, Finding)} == {"log-starts-late"}
    with MessageStore(store, CONFIG) as before, MessageStore(output, plain, writable=True) as after:
        assert ends_of(before) == ends_of(after)
        result = after.put_message(MessageExtBrokerInner("TopicA", b"x", 1))
        assert result.stored is not None
        assert result.stored.queue_offset == ends_of(before)["TopicA", 1]


def ends_of(store: MessageStore) -> dict[tuple[str, int], int]:
    """Where each queue goes on."""
    found = {}
    for where in store.queues.directories():
        queue = store.consume_queue(where.topic, where.queue_id)
        assert queue is not None
        found[where.topic, where.queue_id] = queue.max_offset
    return found


def test_a_moved_record_names_its_half_and_has_its_checksum(tmp_path: Path) -> None:
    """What 5.x appends to a record is over its address, too."""
    fields = {
        "body_crc": 0,
        "queue_id": 0,
        "flag": 0,
        "queue_offset": 0,
        "born_timestamp": 0,
        "born_address": bytes(4),
        "born_port": 1,
        "store_timestamp": 0,
        "store_address": bytes(4),
        "store_port": 1,
        "reconsume_times": 0,
        "sys_flag": 8,
        "body": b"x",
        "topic": b"T",
        "properties": b"a\1b\2" + bytes(20),
    }

    def record(place: int, half: int) -> bytearray:
        names = {"physical_offset": place, "prepared_transaction_offset": half}
        data = bytearray(RECORD.build({**fields, **names}))
        data[-20:] = property_crc(bytes(data[:-20]))
        return data

    halves: dict[int, int] = {}
    with _NewLog(tmp_path, 4096, 4096) as log:
        log.put(record(5048, 0), "RMQ_SYS_TRANS_HALF_TOPIC", halves)
        log.put(record(6048, 5048), "T", halves)
    size = len(record(0, 0))
    stored = (tmp_path / f"{4096:020d}").read_bytes()
    assert halves == {5048: 4096}
    assert stored[: 2 * size] == record(4096, 0) + record(4096 + size, 4096)
    assert stored[2 * size :] == bytes(4096 - 2 * size)


Piece = tuple[int, bytes]
pieces = st.lists(
    st.tuples(
        st.integers(0, 4096),
        st.one_of(
            st.binary(min_size=1, max_size=60),
            st.sampled_from([b"\0\0\0\1", b"\xff\xff\xff\xff", b"\xda\xa3\x20\xa7"]),
            st.integers(0, 5000).map(lambda n: n.to_bytes(4, "big")),
        ),
    ),
    max_size=6,
)


@settings(
    max_examples=times(120),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(pieces)
@example([(PLACES[1] - HEADER, bytes(8))])
@example([(0, b"\xff\xff\xff\xff")])
@example([(0, ENTRY_HEADER.build({"size": 48, "index": 0, "term": 0, "pos": 0, "body_length": 0}))])
def test_whatever_the_bytes_walk_and_scanner_agree(
    golden: Golden, tmp_path: Path, changes: list[Piece]
) -> None:
    """Entries follow each other without a gap up to the end, and nothing raises."""
    data = bytearray((golden("dledger") / DATA / f"{0:020d}").read_bytes()[:4096])
    data += bytes(4096 - len(data))
    for at, piece in changes:
        data[at : at + len(piece)] = piece
    root = tmp_path / "store"
    (root / DATA).mkdir(parents=True, exist_ok=True)
    (root / DATA / f"{0:020d}").write_bytes(data[:4096])
    log = open_commit_log(root, broker_conf("basic"), 4096)
    reached, records, others = 0, [], []
    for entry in log.walk():
        if isinstance(entry, Record):
            assert entry.physical_offset - reached in (0, HEADER)
            records.append(entry)
            reached = entry.physical_offset + entry.total_size
        else:
            assert entry.physical_offset == reached
            others.append(entry)
            reached += 0 if isinstance(entry, End) else length_of(entry)
    scanned, rest = [], []
    for part in Scanner(log, check=True).scan():
        if isinstance(part, Batch):
            scanned += [part.record(row) for row in range(len(part))]
        else:
            rest.append(part)
    assert (scanned, rest) == (records, others)
    mapped = log.files.file(0)
    for position in random.Random(0).sample(range(4096), 20):
        read_framed_entry_of(mapped, position)
        assert position <= find_next_framed(mapped, position) <= mapped.size
        assert position <= next_place(mapped, position) <= mapped.size
    log.close()


def length_of(entry: Blank | Damage) -> int:
    return entry.total_size if isinstance(entry, Blank) else entry.length


@given(st.binary(max_size=200))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_member_says_of_itself_is_read(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "checkpoint").write_bytes(data)
    (tmp_path / "currterm").write_bytes(b"currTerm=" + data)
    said = dledger_state(tmp_path)
    assert said.end_index is None or isinstance(said.end_index, int)


def test_no_start_of_a_member_indexes_what_has_its_unit(store: Path) -> None:
    """Not even after a crash: ``DLedgerCommitLog#recover`` dispatches nothing."""
    (path,) = (store / "index").iterdir()
    path.unlink()
    (store / "abort").touch()
    codes = [one.code for one in verify(store, CONFIG) if isinstance(one, Finding)]
    assert "index-missing" in codes and "index-behind" not in codes
