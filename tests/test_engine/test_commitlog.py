"""CommitLog: what a walk sees in a log that grows under it, behind holes, and behind its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.log import commitlog
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import UNIT_SIZE
from rmqctl.engine.record.message import EncodedMessage, MessageExtBrokerInner, encode
from rmqctl.engine.record.record import Blank, Damage, End, Entry, Record
from rmqctl.engine.scan.backend import ScanBackend, WindowReader, backends
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.plain import Plain
from rmqctl.engine.scan.pure import PureReader
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.errors import DamagedStore, ReadersDisagree
from tests.test_engine.test_messagestore import SMALL, is_clean, small_store

FILE_SIZE = SMALL.mapped_file_size_commit_log


def make_log(root: Path, count: int) -> list[Entry]:
    """A store with so many messages of 300 bytes; the entries of its log."""
    with small_store(root) as store:
        for number in range(count):
            properties = {"TAGS": "a", "KEYS": f"k{number}"}
            message = MessageExtBrokerInner("T", bytes((65 + number,)) * 300, properties=properties)
            assert store.put_message(message, flush=False).is_ok
        return list(store.commit_log.walk())


class Growing:
    """A log of which everything from an offset on is still to come: zeros, in files that are there.
    ``grow`` writes it."""

    def __init__(self, root: Path, offset: int) -> None:
        self._later = {}
        for path in sorted((root / "commitlog").iterdir()):
            start = max(offset - int(path.name), 0)
            data = path.read_bytes()
            if start < len(data):
                self._later[path] = start, data[start:]
                self._write(path, start, bytes(len(data) - start))

    @staticmethod
    def _write(path: Path, start: int, data: bytes) -> None:
        with path.open("r+b") as file:
            file.seek(start)
            file.write(data)

    def grow(self) -> None:
        for path, (start, data) in self._later.items():
            self._write(path, start, data)
        self._later = {}


def once(
    patched: pytest.MonkeyPatch, where: Any, name: str, act: Callable[[], None], *, before: bool
) -> None:
    """``act`` before or after each call of a function; it is one that does something once."""
    original = getattr(where, name)

    def hooked(*args: Any, **kwargs: Any) -> Any:
        if before:
            act()
        found = original(*args, **kwargs)
        if not before:
            act()
        return found

    patched.setattr(where, name, hooked)


class Watched:
    """A backend after each of whose looks at a window something is done."""

    runs_ahead = False

    def __init__(self, backend: ScanBackend, act: Callable[[], None]) -> None:
        self.name = backend.name
        self._backend = backend
        self._act = act
        self._reader: WindowReader | None = None

    def reader(self, *args: Any, **kwargs: Any) -> WindowReader:
        self._reader = self._backend.reader(*args, **kwargs)
        return self

    def batches(self, *args: Any) -> Iterator[Batch | Plain]:
        assert self._reader is not None
        found = list(self._reader.batches(*args))
        self._act()
        yield from found

    def settle(self, batch: Batch | Plain) -> None:
        assert self._reader is not None
        self._reader.settle(batch)


every_backend = pytest.mark.parametrize("backend", backends().values(), ids=backends())


def walked(log: CommitLog) -> list[Entry]:
    return list(log.walk())


def scanned(log: CommitLog, backend: ScanBackend | None = None) -> list[Entry]:
    """The same by the scanner."""

    def entries() -> Iterator[Entry]:
        for entry in Scanner(log, backend=backend).scan():
            if isinstance(entry, Batch):
                yield from map(entry.record, range(len(entry)))
            else:
                yield entry

    return list(entries())


READERS = pytest.mark.parametrize("read", [walked, scanned])


@every_backend
@pytest.mark.parametrize("known", range(12))
def test_a_record_that_lands_behind_the_scanners_look(
    tmp_path: Path, known: int, backend: ScanBackend
) -> None:
    """Between the look at a window and the step that says what stands behind it."""
    entries = make_log(tmp_path, 12)
    log = Growing(tmp_path, entries[known].physical_offset)
    grown = Watched(backend, log.grow)
    assert scanned(CommitLog(tmp_path / "commitlog", FILE_SIZE), grown) == entries


@READERS
@pytest.mark.parametrize("known", range(14))
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(
    ("where", "name"),
    [
        (commitlog, "find_next"),
        (CommitLog, "holds_data"),
        (MappedFile, "first_nonzero"),
    ],
)
def test_records_that_land_while_what_follows_is_looked_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[CommitLog], list[Entry]],
    known: int,
    where: Any,
    name: str,
    before: bool,
) -> None:
    """Zeros are told as damage when records stand behind them: not when these were appended after
    the zeros were seen, in the same file or from there over the next one. Whoever sees the log end
    where it ended is right as well."""
    entries = make_log(tmp_path, 14)
    assert any(isinstance(entry, Blank) for entry in entries)
    offset = entries[known].physical_offset
    log = Growing(tmp_path, offset)
    once(monkeypatch, where, name, log.grow, before=before)
    found = read(CommitLog(tmp_path / "commitlog", FILE_SIZE))
    assert found in (entries, [*entries[:known], End(offset)])


def test_damage_that_stays_is_told(tmp_path: Path) -> None:
    entries = make_log(tmp_path, 4)
    first, second = entries[:2]
    assert isinstance(first, Record)
    path = tmp_path / "commitlog" / f"{0:020d}"
    Growing._write(path, 0, bytes(first.total_size))
    damage = Damage(0, second.physical_offset, "zeroed-records", "a record", "zeros")
    for read in (walked, scanned):
        assert read(CommitLog(tmp_path / "commitlog", FILE_SIZE)) == [damage, *entries[1:]]


def test_a_record_that_the_two_readers_see_differently_is_a_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = make_log(tmp_path, 2)
    monkeypatch.setattr(PureReader, "batches", lambda *_: iter(()))
    monkeypatch.setenv("RMQCTL_KERNEL", "pure")
    with pytest.raises(ReadersDisagree, match="scanner and walk disagree") as caught:
        scanned(CommitLog(tmp_path / "commitlog", FILE_SIZE))
    assert caught.value.physical_offset == first.physical_offset
    assert caught.value.exit_code == 70


def test_a_batch_over_bytes_that_are_no_record_says_so(tmp_path: Path) -> None:
    """Whatever makes its arrays wrong: nobody is given a blank for a record."""
    make_log(tmp_path, 2)
    batch = next(iter(Scanner(CommitLog(tmp_path / "commitlog", FILE_SIZE)).scan()))
    assert isinstance(batch, Batch)
    batch.position[1] += 1
    with pytest.raises(ReadersDisagree):
        batch.record(1)


@every_backend
def test_a_body_that_is_written_while_it_is_checked_is_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: ScanBackend
) -> None:
    # The whole check follows the variable, and this scanner has to be the one that it asks for.
    monkeypatch.delenv("RMQCTL_KERNEL", raising=False)
    *_, last, end = make_log(tmp_path, 5)
    assert isinstance(last, Record) and isinstance(end, End)
    path = tmp_path / "commitlog" / f"{0:020d}"
    body = path.read_bytes()[last.body_position :][: last.body_length]
    Growing._write(path, last.body_position, bytes(last.body_length))

    def write_body() -> None:
        Growing._write(path, last.body_position, body)

    written = Watched(backend, write_body)
    monkeypatch.setattr("rmqctl.engine.scan.scanner.chosen", lambda: written)
    assert is_clean(tmp_path)


# --- what stands behind a hole -----------------------------------------------------------

PAGE = 4096


def page_extents(mapped: MappedFile, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Holes of whole pages wherever a page is zeros, whatever the file system keeps."""
    data = mapped.read(0, mapped.size)
    pages = [any(data[low : low + PAGE]) for low in range(0, mapped.size, PAGE)]
    for is_data, group in groupby(range(start // PAGE, -(-end // PAGE)), pages.__getitem__):
        numbers = list(group)
        if is_data:
            yield max(numbers[0] * PAGE, start), min((numbers[-1] + 1) * PAGE, end)


@READERS
@pytest.mark.parametrize("kind", ["record", "blank"])
@pytest.mark.parametrize("into_hole", range(4))
def test_an_entry_that_begins_on_the_last_bytes_of_a_hole(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[CommitLog], list[Entry]],
    kind: str,
    into_hole: int,
) -> None:
    """The leading zeros of its size field belong to the hole."""
    # A blank of fewer bytes than 256 has three zeros, and lies in the file's last page.
    file_size = 4 * PAGE - (PAGE - 200 if kind == "blank" else 0)
    config = replace(SMALL, mapped_file_size_commit_log=file_size, max_message_size=file_size)
    with small_store(tmp_path, config) as store:
        empty = encode(MessageExtBrokerInner("T", b""), 1000)
        assert isinstance(empty, EncodedMessage)
        sizes = [PAGE - into_hole, 200, 300]
        if kind == "blank":
            sizes = [3 * PAGE - into_hole, 300]
        for size in sizes:
            message = MessageExtBrokerInner("T", b"x" * (size - empty.size))
            assert store.put_message(message, flush=False).is_ok
        entries = list(store.commit_log.walk())
    at = entries[1].physical_offset
    assert isinstance(entries[1], Blank if kind == "blank" else Record)
    Growing._write(tmp_path / "commitlog" / f"{0:020d}", 0, bytes(at))
    monkeypatch.setattr(MappedFile, "extents", page_extents)
    found = read(CommitLog(tmp_path / "commitlog", file_size))
    assert found == [Damage(0, at, "zeroed-records", "a record", "zeros"), *entries[1:]]


def test_a_record_whose_size_is_zeroed_at_the_edge_of_a_hole(tmp_path: Path) -> None:
    _, second, *_ = make_log(tmp_path, 3)
    assert isinstance(second, Record)
    edge = second.physical_offset + 4
    Growing._write(tmp_path / "commitlog" / f"{0:020d}", 0, bytes(edge))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MappedFile, "extents", lambda _, low, high: iter([(max(low, edge), high)]))
        zeros, damaged, *_ = walked(CommitLog(tmp_path / "commitlog", FILE_SIZE))
    assert zeros == Damage(0, second.physical_offset, "zeroed-records", "a record", "zeros")
    assert isinstance(damaged, Damage) and damaged.reason == "total-size-mismatch"
    assert damaged.length == second.total_size


