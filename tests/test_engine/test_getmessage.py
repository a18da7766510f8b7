"""A pull's limits: messages, bytes from memory and from disk, units scanned; filters; the slave."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from formats.constants import PRE_BLANK_UNIT
from rmqctl.engine.filters.sql import SqlFilter
from rmqctl.engine.filters.tags import TagFilter
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import UNIT, UNIT_SIZE
from rmqctl.engine.read.getmessage import (
    GetMessageResult,
    TransferLimits,
    total_physical_memory_size,
)
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.status import GetMessageStatus
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.errors import UsageError

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 22,
    mapped_file_size_consume_queue=20 * 5000,
    max_hash_slot_num=10,
    max_index_num=10,
    message_index_enable=False,
)
ALL_IN_MEMORY, NOTHING_IN_MEMORY = 1 << 62, 0


def put(store: MessageStore, topic: str, count: int, size: int) -> None:
    store.put_messages(
        [
            MessageExtBrokerInner(
                topic, bytes(size), 0, properties={"TAGS": "rare" if n == 900 else "t", "n": str(n)}
            )
            for n in range(count)
        ],
        flush=False,
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    root = tmp_path_factory.mktemp("limits") / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        put(writer, "large", 20, 30_000)
        put(writer, "small", 2000, 0)
        put(writer, "huge", 2, 300_000)
    with MessageStore(root, CONFIG) as reader:
        yield reader


def pull(
    store: MessageStore, topic: str, offset: int = 0, count: int = 32, memory: int = ALL_IN_MEMORY
) -> GetMessageResult:
    return store.get_message(topic, 0, offset, count, physical_memory=memory)


@pytest.mark.parametrize(
    ("topic", "wanted", "memory", "count"),
    [
        ("small", 5, ALL_IN_MEMORY, 5),
        ("small", 100, ALL_IN_MEMORY, 32),
        ("small", 100, NOTHING_IN_MEMORY, 8),
        ("small", 5, NOTHING_IN_MEMORY, 5),
        ("large", 32, ALL_IN_MEMORY, 8),  # 8 * 30 KB < 256 KiB < 9 * 30 KB
        ("large", 32, NOTHING_IN_MEMORY, 2),  # 2 * 30 KB < 64 KiB < 3 * 30 KB
        ("huge", 32, ALL_IN_MEMORY, 1),  # the first one always comes
        ("huge", 32, NOTHING_IN_MEMORY, 1),
    ],
)
def test_an_answer_holds_so_much(
    store: MessageStore, topic: str, wanted: int, memory: int, count: int
) -> None:
    answer = pull(store, topic, 0, wanted, memory)
    assert (answer.status, len(answer.records)) == (GetMessageStatus.FOUND, count)
    assert answer.next_begin_offset == count
    assert answer.suggest_pulling_from_slave is (memory == NOTHING_IN_MEMORY)


def test_limits_come_from_the_configuration(tmp_path: Path) -> None:
    text = (
        "maxTransferCountOnMessageInMemory=7\nmaxTransferBytesOnMessageInMemory=100000\n"
        "maxTransferCountOnMessageInDisk=3\nmaxTransferBytesOnMessageInDisk=500\n"
        "accessMessageInMemoryMaxRatio=50\n"
    )
    conf = parse_broker_conf(text)
    config = replace(
        conf,
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=2000,
        message_index_enable=False,
    )
    with MessageStore(tmp_path / "s", config, writable=True, create=True) as writer:
        put(writer, "T", 50, 0)
        assert len(pull(writer, "T").records) == 7
        on_disk = pull(writer, "T", memory=0)
        assert len(on_disk.records) == 3
        # What lies further behind than half of the memory counts as on disk.
        behind = writer.max_offset - on_disk.records[0].physical_offset
        size = on_disk.records[0].total_size
        assert len(pull(writer, "T", memory=2 * (behind - 2 * size)).records) == 7
        assert len(pull(writer, "T", memory=2 * (behind - 4 * size)).records) == 3


def test_the_place_of_each_message_decides_not_that_of_the_first(store: MessageStore) -> None:
    """``checkInDiskByCommitOffset`` is asked anew for each unit."""
    first = pull(store, "small").records[0]
    behind = store.max_offset - first.physical_offset
    # 40 per cent of this reach back to just behind the tenth message.
    memory = int((behind - 10 * first.total_size) / 0.4) + 1
    answer = pull(store, "small", memory=memory)
    assert len(answer.records) == 8, "eight of them lie on disk, and the ninth does too"
    assert answer.suggest_pulling_from_slave
    memory = int((behind - 5 * first.total_size) / 0.4) + 1
    answer = pull(store, "small", memory=memory)
    assert len(answer.records) == 32, "from the sixth on they lie in memory"
    assert not answer.suggest_pulling_from_slave
    assert answer.fall_behind_size < 0.4 * memory


def test_a_filter_looks_at_so_many_units(store: MessageStore) -> None:
    """16000 *bytes* of the queue: 800 units."""
    rare = TagFilter("rare")
    answer = store.get_message("small", 0, 0, 32, rare)
    assert (answer.status, answer.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 800)
    answer = store.get_message("small", 0, 800, 32, rare)
    assert [record.queue_offset for record in answer.records] == [900]
    assert answer.next_begin_offset == 1600
    # More than 800 wanted: as many units are looked at.
    answer = store.get_message("small", 0, 0, 1000, rare)
    assert (answer.next_begin_offset, len(answer.records)) == (1000, 1)


@pytest.mark.parametrize(("count", "units"), [(1000, 1000), (107_374_183, 800), (2**31 - 1, 800)])
def test_of_so_many_messages_that_an_int_runs_over_no_more_units_are_looked_at(
    store: MessageStore, count: int, units: int
) -> None:
    """``maxMsgNums * CQ_STORE_UNIT_SIZE`` is an int: a request cannot have the whole queue looked
    through by it."""
    none = TagFilter("no-message")
    answer = store.get_message("small", 0, 0, count, none, physical_memory=ALL_IN_MEMORY)
    assert (answer.status, answer.next_begin_offset) == (
        GetMessageStatus.NO_MATCHED_MESSAGE,
        units,
    )


def test_sql_filters_see_properties(store: MessageStore) -> None:
    sql = SqlFilter("n BETWEEN 10 AND 12 OR n = 700")
    answer = store.get_message("small", 0, 0, 32, sql)
    assert [record.queue_offset for record in answer.records] == [10, 11, 12, 700]
    assert (answer.status, answer.next_begin_offset) == (GetMessageStatus.FOUND, 800)
    nothing = store.get_message("small", 0, 0, 32, SqlFilter("TAGS > 5"))
    assert nothing.status is GetMessageStatus.NO_MATCHED_MESSAGE


def test_colliding_tags_are_told_apart(tmp_path: Path) -> None:
    """``Aa`` and ``BB`` have one hash: the queue lets both pass, the message only one."""
    with MessageStore(tmp_path / "s", CONFIG, writable=True, create=True) as writer:
        for tag in ("Aa", "BB", "Aa", "C"):
            writer.put_message(
                MessageExtBrokerInner("T", b"", 0, properties={"TAGS": tag}), flush=False
            )
        answer = writer.get_message("T", 0, 0, 32, TagFilter("Aa || D"))
        assert [record.queue_offset for record in answer.records] == [0, 2]
        colliding = writer.get_message("T", 0, 1, 1, TagFilter("Aa"))
        assert [record.queue_offset for record in colliding.records] == [2]


def test_without_a_word_the_memory_is_this_machines(store: MessageStore) -> None:
    assert total_physical_memory_size() > 1 << 28
    assert not store.get_message("small", 0, 0).suggest_pulling_from_slave


@pytest.mark.parametrize("expression", [" ", "||", " || "])
def test_an_expression_without_a_tag_is_refused(expression: str) -> None:
    with pytest.raises(UsageError, match="names no tag"):
        TagFilter(expression)


def test_a_star_among_tags_is_a_tag() -> None:
    """``FilterAPI#buildSubscriptionData`` takes it for all only where it stands alone."""
    assert TagFilter("*").matches_code(0)
    assert not TagFilter("a || *").matches_code(0)


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("\u3000b", {"\u3000b"}),
        ("b\u00a0|| a", {"b\u00a0", "a"}),
        ("\x85a", {"\x85a"}),
        ("\t\x00a\x1f", {"a"}),
    ],
)
def test_tags_are_trimmed_as_java_trims(expression: str, tags: set[str]) -> None:
    assert TagFilter(expression).tags == tags


