"""A copy that follows its master: sockets, a clock and a thread.

One thread receives the log, appends what has come, flushes it at once and reports. Another thread
asks the master for its files of ``config/`` every ten seconds.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rmqctl.engine.log.progress import Progress
from rmqctl.engine.record.pieces import BadEntry
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import RmqctlError
from rmqctl.replicate import questions
from rmqctl.replicate.asker import CONNECT_SECONDS, READ_SIZE, Asker, Target
from rmqctl.replicate.copy import Copy, is_own
from rmqctl.replicate.credentials import Credentials
from rmqctl.replicate.doubt import Doubt
from rmqctl.replicate.errors import (
    BadLogReceived,
    MasterRefused,
    MasterSilent,
    MasterUnreachable,
)
from rmqctl.replicate.events import Event, Joined, Lost, Mismatch, Progressed, Unanswered, Wrote
from rmqctl.replicate.follower import Follower, Join
from rmqctl.replicate.keeping import Keep
from rmqctl.replicate.questions import MasterFacts, Snapshot
from rmqctl.serve.ha.frames import BadFrame

#: Seconds before the next try (``HAClient``), and between two looks at the master's configuration
#: (``BrokerController``: ten).
_RETRY_SECONDS, _CONFIG_SECONDS = 5.0, 10.0
#: Minutes without any progress after which a copy that is to end when it has caught up gives up:
#: nobody waits for it, and the next run continues it.
_PATIENCE_MINUTES = 5.0
#: Seconds between two rows of progress, and two flushes of queues and index.
_TOLD_SECONDS, _FLUSH_SECONDS = 5.0, 10.0
#: Seconds after which the connection is made anew if the master has more log but sends nothing.
_STARVED_SECONDS = 15.0
_WAIT_SECONDS = 0.2
#: Seconds between two looks for files that are not to be kept (``cleanResourceInterval``: ten).
_SHORTEN_SECONDS = 10.0
#: Bytes that are read before they are appended and flushed.
_MOST_AT_ONCE = 4 << 20


def now() -> int:
    """Milliseconds of a clock that is never set back."""
    return time.monotonic_ns() // 1_000_000


class _Watcher:
    """Asks for the files of ``config/`` in its own thread until it is stopped. ``newest`` is what
    it has got last; ``problem`` is the error of the last question, None after a success."""

    def __init__(self, asker: Asker) -> None:
        self.newest: Snapshot | None = None
        self.problem: RmqctlError | None = None
        self._asker = asker
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rmqctl-config", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                files = self._asker.run(questions.config_files())
                self.newest = Snapshot(files, self._asker.run(questions.log_range()))
                self.problem = None
            except RmqctlError as error:
                self.problem = error
            if self._stopped.wait(_CONFIG_SECONDS):
                self._asker.close()
                return


class _ConnectionLost(Exception):
    """The text says why."""


class Replication:
    """One copy and its master.

    :param ha: where the master sends its log.
    :param broker: where the master answers requests.
    :param config: the sizes of the copy's files, if the user gives them; None: the master's.
    :param told: is called with each event.
    :param credentials: an account, for a broker with ACL.
    :param keep: how much of the log to keep; None: all.
    :param joins_sync: a master whose puts wait for slaves may be joined.
    """

    def __init__(
        self,
        root: Path,
        ha: Target,
        broker: Target,
        config: MessageStoreConfig | None,
        told: Callable[[Event], None],
        *,
        credentials: Credentials | None = None,
        keep: Keep | None = None,
        joins_sync: bool = False,
        progress: Progress = lambda done, total: None,
    ) -> None:
        self._root, self._ha, self._broker = root, ha, broker
        self._config = config
        self._told = told
        self._credentials = credentials
        self._keep = keep
        self._joins_sync = joins_sync
        self._progress = progress
        self._stopped = threading.Event()
        self._written: Snapshot | None = None
        self._pending: Snapshot | None = None
        self._told_at = self._flushed_at = self._shortened_at = 0.0
        #: The end of the copy when it last grew, and the seconds of the clock then.
        self._grown = -1, 0.0
        #: Why the master has not given its files the last time.
        self._problem = ""
        #: Where the master's log ended when it was last asked, and connections so far.
        self.master_end = self._master_start = 0
        self.connections = 0
        self.copy: Copy | None = None

    def stop(self) -> None:
        """Has :meth:`run` end soon. A signal handler may call it."""
        self._stopped.set()

    def run(self, *, until_caught_up: bool = False) -> bool:
        """Copies until it is stopped, or, with ``until_caught_up``, until it has everything that
        the master had when it was asked; returns whether it has. The copy is closed at the end,
        whatever happens.

        :raises MasterUnreachable: at the start; later it is tried again.
        :raises MasterSilent: with ``until_caught_up``: the copy has not grown for minutes.
        :raises NeedsConsent: the master's puts would wait for the copy.
        """
        with ExitStack() as undo:
            asker = Asker(self._broker, self._credentials)
            undo.callback(asker.close)
            facts = asker.run(questions.facts())
            questions.check(facts, str(self._broker), joins_sync=self._joins_sync)
            config = self._config or facts.config

            def asks(doubt: Doubt) -> bool:
                return asker.run(is_own(self._root, config, doubt))

            copy = Copy(self._root, config, progress=self._progress, is_own=asks)
            self.copy = copy
            undo.callback(copy.close)
            watcher = _Watcher(Asker(self._broker, self._credentials))
            watcher.start()
            undo.callback(watcher.stop)
            while not self._stopped.is_set():
                try:
                    join = self._join(asker, copy, facts)
                    if self._follow(copy, join, watcher, until_caught_up):
                        return True
                except (_ConnectionLost, MasterUnreachable) as error:
                    if not self.connections:
                        raise
                    self._told(Lost(str(error)))
                    if until_caught_up:
                        self._check_patience(copy, str(error))
                    self._stopped.wait(_RETRY_SECONDS)
        return False

    def _join(self, asker: Asker, copy: Copy, facts: MasterFacts) -> Join:
        master = asker.run(questions.log_range())
        self._master_start, self.master_end = master
        most = facts.config.max_message_size
        join = asker.run(copy.join(master, most))
        self._told(
            Joined(
                str(self._ha),
                facts.broker_name,
                facts.role,
                join.end,
                *master,
                join.file_size,
            )
        )
        return join

    def _follow(self, copy: Copy, join: Join, watcher: _Watcher, until_caught_up: bool) -> bool:
        """Follows the master over one connection; returns whether the copy has caught up, where
        that ends the run."""
        try:
            link = socket.create_connection(self._ha, CONNECT_SECONDS)
        except OSError as error:
            reason = error.strerror or str(error)
            raise MasterUnreachable(address=str(self._ha), reason=reason) from error
        with link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.setblocking(False)
            self.connections += 1
            follower = Follower(join, now())
            outgoing = bytearray(follower.first_report())
            while not self._stopped.is_set():
                data = _exchange(link, outgoing)
                if data:
                    self._take(copy, follower, data)
                if not outgoing:
                    outgoing += follower.report(copy.stored, now())
                self._look_at(watcher, copy, follower)
                if not until_caught_up:
                    continue
                if self._has_caught_up(copy):
                    self._shorten(copy)
                    self._tell(copy)
                    return True
                if isinstance(watcher.problem, MasterRefused):
                    # Without the files of config/ the copy would never be complete.
                    raise watcher.problem
                self._check_patience(copy, self._problem or "it sends nothing")
        return False

    def _check_patience(self, copy: Copy, reason: str) -> None:
        """:raises MasterSilent: the copy has not grown for too long."""
        end, since = self._grown
        if copy.stored != end:
            self._grown = copy.stored, time.monotonic()
        elif time.monotonic() - since >= _PATIENCE_MINUTES * 60:
            minutes = f"{_PATIENCE_MINUTES:g}"
            raise MasterSilent(address=str(self._ha), minutes=minutes, reason=reason)

    def _take(self, copy: Copy, follower: Follower, data: bytes) -> None:
        """Appends what has come, and forces it to disk."""
        known = len(copy.mismatches)
        try:
            for piece in follower.feed(data, now()):
                copy.append(piece)
        except BadEntry as error:
            raise BadLogReceived(
                reason=str(error), physical_offset=error.damage.physical_offset
            ) from error
        except BadFrame as error:
            raise BadLogReceived(reason=str(error), physical_offset=follower.received) from error
        finally:
            if copy.stored < copy.end:
                copy.flush_log()
        for offset in copy.mismatches[known:]:
            self._told(Mismatch(offset))

    def _look_at(self, watcher: _Watcher, copy: Copy, follower: Follower) -> None:
        """Does what is due by time, and takes what the other thread has got."""
        seconds = time.monotonic()
        if follower.is_silent(now()):
            raise _ConnectionLost("the master has said nothing for 20 seconds")
        problem = watcher.problem
        if problem is not None and str(problem) != self._problem:
            self._told(Unanswered(str(problem)))
        self._problem = "" if problem is None else str(problem)
        newest = watcher.newest
        if newest is not None and newest is not self._written:
            self._master_start, end = newest.log_range
            self.master_end = max(end, copy.end)
            self._pending = self._pending or newest
        starved = now() - follower.fed_at > _STARVED_SECONDS * 1000
        if starved and self.master_end > follower.received:
            raise _ConnectionLost(
                f"the master has its log up to {self.master_end} and sends nothing from "
                f"{follower.received} on"
            )
        if self._pending is not None and copy.stored >= self._pending.log_range[1]:
            # Not before: by an offset behind its queue's end a group would consume all of it again.
            self._write(copy, self._pending)
        if seconds - self._told_at >= _TOLD_SECONDS:
            self._tell(copy)
        if seconds - self._flushed_at >= _FLUSH_SECONDS:
            self._flushed_at = seconds
            copy.flush()
        if seconds - self._shortened_at >= _SHORTEN_SECONDS:
            self._shorten(copy)

    def _shorten(self, copy: Copy) -> None:
        self._shortened_at = time.monotonic()
        shortened = copy.shorten(self._keep, self._master_start) if self._keep else None
        if shortened is not None:
            self._told(shortened)

    def _write(self, copy: Copy, snapshot: Snapshot) -> None:
        for file in snapshot.files:
            if copy.write(file):
                self._told(Wrote(file.name, len(file.text.encode())))
        self._written, self._pending = snapshot, None

    def _has_caught_up(self, copy: Copy) -> bool:
        """Whether the copy has everything that the master had when it was asked for its files."""
        return self._written is not None and copy.stored >= self._written.log_range[1]

    def _tell(self, copy: Copy) -> None:
        self._told_at = time.monotonic()
        self._told(Progressed(copy.stored, self.master_end, copy.records, copy.bytes))


def _exchange(link: socket.socket, outgoing: bytearray) -> bytes:
    """Sends what is due, and waits a moment for data; empty: none has come.

    :raises _ConnectionLost: the connection is closed.
    """
    try:
        if outgoing:
            del outgoing[: link.send(outgoing)]
        poll = select.poll()
        poll.register(link, select.POLLIN)
        ready = poll.poll(_WAIT_SECONDS * 1000)
        data = bytearray()
        while ready and len(data) < _MOST_AT_ONCE:
            try:
                some = link.recv(READ_SIZE)
            except BlockingIOError:
                break
            if not some and not data:
                raise _ConnectionLost("the master has closed the connection")
            if not some:
                break
            data += some
        return bytes(data)
    except BlockingIOError:
        return b""
    except OSError as error:
        raise _ConnectionLost(error.strerror or str(error)) from error
