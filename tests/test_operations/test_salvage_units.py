"""salvage where units stand at places that are not theirs: no record is changed for such a unit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import UNIT_SIZE
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from tests.test_cli.conftest import CONFIG
from tests.test_operations.test_salvage import errors, patched, places_of, records_of, salvage

LIGHT = replace(
    CONFIG,
    enable_lmq=True,
    enable_multi_dispatch=True,
    explicit=CONFIG.explicit | {"enable_multi_dispatch"},
)
QUEUES = ("orders", 0), ("orders", 1), ("bills", 0), ("orders", 0)
ORDERS, BILLS, EXTRA = "orders/0", "bills/0", "extra/0"


def made(root: Path, config: MessageStoreConfig = CONFIG) -> Path:
    """A store of twenty messages; with light queues, half of them are in two of these as well."""
    with MessageStore(root, config, writable=True, create=True) as store:
        for number in range(20):
            topic, queue_id = QUEUES[number % 4]
            message = MessageExtBrokerInner(topic, b"body %d" % number, queue_id)
            message.properties["TAGS"] = "paid"
            if config is LIGHT and number % 4 in (0, 1):
                message.properties["INNER_MULTI_DISPATCH"] = "%LMQ%one,extra"
            assert store.put_message(message).is_ok
    return root


def file_of(root: Path, queue: str) -> Path:
    return root / "consumequeue" / queue / ("0" * 20)


def unit(root: Path, queue: str, queue_offset: int) -> bytes:
    start = queue_offset * UNIT_SIZE
    return file_of(root, queue).read_bytes()[start : start + UNIT_SIZE]


def put_unit(root: Path, queue: str, queue_offset: int, stored: bytes) -> None:
    with file_of(root, queue).open("r+b") as file:
        file.seek(queue_offset * UNIT_SIZE)
        file.write(stored)


def moved(root: Path, queue: str, number: int, other: str, to: int) -> None:
    """Moves a unit."""
    stored = unit(root, queue, number)
    put_unit(root, queue, number, bytes(UNIT_SIZE))
    put_unit(root, other, to, stored)


#: What becomes of the queues' files. The queues have 10, 5 and 5 messages.
MISPLACED: dict[str, Callable[[Path], None]] = {
    "behind the end of its queue": lambda root: moved(root, ORDERS, 4, ORDERS, 11),
    "the first one behind the end": lambda root: moved(root, BILLS, 0, BILLS, 5),
    "the last one behind a hole": lambda root: moved(root, BILLS, 4, BILLS, 5),
    "at the same place of another queue": lambda root: moved(root, ORDERS, 7, "orders/1", 7),
    "over that of another record": lambda root: moved(root, ORDERS, 7, "orders/1", 4),
    "copied": lambda root: put_unit(root, ORDERS, 10, unit(root, ORDERS, 3)),
}


@pytest.mark.parametrize("case", MISPLACED)
def test_a_record_that_may_be_where_it_says_stays_as_it_is(case: str, tmp_path: Path) -> None:
    root = made(tmp_path / "store")
    before = records_of(root, CONFIG), places_of(root, CONFIG)
    MISPLACED[case](root)
    report = salvage(root, CONFIG, tmp_path / "new")
    new = tmp_path / "new"
    assert (records_of(new, CONFIG), places_of(new, CONFIG)) == before
    assert (report.restored, report.lost, report.is_complete) == (0, 0, True)
    assert not errors(new, CONFIG)


def test_a_queue_that_is_gone_but_for_a_unit_elsewhere(tmp_path: Path) -> None:
    root = made(tmp_path / "store")
    before = records_of(root, CONFIG), places_of(root, CONFIG)
    put_unit(root, ORDERS, 11, unit(root, "orders/1", 2))
    shutil.rmtree(root / "consumequeue/orders/1")
    salvage(root, CONFIG, tmp_path / "new")
    new = tmp_path / "new"
    assert (records_of(new, CONFIG), places_of(new, CONFIG)) == before


def test_the_unit_of_the_only_message_of_a_queue(tmp_path: Path) -> None:
    root = made(tmp_path / "store")
    with MessageStore(root, CONFIG, writable=True) as store:
        assert store.put_message(MessageExtBrokerInner("orders", b"alone", 7)).is_ok
    before = records_of(root, CONFIG), places_of(root, CONFIG)
    moved(root, "orders/7", 0, "orders/7", 3)
    salvage(root, CONFIG, tmp_path / "new")
    new = tmp_path / "new"
    assert (records_of(new, CONFIG), places_of(new, CONFIG)) == before


@pytest.mark.parametrize("queue_offset", [0, 3])
def test_a_light_queue_that_lacks_a_unit_changes_no_record(
    queue_offset: int, tmp_path: Path
) -> None:
    """The unit of another of its queues, which no topic of the record names, is no proof."""
    root = made(tmp_path / "store", LIGHT)
    before = records_of(root, LIGHT), places_of(root, LIGHT)
    put_unit(root, "%LMQ%one/0", queue_offset, bytes(UNIT_SIZE))
    report = salvage(root, LIGHT, tmp_path / "new")
    new = tmp_path / "new"
    assert (records_of(new, LIGHT), places_of(new, LIGHT)) == before
    assert (report.restored, report.is_complete) == (0, True)


def test_a_record_without_unit_and_one_of_its_light_queues(tmp_path: Path) -> None:
    root = made(tmp_path / "store", LIGHT)
    before = records_of(root, LIGHT), places_of(root, LIGHT)
    put_unit(root, ORDERS, 0, bytes(UNIT_SIZE))
    put_unit(root, "orders/1", 0, bytes(UNIT_SIZE))
    salvage(root, LIGHT, tmp_path / "new")
    new = tmp_path / "new"
    assert (records_of(new, LIGHT), places_of(new, LIGHT)) == before


@pytest.mark.parametrize("queue_offset", [10, 16, 64])
def test_a_queue_offset_that_the_first_record_does_not_have(
    queue_offset: int, tmp_path: Path
) -> None:
    """Where no unit is, a file has zeros, which are the physical offset of this record."""
    root = made(tmp_path / "store")
    before = records_of(root, CONFIG)
    patched(root, 20, queue_offset.to_bytes(8, "big"))
    report = salvage(root, CONFIG, tmp_path / "new")
    assert records_of(tmp_path / "new", CONFIG) == before
    assert (report.restored, report.is_complete) == (1, True)
