"""Old bytes behind the last unit of a queue's extension: a start reads them as units, each by the
size of the one before, and fails when a size leads to no unit (``ConsumeQueueExt#recover``)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from struct import pack

import pytest

from formats.constants import MIN_EXT_UNIT_SIZE
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.extension import ext_offset
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place
from rmqctl.operations.verify import Finding, verify
from tests.interop.engine import Engine, Row
from tests.interop.stores import V4, assert_clean, config_of, settings

TOPIC, QUEUE = "TopicA", 0


@pytest.fixture
def values(chance: random.Random) -> Row:
    return {
        **settings(chance, light_queues=False),
        "enableConsumeQueueExt": True,
        "mappedFileSizeConsumeQueueExt": chance.choice((400, 1000, 4000)),
    }


def messages(count: int) -> Iterator[MessageExtBrokerInner]:
    for number in range(count):
        yield MessageExtBrokerInner(
            TOPIC,
            b"%d" % number,
            QUEUE,
            properties={"TAGS": f"t{number}"},
            born_host=V4[0],
            store_host=V4[1],
        )


def put(root: Path, values: Row, count: int) -> None:
    with MessageStore(root, config_of(values), writable=True, create=True) as store:
        assert all(store.put_message(one, flush=False).is_ok for one in messages(count))


def leave_behind(root: Path, bit_map: bytes, files: int = 1) -> None:
    """Writes a longer unit behind the last one, as it stays there when a broker with filters has
    crashed and its start cuts off the queue's last units; and ``files`` more, full of such
    units."""
    directory = root / "consumequeue_ext" / TOPIC / str(QUEUE)
    queue = MessageStore(root).consume_queue(TOPIC, QUEUE)
    assert queue is not None and queue.ext is not None
    newest = queue.newest_address()
    assert newest is not None
    at = (ext_offset(newest) or 0) + MIN_EXT_UNIT_SIZE
    size = queue.ext.files.entries[0].size
    queue.close()
    unit = pack(">hqqh", MIN_EXT_UNIT_SIZE + len(bit_map), 77, 88, len(bit_map)) + bit_map
    path = directory / f"{at // size * size:020d}"
    room = size - at % size - 4
    with path.open("r+b") as file:
        file.seek(at % size)
        file.write((unit * 100)[: room // len(unit) * len(unit)] + b"\xff\xff")
    for number in range(1, files):
        following = directory / f"{int(path.name) + number * size:020d}"
        units = unit * ((size - 4) // len(unit)) + b"\xff\xff"
        following.write_bytes(units + bytes(size - len(units)))


def astray(root: Path, values: Row) -> list[Finding]:
    found = [row for row in verify(root, config_of(values)) if isinstance(row, Finding)]
    return [row for row in found if row.code == "extension-sizes-astray"]


def starts(engine: Engine, root: Path, values: Row) -> bool:
    store = engine.open(root, values)
    if store.is_open:
        store.shutdown()
    return store.is_open


@pytest.mark.parametrize("files", [1, 3])
def test_a_put_over_longer_units_leaves_a_store_that_starts(
    engine: Engine, chance: random.Random, values: Row, tmp_path: Path, files: int
) -> None:
    root = tmp_path / "store"
    put(root, values, chance.randrange(1, 60))
    leave_behind(root, b"\x7f" * 40, files)
    assert astray(root, values) == []
    put(root, values, chance.choice((1, 1, 2, 30)))
    assert astray(root, values) == []
    assert_clean(root, config_of(values))
    assert starts(engine, root, values)


def test_the_engine_brings_itself_there_and_a_rebuild_mends_it(
    engine: Engine, values: Row, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    put(root, values, 5)
    leave_behind(root, b"\x7f" * 40)
    store = engine.open(root, values)
    assert store.is_open
    store.put(messages(1))
    store.settle()
    store.shutdown()
    (found,) = astray(root, values)
    assert (found.severity, found.topic, found.queue_id) == ("error", TOPIC, QUEUE)
    assert not starts(engine, root, values)
    (found,) = astray(root, values)
    rebuild_in_place(plan_rebuild(root, config_of(values), "queues", TOPIC, QUEUE))
    assert astray(root, values) == []
    assert_clean(root, config_of(values), ("unclean-shutdown",))
    assert starts(engine, root, values)


@pytest.mark.parametrize("bit_map", [b"\0" * 40, b"\xff" * 40, b"\x00\x01" * 20])
def test_what_leads_nowhere_is_what_the_engine_says(
    engine: Engine, chance: random.Random, values: Row, tmp_path: Path, bit_map: bytes
) -> None:
    """Of old bytes of every kind, verify has a finding for those on which the engine does not
    start, and for no others."""
    root = tmp_path / "store"
    put(root, values, 5)
    leave_behind(root, bit_map)
    ext = root / "consumequeue_ext" / TOPIC / str(QUEUE) / f"{0:020d}"
    data = bytearray(ext.read_bytes())
    end = 5 * MIN_EXT_UNIT_SIZE
    some = chance.randrange(end, min(end + 200, len(data) - 2))
    data[some : some + 2] = pack(">h", chance.choice((-1, 0, 1, 19, 21, 400, 32767)))
    ext.write_bytes(data)
    is_named = bool(astray(root, values))
    assert starts(engine, root, values) != is_named
