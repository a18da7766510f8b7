"""The scanner: the one hot loop. It gives batches of columns from the commit log, and damage.

verify, rebuild, bulk put and Spark use it. A backend (:mod:`rmqctl.engine.scan.backend`) reads the
windows of a file: the pure one, or the compiled one with the same results. Every other place than a
sound record goes through :meth:`CommitLog.step`, so all readers of the log agree on what a record
is.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import cast

from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.record.record import Blank, Damage, End, Record
from rmqctl.engine.scan.ahead import ahead
from rmqctl.engine.scan.backend import PURE, ScanBackend, WindowReader, chosen
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.columns import gather
from rmqctl.engine.scan.plain import Plain, PlainWanted
from rmqctl.engine.scan.seen import window_end
from rmqctl.engine.scan.topics import TopicTable
from rmqctl.engine.scan.tuning import DEFAULT, ScanTuning
from rmqctl.errors import ReadersDisagree

__all__ = ["Batch", "Plain", "PlainWanted", "ScanEntry", "Scanner", "TopicTable", "gather"]


ScanEntry = Batch | Blank | Damage | End


class Scanner:
    """Scans a log.

    :param check: also compares body CRCs and finds malformed properties.
    :param properties: False if neither tags codes nor keys are wanted; then ``check`` only looks at
        delay levels.
    :param indexes_tags: as of :class:`~rmqctl.engine.dispatch.rules.Dispatcher`: keys of tags are
        wanted, too.
    :param backend: None: the one that :mod:`rmqctl.kernel` chooses.
    """

    def __init__(
        self,
        log: CommitLog,
        *,
        check: bool = False,
        properties: bool = True,
        indexes_tags: bool = False,
        tuning: ScanTuning = DEFAULT,
        backend: ScanBackend | None = None,
    ) -> None:
        self.log = log
        self.topics = TopicTable(indexes_tags=indexes_tags)
        self._tuning = tuning
        # Only the pure backend reads entries of DLedger: few logs have them.
        self._backend = PURE if log.files.framed else backend or chosen()
        self._check, self._properties = check, properties

    def scan(self, start: int | None = None, end: int | None = None) -> Generator[ScanEntry]:
        """Batches, blanks and damage from ``start`` (the start of a record; None: of the log) up to
        ``end``, then an :class:`End`. Order and places are those of :meth:`CommitLog.walk`.

        :raises ReadersDisagree: the backend does not accept what the walk takes for a record.
        """
        return cast(Generator[ScanEntry], self._entries(None, start, end))

    def scan_plain(
        self, wanted: PlainWanted, start: int | None = None, end: int | None = None
    ) -> Generator[ScanEntry | Plain]:
        """:meth:`scan`, but a backend may give plain records as :class:`Plain`."""
        return self._entries(wanted, start, end)

    def _entries(
        self, plain: PlainWanted | None, start: int | None, end: int | None
    ) -> Generator[ScanEntry | Plain]:
        reader = self._backend.reader(
            self.topics,
            self._tuning,
            check=self._check,
            properties=self._properties,
            plain=plain,
        )
        least, most = self._tuning.window_bytes
        is_noted = plain is None or plain.units or plain.keys or not reader.runs_ahead
        # Records that are passed over cost no memory, so the first window may be large. If notes
        # are taken of them, it is small: so the first notes come soon.
        window = least if is_noted else most
        kept = 0 if is_noted else self._tuning.kept_bytes
        entries = self._scan(reader, start, end, window, kept)
        if self._tuning.threads > 1 and reader.runs_ahead:
            entries = ahead(entries)
        with closing(entries):
            for entry in entries:
                if isinstance(entry, Batch | Plain):
                    reader.settle(entry)
                yield entry

    def _scan(
        self, reader: WindowReader, start: int | None, end: int | None, window: int, kept: int
    ) -> Generator[ScanEntry | Plain]:
        """:meth:`scan` without the numbers of topics.

        :param window: bytes of the first window.
        :param kept: bytes of a window of pages that stay mapped.
        """
        entries, kept_pages = self.log.files.entries, self.log.kept_pages
        number = self.log.first_file(start)
        if number < 0:
            yield End(max(start or 0, self.log.min_offset))
            return
        position = 0 if start is None else start - entries[number].file_from_offset
        least, most = self._tuning.window_bytes
        appended: tuple[int, int] | None = None
        while True:
            if number < len(entries) and position >= 0:
                mapped = self.log.files.file(number)
                limit = mapped.size if end is None else end - mapped.file_from_offset
                reached = position
                high = kept_pages.kept_until(mapped, position)
                high = max(position + window, min(high, position + kept))
                end_of_window = window_end(mapped, position, min(limit, high))
                stays = kept_pages.will_stay(mapped, position, end_of_window)
                for batch in reader.batches(mapped, position, end_of_window, stays):
                    yield batch
                    reached = batch.end_offset - mapped.file_from_offset
                if reached > position:
                    kept_pages.pass_over(mapped, position, reached)
                    position = reached
                    window = min(2 * window, most)
                    continue
            window = least
            if end is not None and position >= 0 and self.log.offset_of(number, position) >= end:
                yield End(end)
                return
            step = self.log.step(number, position)
            if end is not None and step.entry.physical_offset >= end:
                yield End(end)
                return
            if isinstance(step.entry, Record):
                # A broker has appended it after the window was read: it is read again.
                if appended == (number, position):
                    raise ReadersDisagree(physical_offset=step.entry.physical_offset)
                appended = number, position
                continue
            yield step.entry
            if isinstance(step.entry, End):
                return
            number, position = step.number, step.position
