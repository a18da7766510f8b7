"""Faults that are done on purpose to the copy of a store: such as disks, crashes and people leave.

Each function takes the copy and a seeded random choice, damages one place, and returns what it did.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from formats import layouts
from formats.constants import CHECKPOINT_FILE_SIZE, LONG_MAX
from rmqctl.engine.files import paths
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.queue.consumequeue import UNIT_SIZE
from rmqctl.engine.record.record import PREFIXES, Record, find_next
from rmqctl.errors import RmqctlError

_PAGE = 4096
_STRANGER = "notes.txt"
#: Size and magic code of a record; and the least number of bytes before the length of its body.
_HEAD = layouts.RECORD_MAGIC_CODE.offset + layouts.RECORD_MAGIC_CODE.size
_BEFORE_LENGTHS = PREFIXES[0].size - 4


class NothingToDamage(RmqctlError):
    template = "the store has nothing of the kind: {what}. Name another kind."


class Fault(NamedTuple):
    """A fault that was done: to which file (relative to the store), where in it, to how many bytes.
    ``position`` and ``physical_offset`` are None where the fault has no single place."""

    path: str
    position: int | None
    length: int
    physical_offset: int | None
    what: str


class Damaged(NamedTuple):
    """A copy, its log and the random choice."""

    root: Path
    log: CommitLog
    chance: random.Random

    def record(self, *, is_last: bool = False) -> Record:
        """A chosen record of the log, or its last one. :raises NothingToDamage: there is none."""
        entries = self.log.files.entries
        numbers = [number for number, one in enumerate(entries) if self._is_whole(one.path)]
        if not is_last:
            self.chance.shuffle(numbers)
        for number in reversed(numbers):
            mapped = self.log.files.file(number)
            end = mapped.end_of_data(0)
            start = self.chance.randrange(max(end, 1)) if not is_last else 0
            for position in (find_next(mapped, start), find_next(mapped, 0)):
                found = self._record_at(number, position, is_last=is_last)
                if found is not None:
                    return found
        raise NothingToDamage(what="a record in the log")

    def _record_at(self, number: int, position: int, *, is_last: bool) -> Record | None:
        """The record at a position of a file, or the last of the records behind that position."""
        mapped, last = self.log.files.file(number), None
        while position < mapped.size:
            step = self.log.step(number, position)
            if isinstance(step.entry, Record):
                last = step.entry
                if not is_last:
                    break
            if step.number != number or step.position <= position:
                break
            position = step.position
        return last

    def place(self, physical_offset: int) -> tuple[Path, int]:
        entry = self.log.files.entries[self.log.files.index_of(physical_offset)]
        return entry.path, physical_offset - entry.file_from_offset

    def log_file(self, what: str, *, least: int, middle: bool = False) -> Path:
        """A chosen file of the log. :raises NothingToDamage: it has fewer than ``least`` files."""
        entries = self.log.files.entries
        files = [entry.path for entry in entries if self._is_whole(entry.path)]
        if len(files) < least:
            raise NothingToDamage(what=what)
        return self.chance.choice(files[1:-1] if middle else files)

    def _is_whole(self, path: Path) -> bool:
        """Whether a file still has its length: a fault before may have removed it, or cut it."""
        return path.exists() and path.stat().st_size == self.log.file_size

    def queue_file(self) -> Path:
        """A chosen file of a queue with units in it. :raises NothingToDamage: there is none."""
        found = sorted(
            path
            for path in (self.root / paths.CONSUME_QUEUE).glob("*/*/*")
            if path.is_file() and any(path.open("rb").read(UNIT_SIZE))
        )
        if not found:
            raise NothingToDamage(what="a queue with messages")
        return self.chance.choice(found)


def _stored(damaged: Damaged, path: Path, position: int, data: bytes, what: str) -> Fault:
    """Writes bytes over those at a position of a file, and returns the fault."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
    return _fault(damaged, path, position, len(data), what)


def _fault(damaged: Damaged, path: Path, position: int | None, length: int, what: str) -> Fault:
    offset = None
    if path.parent.name == paths.COMMIT_LOG and path.name.isdigit() and position is not None:
        offset = int(path.name) + position
    return Fault(str(path.relative_to(damaged.root)), position, length, offset, what)


# --- the log ---------------------------------------------------------------------------------


def _bit_flip(damaged: Damaged) -> Fault:
    for _ in range(64):
        record = damaged.record()
        if record.body_length:
            break
    path, start = damaged.place(record.physical_offset)
    at = start + record.total_size - 1
    if record.body_length:
        at = record.body_position + damaged.chance.randrange(record.body_length)
    with path.open("rb") as file:
        file.seek(at)
        (byte,) = file.read(1)
    flipped = bytes((byte ^ 1 << damaged.chance.randrange(8),))
    return _stored(damaged, path, at, flipped, "one bit of a message's body")


def _bad_magic(damaged: Damaged) -> Fault:
    path, start = damaged.place(damaged.record().physical_offset)
    field = layouts.RECORD_MAGIC_CODE
    data = damaged.chance.randbytes(field.size)
    return _stored(damaged, path, start + field.offset, data, "the magic code of a record")