def test_of_a_code_java_looks_at_the_int() -> None:
    assert TagFilter("a").matches_code(ord("a") + (1 << 32))
    assert not TagFilter("a").matches_code(ord("b") + (1 << 32))


def test_one_damaged_record_hides_no_other(tmp_path: Path) -> None:
    """A broker gives out what stands there, and goes on with the next message of the file."""
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        put(writer, "t", 10, 100)
        record = writer.get_message("t", 0, 3).records[0]
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(record.physical_offset + 4)
        file.write(b"\xff")
    with MessageStore(root, CONFIG) as reader:
        answer = pull(reader, "t")
        assert [found.queue_offset for found in answer.records] == [0, 1, 2, *range(4, 10)]
        assert (answer.status, answer.next_begin_offset) == (GetMessageStatus.FOUND, 10)
        assert answer.passed_over == 1
        alone = pull(reader, "t", 3, 1)
        assert alone.status is GetMessageStatus.FOUND and alone.records[0].queue_offset == 4
        assert (alone.next_begin_offset, alone.passed_over) == (5, 1)


def test_a_file_that_is_gone_is_skipped_as_a_whole(tmp_path: Path) -> None:
    """``CommitLog#rollNextFile``; what was passed over is counted."""
    root = tmp_path / "store"
    config = replace(CONFIG, mapped_file_size_commit_log=4096)
    with MessageStore(root, config, writable=True, create=True) as writer:
        put(writer, "t", 60, 100)
        second = next(
            n for n, r in enumerate(pull(writer, "t").records) if r.physical_offset >= 4096
        )
        third = next(r for r in writer.commit_log.walk(8192)).queue_offset  # type: ignore[union-attr]
    (root / "commitlog" / f"{4096:020d}").unlink()
    with MessageStore(root, config) as reader:
        answer = pull(reader, "t", second, 4)
        assert answer.records[0].queue_offset == third and len(answer.records) == 4
        assert answer.passed_over == third - second


