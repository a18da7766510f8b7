"""Checks that no file says of the log, or of other files, more than is on disk at that moment.

A checkpoint that is written too early does harm only when the power is lost right then, which few
runs come to. Here each write is checked: could a loss of power now do harm?
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from formats.constants import CQ_STORE_UNIT_SIZE, PROPERTY_REAL_TOPIC, RMQ_SYS_SCHEDULE_TOPIC
from rmqctl.engine.record.record import Record, read_entry
from rmqctl.engine.state import brokerjson
from rmqctl.engine.state.checkpoint import Checkpoint, read_checkpoint
from tests.simulation.disk import Disk

_TIMESTAMP = 8  # bytes; an index file begins with the time of its first message, and of its last


class TooEarly(AssertionError):
    """A file relies on something that is not on disk yet, and that a loss of power could take."""


def check(disk: Disk, path: Path, queue_file_size: int) -> None:
    """Checks a file of a store that was just forced to disk.

    :raises TooEarly: something that it relies on had to be forced to disk before.
    """
    if path == disk.root / "checkpoint":
        _Look(disk).check_checkpoint(path, queue_file_size)
    elif path.name == f"{brokerjson.CONSUMER_OFFSET}.tmp":
        _Look(disk).check_consumed(path)
    elif path.name == f"{brokerjson.DELAY_OFFSET}.tmp":
        _Look(disk).check_delivered()


class _Look:
    """One look at the files of a store; each is read once."""

    def __init__(self, disk: Disk) -> None:
        self._disk, self._root = disk, disk.root
        self._contents: dict[Path, tuple[bytes, bytes]] = {}
        self._log = sorted((disk.root / "commitlog").glob("*"))

    def check_checkpoint(self, path: Path, queue_file_size: int) -> None:
        """Everything older than the checkpoint's times is on disk. Messages of the very millisecond
        may be missing, for a start goes back further than that."""
        stamps = read_checkpoint(path) or Checkpoint()
        what = f"the checkpoint {stamps[:3]} is ahead of the"
        for file, record in self._records():
            time = record.store_timestamp
            if time < stamps.physic_msg_timestamp and not self._is_on_disk(file, record):
                raise TooEarly(f"{what} log at {record.physical_offset} of {time}")
            if time < stamps.logics_msg_timestamp:
                position = record.queue_offset * CQ_STORE_UNIT_SIZE
                first = position // queue_file_size * queue_file_size
                name = f"consumequeue/{record.topic}/{record.queue_id}/{first:020d}"
                unit = self._root / name
                if not self._holds(unit, position - first, CQ_STORE_UNIT_SIZE):
                    raise TooEarly(f"{what} queue, {name}, for the message of {time}")
        for file in (self._root / "index").glob("*"):
            now, then = self._content(file)
            ends = int.from_bytes(now[_TIMESTAMP : 2 * _TIMESTAMP], "big")
            if ends < stamps.index_msg_timestamp and now != then:
                raise TooEarly(f"{what} index, {file.name}")

    def check_consumed(self, path: Path) -> None:
        """Every message before a group's offset is on disk."""
        offsets = brokerjson.read(path)["offsetTable"]
        ends: dict[tuple[str, int], int] = {}
        for place, queues in offsets.items():
            for queue_id, offset in queues.items():
                key = place.partition("@")[0], int(queue_id)
                ends[key] = max(ends.get(key, 0), offset)
        for file, record in self._records():
            end = ends.get((record.topic, record.queue_id), 0)
            if record.queue_offset < end and not self._is_on_disk(file, record):
                where = f"{record.topic} {record.queue_id}:{record.queue_offset}"
                raise TooEarly(f"a group's offset {end} is ahead of the log: {where}")

    def check_delivered(self) -> None:
        """Every delayed message that was delivered is on disk before the delay offsets are."""
        for file, record in self._records():
            # A message that still waits has that property, too.
            was_delayed = PROPERTY_REAL_TOPIC in record.properties
            is_delivered = was_delayed and record.topic != RMQ_SYS_SCHEDULE_TOPIC
            if is_delivered and not self._is_on_disk(file, record):
                raise TooEarly(
                    f"the delay offsets are ahead of the log at {record.physical_offset}"
                )

    def _is_on_disk(self, file: Path, record: Record) -> bool:
        return self._holds(file, record.physical_offset - int(file.name), record.total_size)

    def _holds(self, file: Path, position: int, size: int) -> bool:
        now, then = self._content(file)
        there = now[position : position + size]
        return len(there) == size and there == then[position : position + size]

    def _content(self, file: Path) -> tuple[bytes, bytes]:
        if file not in self._contents:
            self._contents[file] = self._disk.contents(file)
        return self._contents[file]

    def _records(self) -> Iterator[tuple[Path, Record]]:
        """The records of the log as it reads now; of each file those before its end, or before
        what is no record."""
        for file in self._log:
            data, _ = self._content(file)
            at, start = 0, int(file.name)
            while isinstance(entry := read_entry(data, at, len(data), start + at), Record):
                yield file, entry
                at += entry.total_size
