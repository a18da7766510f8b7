"""``HAClient`` without I/O: takes the bytes that a master sends, and gives pieces of its log, and
the reports for the master.

Only what the caller says is on disk is reported. The caller also gives the time, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from formats.constants import END_FILE_MIN_BLANK_LENGTH
from formats.remotingcodes import FRAME_MAX_LENGTH
from rmqctl.engine.record.pieces import LogPiece, PieceReader
from rmqctl.serve.ha.frames import REPORT, FrameReader

#: ``haSendHeartbeatInterval``: a report comes at least as often, though there is nothing new.
REPORT_INTERVAL = 5000
#: ``haHousekeepingInterval``: a master that says nothing for so long is gone.
MAX_SILENCE = 20_000


class Join(NamedTuple):
    """Where a copy goes on: at ``end``, where a record starts. ``asks`` is its first report."""

    end: int
    asks: int
    file_size: int
    longest: int


def join_at(end: int, master: tuple[int, int], file_size: int, most_message: int = 0) -> Join:
    """How to ask for the log from ``end`` on. A copy that has nothing begins where the master does.

    By the report 0 a slave asks for the master's last file only. To get a whole log from 0 on, the
    copy asks for its second byte: the first is the highest byte of a record's size, and always 0.

    :param master: where the master's log begins and ends now.
    :param most_message: bytes of the largest record that the master takes, where that is known.
    """
    longest = max(FRAME_MAX_LENGTH, most_message) + END_FILE_MIN_BLANK_LENGTH
    asks = 1 if end == 0 and master[1] > 0 else end
    return Join(end, asks, file_size, longest)


class Follower:
    """One connection to a master."""

    def __init__(self, join: Join, now: int) -> None:
        self._asks = join.asks
        self._frames = FrameReader(join.asks, join.file_size)
        self._pieces = PieceReader(join.end, join.file_size, join.longest)
        for _ in self._pieces.feed(bytes(join.asks - join.end)):
            raise AssertionError("a byte is no entry")
        self._reported = join.asks
        self._reported_at = now
        self._heard_at = now
        #: When the log has last grown, or the master said that there is no more.
        self.fed_at = now

    @property
    def received(self) -> int:
        """The physical offset up to which bytes have come. Those behind the last whole entry are
        held here."""
        return self._pieces.received

    def first_report(self) -> bytes:
        """The report that a master waits for before it sends anything."""
        return REPORT.pack(self._asks)

    def feed(self, data: bytes, now: int) -> Iterator[LogPiece]:
        """The pieces of log that are whole with these bytes. Each has to be stored before the next
        is asked for, and the iterator has to be read to its end.

        :raises BadFrame: the master sends another place of its log than the next one.
        :raises BadEntry: what it sends is no log.
        """
        self._heard_at = now
        for part in self._frames.feed(data):
            if part.data:
                self.fed_at = now
                yield from self._pieces.feed(part.data)

    def report(self, stored: int, now: int) -> bytes:
        """The report to the master, when everything before ``stored`` is on disk; empty: the last
        report is still true, and recent."""
        is_due = now - self._reported_at >= REPORT_INTERVAL
        if stored <= self._reported and not is_due:
            return b""
        self._reported = max(stored, self._reported)
        self._reported_at = now
        return REPORT.pack(self._reported)

    def is_silent(self, now: int) -> bool:
        """Whether nothing has come for too long, not even a heartbeat."""
        return now - self._heard_at > MAX_SILENCE
