"""Which files of a log may hold messages of a time: nothing is missed, and the rest is not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.log.times import CLOCK_SLACK, may_hold, stretches
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Damage, Record
from tests.test_cli.conftest import CONFIG, message

_T0, _STEP = 1_700_000_000_000, 20 * 60_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Eighty messages twenty minutes apart, in five files or so; the clock goes back half an hour
    each third one."""
    ticks = iter(_T0 + n * _STEP - (n % 3 == 2) * CLOCK_SLACK // 2 for n in range(100))
    root = tmp_path / "store"
    with MessageStore(
        root, CONFIG, writable=True, create=True, clock=lambda: next(ticks)
    ) as opened:
        for number in range(80):
            assert opened.put_message(message(number)).is_ok
    return root


def found(log: CommitLog, since: int | None, until: int | None) -> list[int]:
    return [
        entry.physical_offset
        for part in stretches(log, since, until)
        for entry in log.walk(*part)
        if isinstance(entry, Record)
        and (since is None or entry.store_timestamp >= since)
        and (until is None or entry.store_timestamp <= until)
    ]


def test_no_message_of_a_time_is_missed(store: Path) -> None:
    with MessageStore(store, CONFIG) as opened:
        log = opened.commit_log
        times = {
            one.physical_offset: one.store_timestamp
            for one in log.walk()
            if isinstance(one, Record)
        }
        moments = [None, *range(_T0 - _STEP, _T0 + 82 * _STEP, 7 * _STEP)]
        for since in moments:
            for until in moments:
                low, high = since or 0, until or 1 << 62
                wanted = [at for at, time in times.items() if low <= time <= high]
                assert found(log, since, until) == wanted


def test_files_of_other_times_are_not_read(store: Path) -> None:
    with MessageStore(store, CONFIG) as opened:
        log = opened.commit_log
        files = [entry.file_from_offset for entry in log.files.entries]
        assert len(files) > 5
        assert list(stretches(log, None, None)) == [(None, None)]
        assert list(stretches(log, None, None, 5000)) == [(None, 5000)]
        late, early = _T0 + 70 * _STEP, _T0 + 2 * _STEP
        ((start, end),) = stretches(log, late, None)
        assert start in files[2:] and end is None
        ((start, end),) = stretches(log, None, early)
        assert start == 0 and end in files[:-2]
        assert list(stretches(log, late, None, files[1])) == []
        assert list(stretches(log, _T0 - 10 * CLOCK_SLACK, _T0 - 9 * CLOCK_SLACK)) == []
        assert all(may_hold(log, number, late, late, -1) for number in range(len(files)))


def test_a_range_of_places_is_kept_to(store: Path) -> None:
    with MessageStore(store, CONFIG) as opened:
        log = opened.commit_log
        files = [entry.file_from_offset for entry in log.files.entries]
        places = [one.physical_offset for one in log.walk() if isinstance(one, Record)]
        late = _T0 + 40 * _STEP
        ((whole, end),) = stretches(log, late, None)
        assert whole is not None and end is None
        within = next(at for at in places if at > files[files.index(whole) + 1])
        assert list(stretches(log, late, None, start=within)) == [(within, None)]
        assert list(stretches(log, late, None, start=places[1])) == [(whole, None)]
        assert list(stretches(log, None, _T0, start=within)) == []
        assert list(stretches(log, None, None, 9000, start=within)) == [(within, 9000)]


def test_a_file_whose_first_records_are_damaged_is_read(store: Path) -> None:
    with (store / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.write(b"\xff" * 8)
    with MessageStore(store, CONFIG) as opened:
        log, long_before = opened.commit_log, _T0 - 10 * CLOCK_SLACK
        ((start, end),) = stretches(log, long_before, long_before)
        assert start == 0 and end is not None
        assert isinstance(next(log.walk(start, end)), Damage)


def test_what_no_file_holds_belongs_to_the_file_before_it(store: Path) -> None:
    files = sorted((store / "commitlog").iterdir())
    files[2].unlink()
    with MessageStore(store, CONFIG) as opened:
        log = opened.commit_log
        whole = [entry for entry in log.walk() if isinstance(entry, Damage)]
        assert [one.reason for one in whole] == ["commitlog-file-missing"]
        gap = int(files[2].name)
        before, behind = (log.find_record(at) for at in (int(files[1].name), int(files[3].name)))
        assert before is not None and behind is not None

        def gaps(since: int, until: int) -> list[int]:
            parts = stretches(log, since, until)
            entries = (entry for part in parts for entry in log.walk(*part))
            return [one.physical_offset for one in entries if isinstance(one, Damage)]

        within = (before.store_timestamp + behind.store_timestamp) // 2
        assert gaps(within, within) == [gap]
        late = behind.store_timestamp + 5 * CLOCK_SLACK
        assert gaps(late, late) == gaps(_T0, _T0) == []
