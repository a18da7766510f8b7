"""``CommitLog`` in a played start: the walk of a recovery, and the dispatch behind it.

The scanner reads plain records; at every other place the engine's own rule decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from formats import constants
from formats.layouts import RECORD_MAGIC_CODE
from rmqctl.engine.dispatch.batches import bad_delay_rows
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.record.record import Record, read_entry_of
from rmqctl.engine.rehearsal.brokerfiles import BrokerFile, BrokerFileQueue
from rmqctl.engine.rehearsal.brokerrecord import Request, check_message
from rmqctl.engine.rehearsal.model import StartFails
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.columns import take
from rmqctl.engine.scan.scanner import Scanner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rmqctl.engine.files.mappedfile import MappedFile
    from rmqctl.engine.rehearsal.brokerdispatch import BrokerQueues

#: Called with the number of bytes that were read.
Read = Callable[[int], None]
_MAGIC = np.dtype(">u4")
_OF_4_9_3 = np.uint32(constants.MESSAGE_MAGIC_CODE & 0xFFFFFFFF)


class Records(NamedTuple):
    """A batch, of which only the records before physical offset ``end`` count."""

    batch: Batch
    end: int


class BrokerLog:
    """The log. ``queue`` has its files; ``log`` is the same log for the scanner."""

    def __init__(
        self, queue: BrokerFileQueue, log: CommitLog, *, as_5: bool, read: Read = lambda size: None
    ) -> None:
        self.queue, self._log, self._as_5, self._read = queue, log, as_5, read
        # With names that are not 20 digits the scanner has other files than the engine.
        known = [(entry.path, entry.file_from_offset) for entry in log.files.entries]
        self._has_scanner = known == [(file.path, file.file_from_offset) for file in queue.files]
        self.end, self.end_why = 0, ""

    # --- recovery ------------------------------------------------------------------------

    def walk(self, number: int) -> Iterator[Records | Request]:
        """Yields what a recovery reads from the start of a file on. Sets :attr:`end` and
        :attr:`end_why` at its end."""
        position, files = 0, self.queue.files
        while True:
            file = files[number]
            for records in self._plain(file, position, self.queue.file_size, check=True):
                yield records
                self._read(records.end - file.file_from_offset - position)
                position = records.end - file.file_from_offset
            mapped = self._mapped(file)
            limit = self.queue.file_size
            found = check_message(mapped, position, limit, with_body=True, as_5=self._as_5)
            if not found.is_success:
                self.end_why = found.why
                break
            if found.request is not None:
                yield found.request
                position += found.size
                self._read(found.size)
                continue
            if number + 1 == len(files):
                self.end_why = "the last file is full"
                break
            number, position = number + 1, 0
        self.end = files[number].file_from_offset + position

    def _mapped(self, file: BrokerFile) -> MappedFile:
        number = self._log.files.index_of(file.file_from_offset)
        return self._log.files.file(number) if self._has_scanner else file.open()

    def _plain(
        self, file: BrokerFile, position: int, limit: int, *, check: bool
    ) -> Iterator[Records]:
        """Yields plain records from a position on, up to the first place that needs the engine's
        own rule."""
        if not self._has_scanner or position >= limit:
            return
        if not isinstance(read_entry_of(self._mapped(file), position), Record):
            return  # Else the scanner would search the whole file for the next record.
        start, end = file.file_from_offset + position, file.file_from_offset + limit
        with closing(Scanner(self._log, check=check).scan(start, end)) as entries:
            for entry in entries:
                if not isinstance(entry, Batch) or int(entry.physical_offset[0]) != start:
                    return
                sound = self._sound(entry, check=check)
                if sound:
                    start = int(entry.physical_offset[sound - 1] + entry.total_size[sound - 1])
                    yield Records(entry, start)
                if sound < len(entry):
                    return

    def _sound(self, batch: Batch, *, check: bool) -> int:
        """How many records of a batch, from the first on, the engine accepts."""
        bad = [len(batch), *bad_delay_rows(batch)]
        if check and not batch.crc_matches.all():
            bad.append(int(batch.crc_matches.argmin()))
        if not self._as_5:
            view: NDArray[np.uint8] = np.frombuffer(batch.mapped.buffer, np.uint8)
            magic = take(view, batch.position + RECORD_MAGIC_CODE.offset, _MAGIC)
            is_later = magic != _OF_4_9_3
            if is_later.any():
                bad.append(int(is_later.argmax()))
        return min(bad)

    # --- dispatch ------------------------------------------------------------------------

    def reput(self, start: int, queues: BrokerQueues, *, is_master: bool) -> None:
        """``ReputMessageService#doReput`` from a physical offset up to the end of the log.

        :raises StartFails: it never gets there, so the start waits for ever.
        """
        offset, end = start, self.queue.max_offset
        queues.notifies = is_master
        while offset < end:
            file = self.queue.find(offset, first_when_absent=offset == 0)
            position = -1 if file is None else offset % self.queue.file_size
            if file is None or not 0 <= position < file.wrote:
                raise StartFails(
                    f"the dispatch waits for ever at {offset}, where the log has nothing"
                )
            before = offset
            offset = self._reput_file(file, position, queues, is_master=is_master)
            if offset == before:
                raise StartFails(f"the dispatch does not get on at {offset}")

    def _reput_file(
        self, file: BrokerFile, position: int, queues: BrokerQueues, *, is_master: bool
    ) -> int:
        """One round of dispatch from a position in a file on; where the next round begins."""
        offset = file.file_from_offset + position
        size, done = file.wrote - position, 0
        while done < size:
            for records in self._plain(file, position, file.wrote, check=False):
                queues.put_batch(records.batch, file.file_from_offset + position, records.end)
                length = records.end - file.file_from_offset - position
                position, offset, done = position + length, offset + length, done + length
                self._read(length)
            if done >= size:
                break
            found = check_message(
                self._mapped(file), position, file.wrote, with_body=False, as_5=self._as_5
            )
            position = found.position
            if found.request is not None:
                queues.put(found.request)
                offset, done = offset + found.size, done + found.size
            elif found.is_success:
                return offset + self.queue.file_size - offset % self.queue.file_size
            elif found.size > 0:
                offset += found.size
            else:
                return offset + size - done if is_master else offset
        return offset
