"""What is asked for by time is looked for in the files that may hold it, and in no others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from rmqctl.engine.log.times import CLOCK_SLACK
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.operations.look.du import Usage, usage
from rmqctl.operations.look.find import Wanted, find
from rmqctl.operations.look.walk import Selection, commit_log_lines, walk_commit_log
from rmqctl.rows import Row
from tests.test_cli.conftest import CONFIG, message

_T0, _STEP = 1_700_000_000_000, 20 * 60_000
#: Times that are asked for: late, early, in the middle, before and behind all.
TIMES: list[tuple[int | None, int | None]] = [
    (_T0 + 190 * _STEP, None),
    (None, _T0 + 9 * _STEP),
    (_T0 + 40 * _STEP, _T0 + 44 * _STEP),
    (None, _T0 - 9 * _STEP),
    (_T0 + 900 * _STEP, None),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    """Two hundred messages twenty minutes apart, in many files."""
    root: Path = tmp_path_factory.mktemp("since") / "store"
    ticks = iter(_T0 + n * _STEP for n in range(300))
    with MessageStore(root, CONFIG, writable=True, create=True, clock=lambda: next(ticks)) as new:
        for number in range(200):
            assert new.put_message(message(number)).is_ok
    with MessageStore(root, CONFIG) as opened:
        yield opened


@pytest.fixture
def files_read(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The files that walks and scans have read since: what looks at first records is none."""
    read: set[int] = set()
    log = store.commit_log
    walk, step, scan = log._walk, log.step, Scanner._scan

    def step_noted(number: int, position: int):  # type: ignore[no-untyped-def]
        if number < len(log.files.entries):
            read.add(number)
        return step(number, position)

    def noted(start: int | None, end: int | None) -> None:
        first = 0 if start is None else log.files.index_of(start)
        places = [entry.file_from_offset for entry in log.files.entries]
        read.update(n for n, at in enumerate(places) if n >= first and (end is None or at < end))

    def scan_noted(self, reader, start, end, *windows):  # type: ignore[no-untyped-def]
        noted(start, end)
        return scan(self, reader, start, end, *windows)

    def walk_noted(start, end, reader):  # type: ignore[no-untyped-def]
        noted(start, end)
        return walk(start, end, reader)

    monkeypatch.setattr(log, "step", step_noted)
    monkeypatch.setattr(log, "_walk", walk_noted)
    monkeypatch.setattr(Scanner, "_scan", scan_noted)
    return read


def places_of(rows: list[Row]) -> list[int]:
    return [row["physical_offset"] for row in rows if row["type"] == "message"]


def wanted(store: MessageStore, since: int | None, until: int | None) -> list[int]:
    low, high = since or 0, until or 1 << 62
    rows = [row for row in walk_commit_log(store, Selection()) if row["type"] == "message"]
    return [row["physical_offset"] for row in rows if low <= row["store_timestamp"] <= high]


def most_files(store: MessageStore, expected: list[int]) -> int:
    """Those with messages of the time, and for the slack, which is less than a file's time, one
    before and one behind them; the last file may have any later time."""
    files = {store.commit_log.files.index_of(at) for at in expected}
    return len(files) + 2 if files else 1


@pytest.mark.parametrize(("since", "until"), TIMES)
def test_a_walk_has_the_same_rows_and_reads_few_files(
    store: MessageStore, files_read: set[int], since: int | None, until: int | None
) -> None:
    expected, files = wanted(store, since, until), len(store.commit_log.files.entries)
    assert len(files_read) == files > 12
    files_read.clear()
    what = Selection(since=since, until=until)
    rows: list[Row] = list(walk_commit_log(store, what))
    assert places_of(rows) == expected
    reach = most_files(store, expected)
    assert len(files_read) <= reach
    lines = list(commit_log_lines(store, what, "none", "ndjson"))
    assert lines[-1] == rows[-1]
    told = sum(one.messages if isinstance(one, tuple) else 1 for one in lines[:-1])
    assert told == len(expected)
    assert len(files_read) <= reach


def test_a_walk_goes_on_where_it_stopped(store: MessageStore) -> None:
    since, until = TIMES[2]
    expected = wanted(store, since, until)
    rows: list[Row] = list(walk_commit_log(store, Selection(since=since, until=until, limit=2)))
    start = rows[-1]["next_offset"]
    more: list[Row] = list(walk_commit_log(store, Selection(start=start, since=since, until=until)))
    assert places_of(rows) + places_of(more) == expected
    end = more[-1]["next_offset"]
    assert expected[-1] < end < store.max_offset
    later: list[Row] = list(walk_commit_log(store, Selection(start=end, since=since)))
    assert places_of(later) == wanted(store, since, None)[-len(places_of(later)) :]


def test_a_walk_that_reads_no_file_has_passed_over_those_that_are_too_old(
    store: MessageStore,
) -> None:
    def stopped(what: Selection) -> int:
        rows: list[Row] = list(walk_commit_log(store, what))
        (summary,) = rows
        assert list(commit_log_lines(store, what, "none", "ndjson")) == rows
        offset: int = summary["next_offset"]
        return offset

    places = [entry.file_from_offset for entry in store.commit_log.files.entries]
    end, late, early = store.max_offset, 1 << 50, _T0 - 9 * _STEP
    assert stopped(Selection(since=late)) == end > places[-1]
    assert stopped(Selection(since=late, start=places[2])) == end
    assert stopped(Selection(since=late, end=places[3])) == places[3]
    assert stopped(Selection(until=early)) == 0
    assert stopped(Selection(since=early - 1, until=early)) == 0
    assert stopped(Selection(until=early, start=places[2])) == places[2]


@pytest.mark.parametrize(("since", "until"), TIMES)
def test_du_and_find_scan_read_few_files(
    store: MessageStore, files_read: set[int], since: int | None, until: int | None
) -> None:
    expected, entries = wanted(store, since, until), store.commit_log.files.entries
    files_read.clear()
    *_, summary = usage(store, Usage(since=since, until=until))
    assert summary["type"] == "summary" and summary["messages"] == len(expected)
    reach = most_files(store, expected)
    assert len(files_read) <= reach
    files_read.clear()
    rows: list[Row] = list(find(store, Wanted("bo", None, since, until, scans=True)))
    assert places_of(rows) == expected
    assert len(files_read) <= reach
    assert rows[-1]["scanned_bytes"] <= sum(entries[number].size for number in files_read)


def test_an_hour_of_slack_is_left(store: MessageStore, files_read: set[int]) -> None:
    """A clock may have gone back by that, so the file before is read as well."""
    entries = store.commit_log.files.entries
    firsts = [store.commit_log.record_at(entry.file_from_offset) for entry in entries]
    for (number, _), (_, behind) in pairwise(enumerate(firsts)):
        files_read.clear()
        since = behind.store_timestamp
        list(walk_commit_log(store, Selection(since=since, until=since + CLOCK_SLACK)))
        assert {number, number + 1} <= files_read
