"""Keys that several messages have: few are held at a time, and no turn sorts all hashes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.constants import PROPERTY_KEYS, PROPERTY_UNIQ_KEY
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.errors import TooMuchHere
from rmqctl.operations.look import duplicatekeys
from rmqctl.operations.look.duplicatekeys import DuplicateKeys
from tests.test_cli.conftest import message

#: Keys of the messages, and a unique key; in hashes "Aa" is "BB".
TOLD = [
    ("a b a", "u1"),
    ("b", "u1"),
    ("Aa", None),
    ("BB BB", None),
    ("  ", "u 2"),
    ("c\u00e9  b", "u 2"),
    ("c\u00e9", None),
    *((f"k{number // 3}", f"n{number}") for number in range(30)),
]


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    with MessageStore(tmp_path, writable=True, create=True) as made:
        for number, (keys, unique) in enumerate(TOLD):
            properties = {"KEYS": keys} | ({} if unique is None else {"UNIQ_KEY": unique})
            one = message(number, topic="ab"[number % 2 :], properties=properties)
            assert made.put_message(one).is_ok
    return MessageStore(tmp_path)


def hashes_of(*stores: MessageStore) -> list[Any]:
    return [
        entry.key_hash
        for store in stores
        for entry in Scanner(store.commit_log).scan()
        if isinstance(entry, Batch)
    ]


def expected(store: MessageStore, times: int) -> dict[tuple[str, str, str], int]:
    """The keys that several messages have, of a store that is there so many times."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for record in store.commit_log.walk():
        if isinstance(record, Record):
            texts = record.properties.get(PROPERTY_KEYS, "").split(" ")
            counts.update({(record.topic, PROPERTY_KEYS, text) for text in texts if text})
            if PROPERTY_UNIQ_KEY in record.properties:
                unique = record.properties[PROPERTY_UNIQ_KEY]
                counts[record.topic, PROPERTY_UNIQ_KEY, unique] += 1
    return {key: times * count for key, count in counts.items() if times * count > 1}


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("at_once", [1, 3, 1 << 21])
def test_in_few_or_many_turns_the_keys_are_the_same(
    at_once: int, times: int, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicatekeys, "HASHES_AT_ONCE", at_once)
    told: list[int] = []
    stores = [store] * times
    keys = DuplicateKeys(hashes_of(*stores), 1000)
    keys.count(stores, told.append)
    rows = {(row["topic"], row["kind"], row["key"]): row["messages"] for row in keys.rows()}
    assert rows == expected(store, times)
    assert (keys.number, keys.messages) == (len(rows), sum(rows.values()))
    assert told == sorted(told) and told[-1] == times * (store.max_offset - store.min_offset)
    few = DuplicateKeys(hashes_of(*stores), 5)
    few.count(stores, told.append)
    assert list(few.rows()) == list(keys.rows())[:5] and few.number == keys.number


def test_only_the_keys_of_one_turn_are_held(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicatekeys, "HASHES_AT_ONCE", 4)
    monkeypatch.setattr(duplicatekeys, "MAX_HELD", 5)  # Two of them have one hash.
    keys = DuplicateKeys(hashes_of(store), 5)
    keys.count([store], lambda done: None)
    assert keys.number > 5
    monkeypatch.setattr(duplicatekeys, "MAX_HELD", 3)
    with pytest.raises(TooMuchHere, match="3 keys"):
        DuplicateKeys(hashes_of(store), 5).count([store], lambda done: None)


def test_a_batch_bisects_the_suspects_and_nothing_more(store: MessageStore) -> None:
    asked: set[str] = set()

    class Watched(np.ndarray[Any, Any]):
        def __array_function__(self, function: Any, *rest: Any) -> Any:
            asked.add(function.__name__)
            return super().__array_function__(function, *rest)

    suspects = np.unique(np.concatenate(hashes_of(store))).view(Watched)
    for entry in Scanner(store.commit_log).scan():
        if isinstance(entry, Batch):
            duplicatekeys._is_among(entry.key_hash, suspects)
    assert asked == {"searchsorted"}