# --- what stands behind the end of a log that is opened for writing ------------------------

#: So far behind the end zeros are followed when a store is opened, and no further.
NEAR = 1 << 20


def forget_units(root: Path, kept: int) -> None:
    """Leaves the first units of the queue: the log is then looked at from the last of them on."""
    path = root / "consumequeue" / "T" / "0" / f"{0:020d}"
    data = path.read_bytes()
    path.write_bytes(data[: kept * UNIT_SIZE].ljust(len(data), b"\0"))


@pytest.mark.parametrize(("time", "is_newer"), [(99, False), (100, True), (101, True)])
def test_a_record_of_the_same_millisecond_behind_damage_is_newer(
    tmp_path: Path, time: int, is_newer: bool
) -> None:
    """Many are stored within one: an append would overwrite one that was acknowledged. Older ones
    are what a truncation by the engine left."""
    times = iter([100, 100, time, 200])
    with MessageStore(
        tmp_path, SMALL, writable=True, create=True, clock=lambda: next(times)
    ) as store:
        for _ in range(3):
            assert store.put_message(MessageExtBrokerInner("T", b"x"), flush=False).is_ok
        _, damaged, *_ = store.commit_log.walk()
    forget_units(tmp_path, 1)
    Growing._write(tmp_path / "commitlog" / f"{0:020d}", damaged.physical_offset + 4, b"\xff")
    if is_newer:
        with pytest.raises(DamagedStore) as told:
            MessageStore(tmp_path, SMALL, writable=True)
        assert told.value.physical_offset == damaged.physical_offset
        return
    with MessageStore(tmp_path, SMALL, writable=True, clock=lambda: next(times)) as store:
        result = store.put_message(MessageExtBrokerInner("T", b"x"))
        assert result.append is not None
        assert result.append.wrote_offset == damaged.physical_offset


