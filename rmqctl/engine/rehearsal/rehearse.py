"""Plays a start of 4.9.3 or 5.3.3: ``DefaultMessageStore#load`` and ``#start``, and before them
whether what a broker reads of ``config/`` lets it come so far (``BrokerController#initialize``)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from struct import Struct

from formats import constants, layouts
from formats.text import java_int, java_long
from rmqctl.engine.files import paths
from rmqctl.engine.files.lock import holder_of_lock
from rmqctl.engine.files.shown import shown
from rmqctl.engine.index.header import HEADER, IndexHeader
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.record.record import LONGEST_PREFIX, prefix_at
from rmqctl.engine.record.times import utc_time
from rmqctl.engine.rehearsal.brokerdispatch import BrokerQueues
from rmqctl.engine.rehearsal.brokerfiles import BrokerFileQueue, subdirectories
from rmqctl.engine.rehearsal.brokerlog import BrokerLog, Records
from rmqctl.engine.rehearsal.brokerrecord import Request
from rmqctl.engine.rehearsal.model import Deleted, Outcome, StartFails, Step
from rmqctl.engine.settings import filesizes
from rmqctl.engine.settings.logdirectories import log_directories
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state import brokerjson
from rmqctl.engine.state.checkpoint import Checkpoint
from rmqctl.engine.state.laterversions import config_not_in_files
from rmqctl.errors import ConfigFileUnreadable, ConfigurationContradiction

_CHECKPOINT = Struct(f">{len(Checkpoint._fields)}q")
#: Bytes of a timer wheel: twice the slots of seven days of seconds.
_WHEEL_SIZE = constants.TIMER_SLOTS * layouts.TIMER_SLOT.size
#: What ``BrokerController#initialize`` loads before the store, and 5.3.3 beside it.
_STATE = (brokerjson.TOPICS, brokerjson.SUBSCRIPTION_GROUP, brokerjson.CONSUMER_FILTER)
_STATE_OF_5 = ("topicQueueMapping.json", "consumerOrderInfo.json")


def rehearse(
    root: Path,
    config: MessageStoreConfig,
    *,
    as_5: bool = False,
    read: Callable[[int], None] = lambda size: None,
) -> Outcome:
    """Plays a start of a broker on a store, and changes nothing.

    :param as_5: plays 5.3.3 instead of 4.9.3.
    :param read: called with the number of bytes of the log that were read.
    :raises CannotRead, AmbiguousLog, BrokerConfError: it cannot be played.
    """
    return _Rehearsal(root, config, as_5=as_5, read=read).play()


class _Rehearsal:
    def __init__(
        self, root: Path, config: MessageStoreConfig, *, as_5: bool, read: Callable[[int], None]
    ) -> None:
        self.root, self.config, self.as_5 = root, config, as_5
        self.outcome = Outcome(is_clean=not (root / paths.ABORT).exists())
        self._read_hook = read
        size = _size_of(
            filesizes.commit_log_file_size, root, config, config.mapped_file_size_commit_log
        )
        queue_size = _size_of(
            filesizes.consume_queue_file_size, root, config, config.mapped_file_size_consume_queue
        )
        self.log_files = BrokerFileQueue(size, self.outcome.deleted)
        base = root / paths.CONSUME_QUEUE
        self.queues = BrokerQueues(base, config, queue_size, self.outcome.deleted, as_5=as_5)
        self.commit_log = open_commit_log(root, config, size)

    def play(self) -> Outcome:
        try:
            self._load()
            self._start()
        except StartFails as failure:
            self.outcome.reason, self.outcome.failed_queue = str(failure), failure.queue
            self._step("fail", "", str(failure))
        finally:
            self.commit_log.close()
        self.outcome.queues = [queue.state for _, queue in sorted(self.queues.table.items())]
        # A file that was made anew under its old name exists again.
        made = {file.path for queue in self.queues.table.values() for file in queue.queue.files}
        self.outcome.deleted = [one for one in self.outcome.deleted if one.path not in made]
        files = self.log_files.files
        self.outcome.min_offset = files[0].file_from_offset if files else -1
        self.outcome.max_offset = self.log_files.max_offset
        return self.outcome

    def _step(self, what: str, where: str | Path, why: str) -> None:
        place = where if isinstance(where, str) else shown(self.root, where)
        self.outcome.steps.append(Step(what, place, why))

    def _read(self, size: int) -> None:
        self.outcome.scanned_bytes += size
        self._read_hook(size)

    # --- load ----------------------------------------------------------------------------

    def _load(self) -> None:
        is_clean = self.outcome.is_clean
        self._check_state()
        _check_openable(self.root / paths.LOCK)
        if self.as_5:
            _check_wheel(self.root / paths.TIMER_WHEEL)
        why = "there is no abort: the last stop was clean" if is_clean else "abort is there"
        self._step("normal-recovery" if is_clean else "abnormal-recovery", paths.ABORT, why)
        directories = log_directories(self.root, self.config).all
        self.log_files.load(directories, self.root, as_5=self.as_5)
        self._step("load-log", paths.COMMIT_LOG, _some(len(self.log_files.files), "file"))
        self.log = BrokerLog(self.log_files, self.commit_log, as_5=self.as_5, read=self._read)
        self._load_queues()
        checkpoint = _read_checkpoint(self.root / paths.CHECKPOINT)
        self._load_index(checkpoint)
        for queue in self.queues.table.values():
            queue.recover()
        self._recover_log(checkpoint)
        for queue in self.queues.table.values():
            queue.cut_to = queue.state.max_offset
        self._correct_min_offsets()
        if self.as_5:
            self._load_timer_log()
        else:
            _check_readable(self.root, brokerjson.DELAY_OFFSET)

    def _check_state(self) -> None:
        """Topics, groups, offsets and filters, where a broker has them in files."""
        if config_not_in_files(self.root, self.config):
            return
        is_lmq = self.config.enable_lmq
        offsets = brokerjson.LMQ_CONSUMER_OFFSET if is_lmq else brokerjson.CONSUMER_OFFSET
        for name in (offsets, *_STATE, *(_STATE_OF_5 if self.as_5 else ())):
            _check_readable(self.root, name)

    def _load_timer_log(self) -> None:
        """``TimerLog#load``. The rest of the timer's start changes no log and no queue."""
        size = _size_of(
            filesizes.timer_log_file_size,
            self.root,
            self.config,
            self.config.mapped_file_size_timer_log,
        )
        files = BrokerFileQueue(size, self.outcome.deleted)
        files.load([self.root / paths.TIMER_LOG], self.root, as_5=True)

    def _load_queues(self) -> None:
        ext = self.root / paths.CONSUME_QUEUE_EXT
        has_ext = self.config.enable_consume_queue_ext or (
            not self.config.is_explicit("enable_consume_queue_ext") and ext.is_dir()
        )
        told, configured = (
            filesizes.consume_queue_ext_file_size,
            self.config.mapped_file_size_consume_queue_ext,
        )
        size = _size_of(told, self.root, self.config, configured) if has_ext else 0
        for topic, directory in subdirectories(self.root / paths.CONSUME_QUEUE):
            for name, path in subdirectories(directory):
                queue_id = java_int(name)
                if queue_id is None:
                    continue
                queue = self.queues.add(topic, queue_id, path)
                queue.queue.load([path], self.root, as_5=self.as_5)
                if has_ext:
                    # The start's changes to extension files hide nothing from a consumer.
                    files = BrokerFileQueue(size, self.outcome.deleted)
                    files.load([ext / topic / str(queue_id)], self.root, as_5=self.as_5)
        self._step("load-queues", paths.CONSUME_QUEUE, _some(len(self.queues.table), "queue"))

    def _load_index(self, checkpoint: Checkpoint) -> None:
        """``IndexService#load``."""
        for name, path in subdirectories(self.root / paths.INDEX):
            if java_long(name) is None:
                continue  # ``MappedFile`` reads the name first: what it is does not matter.
            if path.exists() and not path.is_file():  # It cannot be mapped.
                if self.as_5:
                    what = "a directory" if path.is_dir() else "a pipe or another thing"
                    raise StartFails(f"index/{name}: {what}, not an index file")
                return  # 4.9.3 loads neither this nor anything behind it.
            if self.outcome.is_clean:
                continue
            header = _index_header(path)
            if header.end_timestamp > checkpoint.index_msg_timestamp:
                size = paths.listed_status(path).st_size
                self.outcome.deleted.append(Deleted(path, size, "index-in-doubt"))
                said = checkpoint.index_msg_timestamp
                why = f"the checkpoint says that the index is on disk up to {utc_time(said)}"
                if not said:
                    why = "no checkpoint says that any of the index is on disk"
                last = utc_time(header.end_timestamp)
                self._step("delete-index", path, f"its last message is of {last}, {why}")

    # --- recovery ------------------------------------------------------------------------

    def _recover_log(self, checkpoint: Checkpoint) -> None:
        """``CommitLog#recoverNormally`` and ``#recoverAbnormally``."""
        files, queues = self.log_files.files, self.queues.table.values()
        if not files:
            for queue in queues:
                queue.destroy()
            self._step("delete-queues", paths.CONSUME_QUEUE, "the log has no file")
            return
        newest = self.queues.max_physical_offset
        number, why = self._first_scanned(checkpoint, newest)
        first = files[number]
        self.outcome.first_scanned = first.path
        self._step("scan-log", first.path, why)
        for found in self.log.walk(number):
            self._dispatch_walked(found, newest)
        end = self.log.end
        self.outcome.walked_to, self.outcome.end_why = end, self.log.end_why
        self._step("end-log", str(end), self.log.end_why)
        self.log_files.truncate_dirty(end, "behind-log-end")
        if newest >= end:
            for queue in queues:
                queue.truncate(end)
            if newest > end:
                reach = f"they reach to {newest}, the log to {end}"
                self._step("cut-queues", paths.CONSUME_QUEUE, reach)

    def _first_scanned(self, checkpoint: Checkpoint, newest: int) -> tuple[int, str]:
        """Number of the file from which on the log is read, and why."""
        files = self.log_files.files
        if not self.outcome.is_clean:
            return self._first_unclean(checkpoint)
        if not self.as_5:
            return max(len(files) - 3, 0), "after a clean stop the last three files are read"
        for number in range(len(files) - 1, 0, -1):
            if files[number].file_from_offset <= newest:
                return number, f"the queues reach to {newest}"
        return 0, "no later file begins before the end of the queues"

    def _first_unclean(self, checkpoint: Checkpoint) -> tuple[int, str]:
        before, name = checkpoint.min_timestamp, "the checkpoint of log and queues"
        parts = "log and queues"
        if self.config.message_index_enable and self.config.message_index_safe:
            before, name = min(before, checkpoint.index_msg_timestamp), "the whole checkpoint"
            parts = "log, queues and index"
        known = {constants.MESSAGE_MAGIC_CODE}
        if self.as_5:
            known.add(constants.MESSAGE_MAGIC_CODE_V2)
        for number in range(len(self.log_files.files) - 1, -1, -1):
            mapped = self.log_files.files[number].open()
            head = mapped.read(0, LONGEST_PREFIX)
            mapped.close()
            prefix = prefix_at(head, 0, len(head))
            if prefix is None or prefix.magic_code not in known:
                continue
            if 0 != prefix.store_timestamp <= before:
                first = utc_time(prefix.store_timestamp)
                return number, f"its first message is of {first}, {name} says {utc_time(before)}"
        if not before:
            return 0, f"no checkpoint says how much of {parts} is on disk"
        return 0, f"no file begins with a message from before {utc_time(before)}, as {name} says"

    def _dispatch_walked(self, found: Records | Request, newest: int) -> None:
        """Dispatches what the walk found: after a crash all; 5.3.3 else what the queues lack."""
        if self.outcome.is_clean and not self.as_5:
            return
        bound = newest + 1 if self.outcome.is_clean else constants.LONG_MIN
        if isinstance(found, Records):
            self.queues.put_batch(found.batch, bound, found.end)
        elif found.physical_offset >= bound:
            self.queues.put(found)

    def _correct_min_offsets(self) -> None:
        """``recoverTopicQueueTable``."""
        files = self.log_files.files
        log_min = files[0].file_from_offset if files else -1
        for queue in self.queues.table.values():
            queue.correct_min(log_min, as_5=self.as_5)

    # --- start ---------------------------------------------------------------------------

    def _start(self) -> None:
        holder = holder_of_lock(self.root)
        if holder is not None:
            self.outcome.is_in_use = True
            raise StartFails(f"the lock is held by {holder}")
        if self.as_5:
            return
        files = self.log_files.files
        log_min = files[0].file_from_offset if files else -1
        start = max(self.queues.max_physical_offset, log_min, 0)
        self.outcome.reput_from = start
        end = self.log_files.max_offset
        if start < end:
            self.outcome.dispatched_bytes = end - start
            self._step("dispatch", str(start), f"the queues end there, the log at {end}")
            self.log.reput(start, self.queues, is_master=self.config.broker_role != "SLAVE")
            self._correct_min_offsets()  # Else they are what the recovery has found.