def test_what_has_gone_from_the_log_is_passed_over_by_files(tmp_path: Path) -> None:
    """``nextPhyFileStartOffset``: a unit that leads nowhere means that its file is being removed.
    What begins just at the next file comes, and messages found before stay an answer."""
    config = replace(CONFIG, mapped_file_size_commit_log=4096)
    root = tmp_path / "s"
    with MessageStore(root, config, writable=True, create=True) as writer:
        put(writer, "T", 60, 100)
    with MessageStore(root, config) as reader:
        queue = reader.consume_queue("T", 0)
        assert queue is not None
        places = [unit.physical_offset for _, unit in queue.units(0, 60)]
    assert 8192 in places
    (root / "commitlog" / f"{4096:020d}").unlink()
    kept = [at for at, place in enumerate(places) if not 4096 <= place < 8192]
    first_gone = next(at for at in range(60) if at not in kept)
    with MessageStore(root, config) as reader:
        answer = reader.get_message("T", 0, first_gone - 2, 60)
        assert answer.status is GetMessageStatus.FOUND
        wanted = [at for at in kept if at >= first_gone - 2][: len(answer.records)]
        assert [record.queue_offset for record in answer.records] == wanted
        assert len(wanted) > 2, "before the gap and behind it"
        answer = reader.get_message("T", 0, first_gone, 60)
        assert answer.records[0].physical_offset == 8192
        before = reader.get_message("T", 0, first_gone - 2, 60, SqlFilter(f"n < {first_gone}"))
        assert (before.status, len(before.records)) == (GetMessageStatus.FOUND, 2)
        answer = reader.get_message("T", 0, first_gone, 1, SqlFilter("n = 'none'"))
        assert answer.status is GetMessageStatus.NO_MATCHED_MESSAGE


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("amid a record", [2]),
        ("behind the log's end, in its last file", []),
        ("in no file", []),
        ("before the log", []),
    ],
)
def test_a_unit_that_points_outside_the_log_hides_those_behind_it(
    place: str, found: list[int], tmp_path: Path
) -> None:
    """``MappedFile#selectMappedBuffer`` gives nothing behind what was written. The units of the
    rest of that log file are then passed over, and those of the first file behind a negative
    offset, whose remainder is negative in Java."""
    config = replace(CONFIG, mapped_file_size_commit_log=8192, mapped_file_size_consume_queue=60)
    root = tmp_path / "s"
    with MessageStore(root, config, writable=True, create=True) as writer:
        put(writer, "t", 10, 100)
        (record,) = pull(writer, "t", 1, 1).records
    places = {
        "amid a record": record.physical_offset + 4,
        "behind the log's end, in its last file": 7000,
        "in no file": 8192,
        "before the log": -100,
    }
    path = root / "consumequeue" / "t" / "0" / f"{0:020d}"
    with path.open("r+b") as units:
        units.seek(UNIT_SIZE)
        units.write(UNIT.pack(places[place], record.total_size, 0))
    with MessageStore(root, config) as reader:
        answer = pull(reader, "t", 1, 1)
        assert [record.queue_offset for record in answer.records] == found
        assert (answer.next_begin_offset, answer.passed_over) == (3, 2 - len(found))
        if not found:
            assert answer.status is GetMessageStatus.MESSAGE_WAS_REMOVING


