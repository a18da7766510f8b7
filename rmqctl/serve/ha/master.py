"""``HAService`` of a master: says which bytes of the log each slave gets, and which puts wait.

Slaves get only what is on disk here, which no crash can take away: so a slave is never ahead of its
master. (A broker also sends what is written but not flushed.) Nothing here reads the log: a frame
says which part of it is to be sent. The caller gives the time, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Generic, NamedTuple, TypeVar

from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.serve.ha.frames import FRAME, ReportReader

T = TypeVar("T")
Network = IPv4Network | IPv6Network

#: Most slaves at a time. A broker has one or two, and each one reads the whole log.
MAX_SLAVES = 64


class LogRange(NamedTuple):
    """The range of a log that can be sent: from ``start`` up to ``end``."""

    start: int
    end: int


class Frame(NamedTuple):
    """Bytes of the log for a slave. Without bytes it is a heartbeat."""

    physical_offset: int
    size: int

    @property
    def head(self) -> bytes:
        return FRAME.pack(self.physical_offset, self.size)


class _Slave:
    """``HAConnection``. ``sends_from`` is -1 until the slave has said where it is."""

    def __init__(self, now: int) -> None:
        self.reader = ReportReader()
        self.acked = -1
        self.sends_from = -1
        self.heard_at = now
        self.sent_at = now


class _Waiting(NamedTuple, Generic[T]):
    end: int
    deadline: int
    token: T


class Master(Generic[T]):
    """The slaves of one log, and the puts that wait for slaves, which ``T`` identifies.

    :param log: gives the range of the log that can be sent now.
    :param file_size: bytes of a file of the log.
    :param config: intervals, and the size of a frame.
    :param allowed: networks that slaves may come from; empty: any.
    """

    def __init__(
        self,
        log: Callable[[], LogRange],
        file_size: int,
        config: MessageStoreConfig,
        allowed: tuple[Network, ...] = (),
    ) -> None:
        self._log = log
        self._file_size = file_size
        self._config = config
        self._allowed = allowed
        self._slaves: dict[int, _Slave] = {}
        self._waiting: list[_Waiting[T]] = []
        #: ``push2SlaveMaxOffset``: up to this offset some slave has the log. It never goes back.
        self.acked = 0

    @property
    def is_sync(self) -> bool:
        """Whether puts wait for a slave."""
        return self._config.broker_role == "SYNC_MASTER"

    def __len__(self) -> int:
        """How many slaves there are."""
        return len(self._slaves)

    # --- slaves --------------------------------------------------------------------------

    def connected(self, number: int, host: str, now: int) -> str:
        """Takes in a new connection; returns why it is not served, else an empty text."""
        if len(self._slaves) >= MAX_SLAVES:
            return f"there are {MAX_SLAVES} slaves already"
        if self._allowed and not self._is_allowed(host):
            return "its address is not among those that are allowed"
        self._slaves[number] = _Slave(now)
        return ""

    def _is_allowed(self, host: str) -> bool:
        try:
            address = ip_address(host.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._allowed)

    def received(self, number: int, data: bytes, now: int) -> str:
        """Takes reports of a slave; returns why its connection is to be closed, else an empty
        text."""
        slave = self._slaves.get(number)
        if slave is None:
            return "it is no slave"
        slave.heard_at = now
        offset = slave.reader.feed(data)
        if offset is None:
            return ""
        log = self._log()
        # An offset beyond the log is not noted: puts would count as copied that no slave has. With
        # an empty log a slave may ask for the second byte.
        if not 0 <= offset <= max(log.end, 1):
            return f"it reports {offset}, and the log ends at {log.end}"
        if slave.sends_from < 0:
            slave.sends_from = self._start_for(offset, log)
            if slave.sends_from < log.start and log.end > log.start:
                return f"it wants the log from {offset}, and that begins at {log.start}"
        slave.acked = offset
        self.acked = max(self.acked, min(offset, log.end))
        return ""

    def _start_for(self, offset: int, log: LogRange) -> int:
        """Where to begin to send to a slave that reports an offset. A slave that has nothing gets
        the last file."""
        return offset if offset else max(log.end - log.end % self._file_size, log.start)

    def next_frame(self, number: int, now: int) -> Frame | None:
        """The next frame for a slave that is ready for one; None: there is none for now."""
        slave = self._slaves.get(number)
        if slave is None or slave.sends_from < 0:
            return None
        start, log = slave.sends_from, self._log()
        most = min(log.end - start, self._file_size - start % self._file_size)
        size = max(min(most, self._config.ha_transfer_batch_size), 0)
        if not size and now - slave.sent_at <= self._config.ha_send_heartbeat_interval:
            return None
        slave.sends_from += size
        slave.sent_at = now
        return Frame(start, size)

    def silent(self, now: int) -> list[int]:
        """The slaves that have not reported for too long: their connections are to be closed."""
        most = self._config.ha_housekeeping_interval
        return [number for number, one in self._slaves.items() if now - one.heard_at > most]

    def lost(self, number: int) -> None:
        """A connection is closed, by whomever."""
        self._slaves.pop(number, None)

    # --- puts that wait ------------------------------------------------------------------

    def wait(self, end: int, token: T, now: int) -> PutMessageStatus | None:
        """What becomes of a put whose record ends there (``CommitLog#submitReplicaRequest``); None:
        :meth:`due` tells it."""
        behind = end - self.acked
        if not self._slaves or behind >= self._config.ha_slave_fallbehind_max:
            return PutMessageStatus.SLAVE_NOT_AVAILABLE
        if behind <= 0:
            return PutMessageStatus.PUT_OK
        self._waiting.append(_Waiting(end, now + self._config.slave_timeout, token))
        return None

    def due(self, now: int, *, is_over: bool = False) -> list[tuple[T, PutMessageStatus]]:
        """Takes out those who need not wait any more (``GroupTransferService``), in order.

        :param is_over: nobody waits any more.
        """
        done: list[tuple[T, PutMessageStatus]] = []
        kept = []
        for one in self._waiting:
            if one.end <= self.acked:
                done.append((one.token, PutMessageStatus.PUT_OK))
            elif is_over or one.deadline <= now:
                done.append((one.token, PutMessageStatus.FLUSH_SLAVE_TIMEOUT))
            else:
                kept.append(one)
        self._waiting = kept
        return done
