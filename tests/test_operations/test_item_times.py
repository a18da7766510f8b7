"""The store times that index items are shown with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.look.index import query_items
from rmqctl.operations.look.walk import Selection, walk_index

if TYPE_CHECKING:
    from rmqctl.rows.structures import IndexItemRow

CONFIG = MessageStoreConfig(max_hash_slot_num=7, max_index_num=4)


def make_store_with_pauses(root: Path, pause: int) -> list[int]:
    """A store with three index files, and ``pause`` ms between two messages; returns their store
    times."""
    times = [1_700_000_000_000 + number * pause for number in range(8)]
    clock = iter(times)
    with MessageStore(root, CONFIG, writable=True, create=True, clock=lambda: next(clock)) as store:
        for _ in times:
            store.put_message(MessageExtBrokerInner("t", b"", 0, properties={"KEYS": "k"}))
    return times


@pytest.mark.parametrize("pause", [1000, 60_000, 3_600_000])
def test_an_item_tells_its_messages_store_time(tmp_path: Path, pause: int) -> None:
    """Item 1 of a file counts its seconds from the end of the file before: a pause between two
    files does not count twice in the time that is shown."""
    times = make_store_with_pauses(tmp_path / "store", pause)
    with MessageStore(tmp_path / "store", CONFIG) as store:
        assert [row["store_timestamp"] for row in walked(store)] == times
        for n, time in enumerate(times):
            assert [row["store_timestamp"] for row in walked(store, until=time)] == times[: n + 1]
        rows = query_items(store, "t", "k")
        found = [row["store_timestamp"] for row in rows if row["type"] == "index_item"]
        assert found == times[::-1]


def walked(store: MessageStore, until: int | None = None) -> list[IndexItemRow]:
    rows = walk_index(store, Selection(until=until))
    return [row for row in rows if row["type"] == "index_item"]