def test_a_queue_begins_behind_units_that_point_before_the_log(tmp_path: Path) -> None:
    """``ConsumeQueue#correctMinOffset``, also where the log begins at 0."""
    root = tmp_path / "s"
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        put(writer, "t", 5, 10)
    path = root / "consumequeue" / "t" / "0" / f"{0:020d}"
    with path.open("r+b") as units:
        units.write(UNIT.pack(-100, 10, 0) + UNIT.pack(-1, 10, 0))
    with MessageStore(root, CONFIG) as reader:
        answer = pull(reader, "t", 1)
        assert answer.status is GetMessageStatus.OFFSET_TOO_SMALL
        assert (answer.next_begin_offset, answer.min_offset) == (2, 2)


def test_just_as_far_behind_as_the_memory_reaches_is_in_memory(store: MessageStore) -> None:
    """``checkInDiskByCommitOffset``: on disk is what lies further behind than the limit."""
    (first,) = pull(store, "huge", 1).records
    behind = store.max_offset - first.physical_offset
    # 40 per cent of a memory that is just so far, and of one that is a byte less.
    for reach, is_on_disk in ((behind, False), (behind - 1, True)):
        memory = next(m for m in range(2 * reach, 3 * reach) if int(m * 0.4) == reach)
        answer = pull(store, "huge", 1, memory=memory)
        assert answer.suggest_pulling_from_slave is is_on_disk
        assert answer.fall_behind_size == behind


def test_an_answer_ends_with_the_queues_file(tmp_path: Path) -> None:
    """``ConsumeQueue#getIndexBuffer`` gives the rest of one file, whatever comes behind it."""
    config = replace(CONFIG, mapped_file_size_consume_queue=200)
    with MessageStore(tmp_path / "s", config, writable=True, create=True) as writer:
        put(writer, "T", 25, 0)
        for offset, count in ((0, 10), (7, 3), (9, 1), (10, 10), (19, 1), (20, 5)):
            answer = pull(writer, "T", offset)
            assert (len(answer.records), answer.next_begin_offset) == (count, offset + count)


def test_the_limits_are_exact() -> None:
    """``isTheBatchFull``: so many bytes and messages just fit, in memory and on disk."""
    config = replace(
        CONFIG,
        max_transfer_bytes_on_message_in_memory=100,
        max_transfer_count_on_message_in_memory=5,
        max_transfer_bytes_on_message_in_disk=50,
        max_transfer_count_on_message_in_disk=3,
    )
    limits = TransferLimits(config, 4, physical_memory=1000)
    assert limits.in_memory == 400
    for behind, most_bytes, most in ((400, 100, 4), (401, 50, 3)):
        assert not limits.is_full(10**6, 0, 0, behind), "the first one always comes"
        assert not limits.is_full(10, most_bytes - 10, 1, behind)
        assert limits.is_full(11, most_bytes - 10, 1, behind)
        assert not limits.is_full(1, 1, most - 1, behind)
        assert limits.is_full(1, 1, most, behind)
        # The sum of Java's ints is negative.
        assert not limits.is_full(PRE_BLANK_UNIT[1], 1, 1, behind)


def test_a_queue_file_that_was_cut_hides_no_other(tmp_path: Path) -> None:
    """Messages whose units are gone are counted, and the next file goes on."""
    root = tmp_path / "store"
    config = replace(CONFIG, mapped_file_size_consume_queue=200)
    with MessageStore(root, config, writable=True, create=True) as writer:
        put(writer, "t", 25, 10)
    os.truncate(root / "consumequeue/t/0" / f"{200:020d}", 70)
    with MessageStore(root, config) as reader:
        found: list[int] = []
        passed_over = offset = 0
        statuses = []
        while offset < 25:
            answer = pull(reader, "t", offset, 4)
            found += [record.queue_offset for record in answer.records]
            passed_over += answer.passed_over
            statuses.append(answer.status)
            offset = answer.next_begin_offset
        assert found == [*range(13), *range(20, 25)] and passed_over == 7
        assert set(statuses) == {GetMessageStatus.FOUND}
        alone = pull(reader, "t", 15, 4)
        assert alone.status is GetMessageStatus.OFFSET_FOUND_NULL
        assert (alone.next_begin_offset, alone.passed_over) == (20, 5)
