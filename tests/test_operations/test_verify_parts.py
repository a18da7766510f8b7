"""A check in parts says what one check of all says: units that were looked up where their records
were read, and the index some files at a time."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from rmqctl.engine.derive.writer import group_by_queue
from rmqctl.engine.dispatch.batches import KeyBatch, UnitBatch, marked_key_batch, unit_batch
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.files.paths import queue_directories
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.verify import Finding, Summary, inparts, verify
from rmqctl.operations.verify import index as whole
from rmqctl.operations.verify import indexparts as index_parts
from tests.faults.anatomy import dissect
from tests.faults.kinds import done, draw
from tests.golden_data import copy_tree, make_one_of_5_4
from tests.seeds import times

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 15,
    mapped_file_size_consume_queue=600,
    max_hash_slot_num=7,
    max_index_num=41,
    explicit=frozenset(("max_hash_slot_num", "max_index_num")),
)
#: So many keys are checked at once: a border lies in the middle of them.
KEYS_AT_ONCE = 64
PACKED = np.dtype([(name, "<i8") for name in UnitBatch._fields[2:]])


@pytest.fixture(scope="module", params=["of 4.9.3", "of 5.4", "upgraded"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some index files, whose borders lie between two records and within one; of 5.4 with items of
    tags, of an upgraded store the second half."""
    root = tmp_path_factory.mktemp("parts") / f"store {request.param}"
    for half in range(2):
        if request.param == "of 5.4" or (request.param == "upgraded" and half):
            make_one_of_5_4(root)
        with MessageStore(root, CONFIG, writable=True, create=True) as opened:
            for number in range(110 * half, 110 * (half + 1)):
                keys = " ".join(f"k{number % 50} k{number}".split()[: number % 4])
                properties = {"TAGS": f"tag{number % 5}"} if number % 3 else {}
                properties |= {"KEYS": keys} if keys else {}
                topic = f"t{number % 3 % 2}"
                message = MessageExtBrokerInner(topic, b"x" * 150, 0, properties=properties)
                assert opened.put_message(message, flush=False).is_ok
    return root


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "KEYS_AT_ONCE", KEYS_AT_ONCE)
    monkeypatch.setattr(index_parts, "KEYS_AT_ONCE", KEYS_AT_ONCE)


class Checked(NamedTuple):
    findings: list[str]
    summary: Summary
    #: How many parts the index had at last, how often one was checked, how many units were found.
    parts: int = 0
    checks: int = 0
    stored: int = 0


def at_once(root: Path) -> Checked:
    *found, summary = verify(root, CONFIG)
    assert isinstance(summary, Summary)
    return Checked(sorted(map(str, found)), summary)


def in_parts(root: Path) -> Checked:
    """As tasks would do it, each with what only it knows."""
    side = inparts.StoreSide(root, CONFIG)
    with closing(side.log):
        return _in_parts(side)