def _wild_size(damaged: Damaged) -> Fault:
    path, start = damaged.place(damaged.record().physical_offset)
    size = damaged.chance.randrange(1 << 20, 1 << 30).to_bytes(4, "big")
    return _stored(damaged, path, start, size, "the size of a record")


def _zeroed_page(damaged: Damaged) -> Fault:
    path, start = damaged.place(damaged.record().physical_offset)
    page = start // _PAGE * _PAGE
    length = min(_PAGE, path.stat().st_size - page)
    return _stored(damaged, path, page, bytes(length), "a page of the log that was never written")


def _torn_tail(damaged: Damaged) -> Fault:
    record = damaged.record(is_last=True)
    path, start = damaged.place(record.physical_offset)
    # Lengths may lie in the part that was not written: the rest is zeros then.
    half = damaged.chance.randrange(_HEAD, _BEFORE_LENGTHS)
    (damaged.root / paths.ABORT).touch()
    rest = bytes(record.total_size - half)
    return _stored(damaged, path, start + half, rest, "a crash in the middle of the last append")


def _lost_file(damaged: Damaged) -> Fault:
    path = damaged.log_file("a log of three files", least=3, middle=True)
    size = path.stat().st_size
    path.unlink()
    return _fault(damaged, path, 0, size, "a file in the middle of the log")


def _short_file(damaged: Damaged) -> Fault:
    path = damaged.log_file("a log", least=1)
    size = path.stat().st_size
    length = damaged.chance.randrange(size)
    os.truncate(path, length)
    return _fault(damaged, path, length, size - length, "a log file that was cut short")


def _stray_file(damaged: Damaged) -> Fault:
    path = damaged.root / paths.COMMIT_LOG / _STRANGER
    path.write_bytes(b"do not forget\n")
    return _fault(damaged, path, None, path.stat().st_size, "a stranger among the log's files")


# --- queues, index, checkpoint ---------------------------------------------------------------


def _queue_hole(damaged: Damaged) -> Fault:
    path = damaged.queue_file()
    units = path.stat().st_size // UNIT_SIZE
    with path.open("rb") as file:
        data = file.read()
    written = [at for at in range(units) if any(data[at * UNIT_SIZE :][:UNIT_SIZE])]
    at = damaged.chance.choice(written[:-1] or written)
    hole = bytes(UNIT_SIZE)
    return _stored(damaged, path, at * UNIT_SIZE, hole, "a unit of a queue that is not there")


def _wild_unit(damaged: Damaged) -> Fault:
    path = damaged.queue_file()
    wild = damaged.chance.randrange(LONG_MAX >> 8).to_bytes(8, "big")
    return _stored(damaged, path, 0, wild, "a unit that points anywhere")


def _lost_queue(damaged: Damaged) -> Fault:
    path = damaged.queue_file().parent
    size = sum(one.stat().st_size for one in path.iterdir())
    shutil.rmtree(path)
    return _fault(damaged, path, None, size, "all files of a queue")


def _lost_queues(damaged: Damaged) -> Fault:
    return _lost(damaged, paths.CONSUME_QUEUE, "all queues")


def _lost_index(damaged: Damaged) -> Fault:
    return _lost(damaged, paths.INDEX, "the index")


def _lost(damaged: Damaged, name: str, what: str) -> Fault:
    path = damaged.root / name
    if not path.is_dir():
        raise NothingToDamage(what=what)
    size = sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
    shutil.rmtree(path)
    return _fault(damaged, path, None, size, what)


def _lost_checkpoint(damaged: Damaged) -> Fault:
    path = damaged.root / paths.CHECKPOINT
    path.unlink(missing_ok=True)
    return _fault(damaged, path, None, CHECKPOINT_FILE_SIZE, "the checkpoint")


def _future_checkpoint(damaged: Damaged) -> Fault:
    path = damaged.root / paths.CHECKPOINT
    if not path.is_file():
        path.write_bytes(bytes(CHECKPOINT_FILE_SIZE))
    times = (LONG_MAX >> 16).to_bytes(8, "big") * 3
    (damaged.root / paths.ABORT).touch()
    return _stored(damaged, path, 0, times, "a checkpoint that says too much, and a crash")


def _crash(damaged: Damaged) -> Fault:
    path = damaged.root / paths.ABORT
    path.touch()
    return _fault(damaged, path, None, 0, "a stop that was not clean")


#: The kinds by name, in the order in which the help has them.
KINDS: dict[str, Callable[[Damaged], Fault]] = {
    "bit-flip": _bit_flip,
    "bad-magic": _bad_magic,
    "wild-size": _wild_size,
    "hole": _zeroed_page,
    "torn-tail": _torn_tail,
    "lost-file": _lost_file,
    "short-file": _short_file,
    "stray-file": _stray_file,
    "queue-hole": _queue_hole,
    "wild-unit": _wild_unit,
    "lost-queue": _lost_queue,
    "lost-queues": _lost_queues,
    "lost-index": _lost_index,
    "lost-checkpoint": _lost_checkpoint,
    "future-checkpoint": _future_checkpoint,
    "crash": _crash,
}


def faults_of(damaged: Damaged, kinds: list[str]) -> Iterator[tuple[str, Fault]]:
    """Does faults of some kinds, one after the other.

    :raises NothingToDamage: there is nothing that one of the kinds could damage.
    """
    for kind in kinds:
        yield kind, KINDS[kind](damaged)
