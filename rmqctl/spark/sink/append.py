"""Rows at the end of a store that is there: of a batch job, or batch by batch of a stream.

1. Each task checks its rows and sets them aside as an Arrow file below ``rmqctl-append/`` in the
   store, which every node must see.
2. The driver's machine puts them, in the order of the partitions, under the store's lock and as
   every put does: one store has one writer.

A job that has a name and a number (``txnAppId`` and ``txnVersion``, which a stream has unasked) is
put once, whatever is killed: before its first message is put, a note is on disk of what is set
aside for it and of where the log ended. A later run of the same name first puts what is missing of
that, and passes over numbers that are done.
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
from rmqctl.engine.files import paths
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

#: Below the store: what tasks set aside, and a note of each name.
APPEND = "rmqctl-append"
#: What names of directories begin with, of jobs without a name.
NAMELESS = "batch-"
#: What a task writes, and what counts, when it is whole.
_SUFFIX = ".arrow"
#: Properties that an append sets, or leaves out, by the place of the record.
_OF_PLACE = {
    constants.PROPERTY_CRC32,
    constants.PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    constants.PROPERTY_WAIT_STORE_MSG_OK,
}


class AppendStopped(RmqctlError):
    """Some of the messages are stored."""

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
    """What one task has set aside: a file of messages, or why a row of its is none."""

    name: str
    messages: int
    refused: str = ""


class Transaction(NamedTuple):
    """A job that is put once: its name, and a number that grows from job to job."""

    app_id: str
    version: int


@dataclass(frozen=True)
class Appending:
    """One job, or one stream, and the store ``root``. It travels to the tasks.

    :param name: tells what is set aside for it from that of others.
    """

    root: str
    name: str
    settings: EncodeSettings

    @property
    def _place(self) -> Path:
        return Path(self.root, APPEND, self.name)

    def begin(self) -> None:
        """Makes the directory that tasks write to. What was set aside for jobs without a name goes:
        a later job wins. That for a name stays: of a stream Spark begins each batch and each commit
        anew.

        :raises StoreInUse: a broker, or another writer, has the store.
        :raises CannotWrite: the system refuses it. :raises AppendNoteUnreadable: the note of the
            name is none.
        """
        lock = StoreLock(Path(self.root))
        try:
            for other in Path(self.root, APPEND).glob(f"{NAMELESS}*"):
                shutil.rmtree(other)
            self._place.mkdir(parents=True, exist_ok=True)
            # What the note of the job says is lost with the names above it.
            for above in self._place.parents[:2]:
                sync_directory(above)
            read_note(self._place)
        except OSError as error:
            raise paths.writing_error(self._place, error) from error
        finally:
            lock.release()

    # --- in a task -----------------------------------------------------------------------------

    def set_aside(self, batches: Iterable[pa.RecordBatch], name: str) -> Aside:
        """One task's rows. A row that is no message is told and not raised: Spark would try it
        again. :raises CannotWrite: the disk is full. :raises NotShared: this node has not the
        store."""
        encoder, messages = RowEncoder(self.settings), 0
        path = self._place / f"{name}{_SUFFIX}"
        try:
            with path.open("wb") as file:
                writer = None
                for batch in batches:
                    encoder.encode(batch)  # Refuses what is no message, before any is put.
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
            raise paths.writing_error(path, error) from error
        return Aside(path.name, messages)

    # --- by the driver -------------------------------------------------------------------------

    def put(self, told: Sequence[Aside], transaction: Transaction | None = None) -> int:
        """Puts what tasks have set aside, in their order, once; how many messages that was now.

        :raises StoreInUse, DamagedStore: as every open for writing; nothing was put.
        :raises SetAsideGone, AppendNoteUnreadable, StoreReplaced: nothing was put.
        :raises AppendRefused: the store does not take a message; none of the job was put.
        :raises AppendStopped: some were put.
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
            # Under the lock: another run of the name may note its own files as soon as it has it.
            self._clear()
        return stored

    def abandon(self, told: Iterable[Aside]) -> None:
        """Removes what tasks have set aside for a job that is not put. What the note names stays:
        Spark aborts a job, too, whose put has stopped, and a later run goes on with that."""
        kept = self._noted()
        for one in told:
            if one.name not in kept:
                (self._place / one.name).unlink(missing_ok=True)

    def remove(self) -> None:
        """Removes all of the job, which has no name that another could go on under."""
        shutil.rmtree(self._place, ignore_errors=True)
        with suppress(OSError):
            self._place.parent.rmdir()

    def _put(self, store: WritableStore, job: Pending, first: int) -> tuple[int, Newest | None]:
        """The messages of a job from number ``first`` on: how many, and the last one."""
        stored, newest = first, None
        total = sum(messages for _, messages in job.files)

        def stopped(reason: str) -> AppendStopped:
            return AppendStopped(path=self.root, stored=stored, messages=total, reason=reason)

        try:
            for results in store.put_stream(self._messages(job, first)):
                # One that is refused is the last of its bulk.
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
        """Tasks have checked the messages by the configuration, and know no more of the store.

        :raises AppendRefused: it does not take one of them.
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
        """What a killed run has not put of a job: it put them in their order, and others may have
        put theirs between and behind. How many, and the last message that is known.

        :raises AppendNoteUnreadable: what it notes is gone: from the log, or what was set aside.
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
            # A power loss may have cut the log before the noted place: nothing of it lies there.
            job = job._replace(begin=store.max_offset)
            write_note(self._place, note._replace(pending=job))
        stored, newest = self._put(store, job, found)
        return stored, newest or note.newest

    def _found(self, store: WritableStore, job: Pending) -> int:
        """How many messages of a job the log has."""
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
        """Removes files that no note names."""
        kept = self._noted()
        for entry in list(self._place.iterdir()):
            if entry.suffix == _SUFFIX and entry.name not in kept:
                entry.unlink(missing_ok=True)


def transaction_name(app_id: str) -> str:
    """The directory of a job's name."""
    return f"job-{sha256(app_id.encode()).hexdigest()[:32]}"


def _is_same(record: Record, encoded: EncodedMessage) -> bool:
    """Whether a record is the message, as a put stores it."""
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
    """Properties but those of a record's place."""
    return {k: v for k, v in decode_properties(properties).items() if k not in _OF_PLACE}