def _some(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _check_wheel(path: Path) -> None:
    """``TimerWheel``'s constructor accepts a new file, or one of the right length.

    :raises StartFails: the file has another length.
    """
    length = path.stat().st_size if path.is_file() else 0
    if length not in (0, _WHEEL_SIZE):
        raise StartFails(f"{path.name}: {length} bytes, and a timer wheel has {_WHEEL_SIZE}")


def _size_of(
    told: Callable[[Path, MessageStoreConfig], int],
    root: Path,
    config: MessageStoreConfig,
    configured: int,
) -> int:
    """The size of files for a broker: by ``broker.conf``, even if the files contradict it."""
    try:
        return told(root, config)
    except ConfigurationContradiction:
        return configured


def _read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint; a short file counts as if zeros followed.

    :raises StartFails: it is not a file.
    """
    _check_openable(path)
    data = _beginning(path, _CHECKPOINT.size) if path.exists() else b""
    return Checkpoint._make(_CHECKPOINT.unpack(data.ljust(_CHECKPOINT.size, b"\0")))


def _check_openable(path: Path) -> None:
    """``RandomAccessFile`` opens a file, and makes it where a link leads to no file.

    :raises StartFails: it is something else than a file, or a link into no directory.
    """
    if path.is_dir():
        raise StartFails(f"{path.name}: a directory, not a file")
    if path.exists() and not path.is_file():
        raise StartFails(f"{path.name}: a pipe or another thing that is no file")
    if path.is_symlink() and not Path(os.path.realpath(path)).parent.is_dir():
        raise StartFails(f"{path.name}: a link to no directory")


def _index_header(path: Path) -> IndexHeader:
    data = _beginning(path, HEADER.size)
    return IndexHeader._make(HEADER.unpack(data.ljust(HEADER.size, b"\0")))


def _beginning(path: Path, size: int) -> bytes:
    """The first bytes of a file, at most ``size``.

    :raises CannotRead: it is no file, or the system refuses.
    """
    with open(paths.open_listed(path), "rb") as file:
        return file.read(size)


def _check_readable(root: Path, name: str) -> None:
    """``ConfigManager#load``. :raises StartFails: neither the file nor its copy can be read."""
    path = root / brokerjson.CONFIG / name
    for one in (path, path.with_name(name + brokerjson.BACKUP)):
        try:
            if brokerjson.read(one, []) is not None or one != path:
                return
        except ConfigFileUnreadable:
            continue
    raise StartFails(f"{brokerjson.CONFIG}/{name}: neither it nor its .bak can be read")
