"""Offsets by time: bisection against a scan, and what holds when a clock was set back."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.read.bytime import Boundary, Times, bisect, scan, store_times
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from tests.seeds import times

Listed = list[int | None]
_TIMES = st.lists(st.one_of(st.integers(0, 12), st.none()), max_size=24)


def of(listed: Listed, low: int) -> Times:
    """Times of the messages from queue offset ``low`` on."""

    def at(queue_offset: int) -> int | None:
        assert low <= queue_offset < low + len(listed), "looks outside the queue"
        return listed[queue_offset - low]

    return at


def rising(listed: Listed) -> Listed:
    """The same, readable ones in order; unreadable ones stay where they are."""
    known = iter(sorted(time for time in listed if time is not None))
    return [None if time is None else next(known) for time in listed]


@settings(max_examples=times(500), deadline=None)
@given(_TIMES, st.integers(-1, 13), st.sampled_from(Boundary), st.integers(0, 5))
def test_bisection_answers_what_a_scan_does(
    listed: Listed, time: int, boundary: Boundary, low: int
) -> None:
    listed = rising(listed)
    bounds = low, low + len(listed)
    times = of(listed, low)
    assert bisect(times, *bounds, time, boundary) == scan(times, *bounds, time, boundary)


@settings(max_examples=times(500), deadline=None)
@given(_TIMES, st.integers(-1, 13))
def test_a_scan_answers_by_the_definition(listed: Listed, time: int) -> None:
    """Also where times fall."""
    known = [(at, found) for at, found in enumerate(listed) if found is not None]

    def scanned(boundary: Boundary) -> int | None:
        return scan(of(listed, 0), 0, len(listed), time, boundary)

    equal = [at for at, found in known if found == time]
    assert scanned(Boundary.FIRST) == (equal[0] if equal else None)
    assert scanned(Boundary.LAST) == (equal[-1] if equal else None)
    before = [at for at, found in known if found <= time]
    assert scanned(Boundary.FLOOR) == (before[-1] if before else None)
    after = [at for at, found in known if found >= time]
    assert scanned(Boundary.CEIL) == (after[0] if after else None)
    nearest = scanned(Boundary.NEAREST)
    assert (nearest is None) is (not known)
    if nearest is not None:
        found = listed[nearest]
        assert found is not None
        best = min(abs(other - time) for _, other in known)
        assert abs(found - time) == best
        assert found <= time or time - best not in [other for _, other in known]


@settings(max_examples=times(500), deadline=None)
@given(_TIMES, st.integers(-1, 13))
def test_with_a_clock_set_back_a_bisection_still_finds_a_crossing(
    listed: Listed, time: int
) -> None:
    known = [(at, found) for at, found in enumerate(listed) if found is not None]
    places = [at for at, _ in known]
    ceil = bisect(of(listed, 0), 0, len(listed), time, Boundary.CEIL)
    if ceil is None:
        assert not known or known[-1][1] < time
    else:
        number = places.index(ceil)
        assert known[number][1] >= time
        assert number == 0 or known[number - 1][1] < time
    floor = bisect(of(listed, 0), 0, len(listed), time, Boundary.FLOOR)
    if floor is None:
        assert not known or known[0][1] > time
    else:
        number = places.index(floor)
        assert known[number][1] <= time
        assert number + 1 == len(known) or known[number + 1][1] > time


def test_of_messages_of_one_time_the_nearest_is_the_one_that_4_9_3_meets(tmp_path: Path) -> None:
    """``ConsumeQueue#getOffsetInQueueByTime`` begins in the middle of a file, here of ten units; in
    the last file that is the middle of those that there are."""
    now = iter([100] * 3 + [200] * 9 + [300] * 3)
    config = MessageStoreConfig(mapped_file_size_consume_queue=200)
    root = tmp_path / "s"
    with MessageStore(root, config, writable=True, create=True, clock=lambda: next(now)) as store:
        for _ in range(15):
            assert store.put_message(MessageExtBrokerInner("T", b"x"), flush=False).is_ok
        queue = store.consume_queue("T", 0)
        assert queue is not None
        at = store_times(store.commit_log, queue)
        for search in (bisect, scan):
            found = [search(at, 0, 15, time, Boundary.NEAREST) for time in (100, 200, 300)]
            assert found == [1, 4, 12]
            # The first units have expired.
            assert search(at, 4, 15, 200, Boundary.NEAREST) == 6
            firsts = [search(at, 0, 15, time, Boundary.FIRST) for time in (100, 200, 300)]
            assert firsts == [0, 3, 12]


@pytest.mark.parametrize(("gone", "nearest"), [(0, 1), (1, 0)])
def test_a_message_that_a_broker_deletes_meanwhile_is_not_the_nearest(
    gone: int, nearest: int
) -> None:
    """The search has found both sides of a time, and asks for their times once more."""
    asked: list[int] = []

    def times(queue_offset: int) -> int | None:
        asked.append(queue_offset)
        is_gone = queue_offset == gone and len(asked) == last_look
        return None if is_gone else queue_offset * 10

    last_look = 0
    bisect(times, 0, 2, 5, Boundary.NEAREST)
    last_look = max(number for number, one in enumerate(asked, 1) if one == gone)
    asked.clear()
    assert bisect(times, 0, 2, 5, Boundary.NEAREST) == nearest


@pytest.mark.parametrize("boundary", Boundary)
def test_bisection_reads_little(boundary: Boundary) -> None:
    asked = itertools.count()

    def times(queue_offset: int) -> int:
        next(asked)
        return queue_offset // 3

    assert bisect(times, 0, 1_000_000, 123_456, boundary) in (370_368, 370_370)
    assert next(asked) < 50


def test_the_times_of_files_say_nothing(tmp_path: Path) -> None:
    clock = iter([1000, 1000, 2000, 2000, 2000, 5000])
    config = MessageStoreConfig(
        mapped_file_size_commit_log=1000,
        mapped_file_size_consume_queue=60,
        max_hash_slot_num=10,
        max_index_num=20,
    )
    root = tmp_path / "store"
    with MessageStore(
        root, config, writable=True, create=True, clock=lambda: next(clock)
    ) as writer:
        for number in range(6):
            writer.put_message(MessageExtBrokerInner("T", b"b%d" % number, 0))
    for number, path in enumerate(sorted((root / "consumequeue").rglob("0*"))):
        os.utime(path, (10**9 - number, 10**9 - number))
    with MessageStore(root, config) as store:
        queue = store.consume_queue("T", 0)
        assert queue is not None and len(queue.files.entries) == 2
        times = store_times(store.commit_log, queue)
        wanted = {
            (2000, Boundary.FIRST): 2,
            (2000, Boundary.LAST): 4,
            (2000, Boundary.FLOOR): 4,
            (2000, Boundary.CEIL): 2,
            (2000, Boundary.NEAREST): 2,
            (3499, Boundary.NEAREST): 4,
            (3500, Boundary.NEAREST): 4,
            (3501, Boundary.NEAREST): 5,
            (1500, Boundary.FIRST): None,
            (999, Boundary.FLOOR): None,
            (5001, Boundary.CEIL): None,
        }
        for (time, boundary), offset in wanted.items():
            assert bisect(times, 0, 6, time, boundary) == offset, (time, boundary)
