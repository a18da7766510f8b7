"""Appends rows to an existing store: those of a batch job, or of a stream, batch by batch.

1. Each task checks its rows and writes them as an Arrow file into ``rmqctl-append/`` in the store,
   which every node must see.
2. The driver's machine puts them, in the order of the partitions. It holds the store's lock, as
   every put does, because a store has only one writer.

A job with a name and a number (``txnAppId`` and ``txnVersion``, which a stream has automatically)
is put exactly once, whatever is killed. Before its first message is put, a note is forced to disk,
with the files of the job and the end of the log. A later run with the same name first puts what is
missing of that job, and skips numbers that are done.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from formats import constants
from formats.text import decode_properties
from rmqctl.engine.files import writing
from rmqctl.engine.files.durable import sync_directory
from rmqctl.engine.files.lock import StoreLock
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.record.form import FORM_OF_4_9_3
from rmqctl.engine.record.message import (
    EncodedMessage,
    MessageExtBrokerInner,
    PutMessageResult,
)
from rmqctl.engine.record.record import Record
from rmqctl.errors import RmqctlError
from rmqctl.spark.session.staging import NotShared
from rmqctl.spark.sink.appendnote import (
    Newest,
    Note,
    Pending,
    check_is_of,
    read_note,
    unreadable,
    write_note,
)
from rmqctl.spark.sink.encode import EncodeSettings, RowEncoder, RowRefused
from rmqctl.spark.sink.newstore import AppendRefused

#: The directory in the store for the files of tasks, and a note for each name.
APPEND = "rmqctl-append"
#: The prefix of the directories of jobs without a name.
NAMELESS = "batch-"
#: The suffix of a file while a task writes it, and when it is complete.
_SUFFIX = ".arrow"
#: Properties that an append sets, or leaves out, depending on the place of the record.
_OF_PLACE = {
    constants.PROPERTY_CRC32,
    constants.PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    constants.PROPERTY_WAIT_STORE_MSG_OK,
}


class AppendStopped(RmqctlError):
    """An append has stopped when some of its messages were stored."""

    template = (
        "{path} has {stored} of the {messages} messages of this job, the first ones; then it "
        "stopped: {reason}. Mend that; a job with txnAppId and txnVersion (a stream is one) goes "
        "on there when it is run again."
    )


class SetAsideGone(RmqctlError):
    template = (
        "what was set aside for {path} is gone: a later job that appends to it has removed it. "
        "Nothing was put. Run one job after the other."
    )


class Aside(NamedTuple):
    """The result of one task: a file of messages, or why one of its rows is not a message."""

    name: str
    messages: int
    refused: str = ""


class Transaction(NamedTuple):
    """A job that is put exactly once: its name, and a number that grows from job to job."""

    app_id: str
    version: int


@dataclass(frozen=True)
class Appending:
    """One job, or one stream, that appends to the store ``root``. It is sent to the tasks.

    :param name: the name of the directory for its files.
    """

    root: str
    name: str
    settings: EncodeSettings

    @property
    def _place(self) -> Path:
        return Path(self.root, APPEND, self.name)

    def begin(self) -> None:
        """Makes the directory for the files of tasks. The directories of other jobs without a name
        are removed: the later job wins. That of a name stays, because Spark calls this again for
        each batch and each commit of a stream.

        :raises StoreInUse: a broker, or another writer, uses the store.
        :raises CannotWrite: the system refuses it. :raises AppendNoteUnreadable: the note of the
            name is invalid.
        """
        lock = StoreLock(Path(self.root))
        try:
            for other in Path(self.root, APPEND).glob(f"{NAMELESS}*"):
                shutil.rmtree(other)
            self._place.mkdir(parents=True, exist_ok=True)
            # Force the names of the directories to disk: without them the note would be lost.
            for above in self._place.parents[:2]:
                sync_directory(above)
            read_note(self._place)
        except OSError as error:
            raise writing.writing_error(self._place, error) from error
        finally:
            lock.release()

    # --- in a task -----------------------------------------------------------------------------

    def set_aside(self, batches: Iterable[pa.RecordBatch], name: str) -> Aside:
        """Writes the rows of one task. That a row is not a message is returned and not raised,
        because Spark would retry the task. :raises CannotWrite: the disk is full. :raises
        NotShared: this node does not see the store."""
        encoder, messages = RowEncoder(self.settings), 0
        path = self._place / f"{name}{_SUFFIX}"
        try:
            with path.open("wb") as file:
                writer = None
                for batch in batches:
                    encoder.encode(batch)  # Checks all rows before the first one is put.
                    writer = writer or pa.ipc.new_stream(file, batch.schema)
                    writer.write_batch(batch)
                    messages += batch.num_rows
                if writer is not None:
                    writer.close()
                file.flush()
                os.fsync(file.fileno())
        except RowRefused as error:
            return Aside(path.name, 0, str(error))
        except FileNotFoundError as error:
            raise NotShared(path=self.root) from error
        except OSError as error:
            raise writing.writing_error(path, error) from error
        return Aside(path.name, messages)

    # --- by the driver -------------------------------------------------------------------------

    def put(self, told: Sequence[Aside], transaction: Transaction | None = None) -> int:
        """Puts the messages of the tasks' files, in order, exactly once. Returns how many messages
        this call has put.

        :raises StoreInUse, DamagedStore: as every open for writing; nothing was put.
        :raises SetAsideGone, AppendNoteUnreadable, StoreReplaced: nothing was put.
        :raises AppendRefused: the store refuses a message; none of the job was put.
        :raises AppendStopped: some messages were put.
        """
        settings = self.settings
        files = [(one.name, one.messages) for one in told if one.messages]
        with MessageStore(Path(self.root), settings.config, writable=True) as store:
            if not all((self._place / name).exists() for name, _ in files):
                raise SetAsideGone(path=self.root)
            note = read_note(self._place)
            check_is_of(store, self._place, note)
            pending, stored = note.pending, 0
            if pending is not None:
                stored, newest = self._rest_of(store, note, pending)
                note = Note(max(note.done, pending.version), None, newest)
            if transaction is None or transaction.version > note.done:
                number = transaction.version if transaction is not None else note.done
                job = Pending(
                    number, store.max_offset, settings.timestamp, settings.as_stored, files
                )
                self._check(store, job)
                if transaction is not None:
                    write_note(self._place, note._replace(pending=job))
                put, newest = self._put(store, job, 0)
                stored, note = stored + put, Note(number, None, newest or note.newest)
            if transaction is not None or pending is not None:
                write_note(self._place, note)
            # Still under the lock: once another run with this name has it, it may note its files.
            self._clear()
        return stored

    def abandon(self, told: Iterable[Aside]) -> None:
        """Removes the files of tasks for a job that is not put. Files that the note names stay:
        Spark also aborts a job whose put has stopped, which a later run continues."""
        kept = self._noted()
        for one in told:
            if one.name not in kept:
                (self._place / one.name).unlink(missing_ok=True)

    def remove(self) -> None:
        """Removes everything of a job without a name, which no later run can continue."""
        shutil.rmtree(self._place, ignore_errors=True)
        with suppress(OSError):
            self._place.parent.rmdir()

    def _put(self, store: WritableStore, job: Pending, first: int) -> tuple[int, Newest | None]:
        """Puts the messages of a job from number ``first`` on. Returns how many, and the last
        one."""
        stored, newest = first, None
        total = sum(messages for _, messages in job.files)

        def stopped(reason: str) -> AppendStopped:
            return AppendStopped(path=self.root, stored=stored, messages=total, reason=reason)

        try:
            for results in store.put_stream(self._messages(job, first)):
                # A refused message is the last of its bulk.
                for result in results:
                    if not result.is_ok:
                        raise stopped(f"{result.status.value}: {result.reason}".rstrip(": "))
                    stored += 1
                last = results[-1].append if results else None
                if last is not None:
                    newest = Newest(last.wrote_offset, last.store_timestamp)
        except AppendStopped:
            raise
        except (OSError, ValueError, RmqctlError) as error:
            raise stopped(str(error)) from error
        return stored - first, newest

    def _check(self, store: WritableStore, job: Pending) -> None:
        """Checks the messages against the store. The tasks have checked them against the
        configuration only.

        :raises AppendRefused: the store refuses one of them.
        """
        other = store.dispatcher.batch_topics or store.compacted_topics
        is_known = store.form == FORM_OF_4_9_3 and not other
        if is_known and store.commit_log.file_size == store.config.mapped_file_size_commit_log:
            return
        for message in self._messages(job, 0):
            checked = store.check_message(message)
            if isinstance(checked, PutMessageResult):
                reason = f"a message of topic {message.topic} is refused: {checked.reason}"
                raise AppendRefused(path=self.root, reason=reason)

    def _rest_of(self, store: WritableStore, note: Note, job: Pending) -> tuple[int, Newest | None]:
        """Puts the messages of a job that a killed run has not put. That run put them in order, and
        other writers may have put messages between and behind them. Returns how many were put now,
        and the last message that is known.

        :raises AppendNoteUnreadable: what it names is gone from the log, or a file of it is.
        """
        if job.begin < store.min_offset:
            begin = f"the job began at physical offset {job.begin}, and the log begins later"
            raise unreadable(self._place, begin)
        for name, _ in job.files:
            if not (self._place / name).exists():
                raise unreadable(self._place, f"{name}, which it names, is gone")
        try:
            found = self._found(store, job)
        except (OSError, ValueError) as error:
            raise unreadable(self._place, str(error)) from error
        if not found:
            # A power loss may have cut the log before the noted offset: then nothing was put.
            job = job._replace(begin=store.max_offset)
            write_note(self._place, note._replace(pending=job))
        stored, newest = self._put(store, job, found)
        return stored, newest or note.newest

    def _found(self, store: WritableStore, job: Pending) -> int:
        """How many messages of a job are in the log."""
        if job.begin >= store.max_offset:
            return 0
        wanted = map(store.check_message, self._messages(job, 0))
        one, found = next(wanted, None), 0
        for entry in store.commit_log.walk(job.begin):
            if not isinstance(one, EncodedMessage):
                break
            if isinstance(entry, Record) and _is_same(entry, one):
                one, found = next(wanted, None), found + 1
        return found

    def _messages(self, job: Pending, first: int) -> Iterator[MessageExtBrokerInner]:
        encoder = RowEncoder(EncodeSettings(self.settings.config, job.timestamp, job.as_stored))
        number = 0
        for name, messages in job.files:
            if number + messages <= first:
                number += messages
                continue
            with (self._place / name).open("rb") as file, pa.ipc.open_stream(file) as batches:
                for batch in batches:
                    for message in encoder.messages(batch):
                        if number >= first:
                            yield message
                        number += 1

    def _noted(self) -> set[str]:
        """The files that the note names."""
        pending = read_note(self._place).pending
        return set() if pending is None else {name for name, _ in pending.files}

    def _clear(self) -> None:
        """Removes files that the note does not name."""
        kept = self._noted()
        for entry in list(self._place.iterdir()):
            if entry.suffix == _SUFFIX and entry.name not in kept:
                entry.unlink(missing_ok=True)


def transaction_name(app_id: str) -> str:
    """The name of the directory for a job's name."""
    return f"job-{sha256(app_id.encode()).hexdigest()[:32]}"


def _is_same(record: Record, encoded: EncodedMessage) -> bool:
    """Whether a record is this message, as a put stores it."""
    message = encoded.message
    return (
        (record.topic, record.queue_id) == (message.topic, message.queue_id)
        and record.born_timestamp == message.born_timestamp
        and (record.born_address, record.born_port) == message.born_host
        and record.flag == message.flag
        and record.body_length == len(message.body)
        and record.body_crc == encoded.body_crc
        and _kept(record.properties_bytes) == _kept(message.properties_data())
    )


def _kept(properties: bytes) -> dict[str, str]:
    """The properties, except those that depend on the place of the record."""
    return {k: v for k, v in decode_properties(properties).items() if k not in _OF_PLACE}