def _in_parts(side: inparts.StoreSide) -> Checked:
    snapshot, dispatcher = side.snapshot, Dispatcher(CONFIG)
    found = list(side.before())
    borders = index_parts.index_borders(snapshot, 1)
    scanner = Scanner(side.log, check=True, indexes_tags=snapshot.dispatcher().indexes_tags)
    log = inparts.LogSide(snapshot, side.log)
    looked, stored = inparts.UnitsLookup(snapshot, 1), 0
    units: dict[tuple[str, int], list[UnitBatch | inparts.StoredUnits]] = defaultdict(list)
    for where in queue_directories(snapshot.path / "consumequeue"):
        units[where.topic, where.queue_id] = []
    keys: list[KeyBatch] = []
    for entry in scanner.scan():
        log.add(entry)
        if not isinstance(entry, Batch):
            continue
        keys.append(marked_key_batch(entry))
        batch = unit_batch(entry, dispatcher)
        for topic_id, queue_id, rows in group_by_queue(batch.topic_id, batch.queue_id):
            topic = scanner.topics.names[topic_id]
            for some in np.array_split(rows, -(-len(rows) // 9)):
                packed = np.empty(len(some), PACKED)
                for name in PACKED.names or ():
                    packed[name] = getattr(batch, name)[some]
                one = looked.find(topic, queue_id, packed)
                stored += one is not None
                units[topic, queue_id].append(one or UnitBatch(*(column[some] for column in batch)))
    part = log.finish()
    found += side.join([part])
    queues = inparts.QueueSide(snapshot, part.damage, side.summary.max_offset)
    for (topic, queue_id), some_units in units.items():
        number = queues.number(topic)
        found += queues.check(topic, queue_id, _renumbered(some_units, number))
    found += side.together([queues.waits()])
    side.summary.units += queues.units
    # The log in two parts, as far as its keys are concerned.
    counted = [index_parts.PartKeys(borders) for _ in "12"]
    for batch_no, some_keys in enumerate(keys):
        counted[2 * batch_no >= len(keys)].add(some_keys)
    parts, before = index_parts.plan_parts(borders, counted)
    every = KeyBatch.joined(keys) if keys else None
    checked: dict[index_parts.IndexPart, inparts.IndexSide] = {}
    told: dict[index_parts.IndexPart, list[Finding]] = {}
    while True:
        for one_part in parts:
            if one_part not in checked:
                index = inparts.IndexSide(snapshot, part.damage, side.summary.max_offset, one_part)
                low, high = one_part.first_key, one_part.end_key
                given = [every.part(low, high)] if every is not None else []
                told[one_part], checked[one_part] = list(index.check(given)), index
        ends = {one_part: checked[one_part].end for one_part in parts}
        if not index_parts.unmet(parts, ends):
            break
        parts = index_parts.joined(parts, ends, before[-1])
    for one_part in parts:
        found += told[one_part]
        side.summary.index_items += checked[one_part].items
    found += side.after()
    for one_found in found:
        side.summary.severities[one_found.severity] += 1
    return Checked(sorted(map(str, found)), side.summary, len(parts), len(checked), stored)


def _renumbered(
    units: list[UnitBatch | inparts.StoredUnits], number: int
) -> Iterator[UnitBatch | inparts.StoredUnits]:
    for one in units:
        if isinstance(one, UnitBatch):
            one = one._replace(topic_id=np.full(len(one.size), number))
        yield one


def test_a_sound_store_is_checked_in_as_many_parts_as_it_has_files(store: Path) -> None:
    found, expected = in_parts(store), at_once(store)
    assert (found.findings, found.summary) == (expected.findings, expected.summary)
    files = len(list((store / "index").iterdir()))
    if "upgraded" in store.name:
        # The premise of a part is that messages have items of tags; before the upgrade none has.
        assert 5 < found.parts < found.checks
    else:
        assert found.parts == found.checks == files > 5
    # All but some short rests were looked up.
    assert found.stored * 9 >= found.summary.units > 200


def test_parts_say_what_the_whole_does_of_any_fault(store: Path, chance: random.Random) -> None:
    anatomy = dissect(store, CONFIG)
    joined, kept = 0, 0
    for _ in range(times(120 if "4.9.3" in store.name else 40)):
        fault = draw(chance, anatomy)
        with done(fault, store):
            found, expected = in_parts(store), at_once(store)
        assert found.findings == expected.findings, fault
        assert found.summary == expected.summary, fault
        joined += found.checks > found.parts
        kept += found.parts > 1
    # Some faults are where parts meet, and most are not.
    assert joined > 0
    assert kept > joined


def test_files_that_have_changed_places_are_told_alike(store: Path, tmp_path: Path) -> None:
    """Units are expected elsewhere from one record to the next, amid a bulk of records or at its
    border."""
    root = copy_tree(store, tmp_path / "store")
    first, *_, last = sorted((root / "consumequeue/t1/0").iterdir())
    content = first.read_bytes()
    first.write_bytes(last.read_bytes())
    last.write_bytes(content)
    found, expected = in_parts(root), at_once(root)
    assert found.findings == expected.findings != []
    assert found.summary == expected.summary


@pytest.mark.parametrize("damaged", [0, 1, 12])
@pytest.mark.parametrize("is_begun_again", [False, True])
def test_offsets_that_were_given_twice_are_told_alike(
    tmp_path: Path, is_begun_again: bool, damaged: int
) -> None:
    """More of them than records are compared at once; the units are those of the first records or
    of the later ones, and the first of these may be damaged."""
    root = tmp_path / "store"
    queue = root / "consumequeue" / "t" / "0"

    def put(count: int) -> None:
        # With the unit of the last record no start takes the queue for one to be made anew.
        with MessageStore(root, CONFIG, writable=True, create=True) as opened:
            for topic in ["t"] * count + ["other"]:
                message = MessageExtBrokerInner(topic, b"x" * 150, 0, properties={"KEYS": "k"})
                assert opened.put_message(message, flush=False).is_ok

    put(70)
    first = copy_tree(queue, tmp_path / "first")
    shutil.rmtree(queue)
    put(35)
    if not is_begun_again:
        shutil.rmtree(queue)
        first.rename(queue)
    file = min(queue.iterdir())
    file.write_bytes(b"\x01" * 20 * damaged + file.read_bytes()[20 * damaged :])
    found, expected = in_parts(root), at_once(root)
    assert found.findings == expected.findings
    assert found.summary == expected.summary
    told = {one.code: one.found for one in verify(root, CONFIG) if isinstance(one, Finding)}
    assert told.keys() == {
        *(["queue-begun-again"] if is_begun_again else []),
        *(["queue-offset-repeated"] if damaged or not is_begun_again else []),
        *(["unit-mismatch"] if damaged and not is_begun_again else []),
    }
    twice = damaged if is_begun_again else 35
    assert told.get("queue-offset-repeated", "0") == (
        f"{twice} records from 0" if twice > 1 else "0"
    )


def test_a_file_that_goes_meanwhile_moves_no_border(store: Path, tmp_path: Path) -> None:
    """As a broker's retention does it: parts go by the names that there were."""
    root = copy_tree(store, tmp_path / "store")
    side = inparts.StoreSide(root, CONFIG)
    with closing(side.log):
        borders = index_parts.index_borders(side.snapshot, 1)
        counted = index_parts.PartKeys(borders)
        scanner = Scanner(side.log, indexes_tags=side.snapshot.dispatcher().indexes_tags)
        batches = [entry for entry in scanner.scan() if isinstance(entry, Batch)]
        keys = KeyBatch.joined([marked_key_batch(entry) for entry in batches])
        counted.add(keys)
        parts, _ = index_parts.plan_parts(borders, [counted])
        end = side.log.files.end_offset
    sorted((root / "index").iterdir())[0].unlink()
    told, ends = [], []
    for part in parts[:3]:
        index = inparts.IndexSide(side.snapshot, [], end, part)
        told.append(list(index.check([keys.part(part.first_key, part.end_key)])))
        ends.append(index.end)
    # The first two leave something open and are checked again, together; the third is as it was.
    assert ends[0] is None and ends[2] is not None and parts[3].start is not None
    assert ends[2]._replace(has_tags=parts[3].start.has_tags) == parts[3].start
    assert told[2] == []