@pytest.mark.parametrize(("zeros", "is_near"), [(NEAR - 1, True), (NEAR, False)])
def test_zeros_behind_the_end_are_followed_for_a_while(
    tmp_path: Path, zeros: int, is_near: bool
) -> None:
    """A record stands behind exactly so many: just within what is looked at, and just beyond."""
    config = replace(SMALL, mapped_file_size_commit_log=4 * NEAR)
    with small_store(tmp_path, config, start=100) as store:
        assert store.put_message(MessageExtBrokerInner("T", b"x"), flush=False).is_ok
        end = store.max_offset
    encoded = encode(MessageExtBrokerInner("T", b"x"), 1000)
    assert isinstance(encoded, EncodedMessage) and encoded.size < 256
    # The first three bytes of its size are zeros as well.
    start = end + zeros - 3
    Growing._write(tmp_path / "commitlog" / f"{0:020d}", start, encoded.record(1, start, 10**6))
    if is_near:
        with pytest.raises(DamagedStore) as told:
            MessageStore(tmp_path, config, writable=True)
        assert told.value.physical_offset == end
        return
    with MessageStore(tmp_path, config, writable=True) as store:
        result = store.put_message(MessageExtBrokerInner("T", b"y"))
        assert result.append is not None and result.append.wrote_offset == end
