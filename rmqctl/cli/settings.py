"""``Settings``: the options that all commands have, and what they open and print with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import click

from rmqctl.cli.notes import Notes
from rmqctl.cli.output import RowWriter

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore, WritableStore
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.engine.start.model import StartPlan


@dataclass(frozen=True)
class Settings(Notes):
    """The options that every command has."""

    root: Path
    broker_conf: str | None
    format: str
    quiet: bool
    verbose: bool
    #: Whether a terminal gets the rows through a pager.
    paged: bool = False

    @property
    def config(self) -> MessageStoreConfig:
        from rmqctl.engine.settings.storeconfig import MessageStoreConfig, load_broker_conf

        if not self.broker_conf:
            return MessageStoreConfig()
        from rmqctl.engine.settings.logdirectories import at_root

        return at_root(load_broker_conf(self.broker_conf), self.root)

    @overload
    def open(
        self, *, writable: Literal[True], create: bool = False, puts: bool = False, **changes: Any
    ) -> WritableStore: ...

    @overload
    def open(
        self, *, writable: bool = False, every_queue: bool = True, **changes: Any
    ) -> MessageStore: ...

    def open(
        self,
        *,
        writable: bool = False,
        create: bool = False,
        puts: bool = False,
        every_queue: bool = True,
        **changes: Any,
    ) -> MessageStore:
        """Opens the store; use as a context manager. Notes say what is odd about it.

        :param puts: as of :class:`~rmqctl.engine.messagestore.WritableStore`.
        :param every_queue: also note which queues have files of a wrong length. Each queue is
            looked at for it; without it only the log is.
        :param changes: fields of the configuration, which outrank the ``broker.conf``.
        """
        from rmqctl.engine.messagestore import MessageStore, WritableStore

        config = replace(self.config, **changes) if changes else self.config
        store: MessageStore
        if writable:
            with self.quiet_progress("recovery") as progress:
                store = WritableStore(
                    self.root, config, create=create, puts=puts, progress=progress
                )
            self.note_recovery(store.plan)
        else:
            store = MessageStore(self.root, config)
            store.commit_log.when_deleted = self.note_deleted
            self._note_no_log(store)
        if self.verbose:
            self.detail(
                f"{self.root}: log from {store.min_offset} to {store.max_offset}, files of "
                f"{store.commit_log.file_size} bytes, queue files of {store.queues.file_size}"
            )
        self.note_irregular_of(
            store, store.irregular if every_queue else store.commit_log.files.irregular
        )
        return store

    def note_irregular_log(self) -> None:
        """The notes of :meth:`open` about files of the log, for a command that reads the log
        without opening the store."""
        from rmqctl.engine.messagestore import MessageStore

        with MessageStore(self.root, self.config) as store:
            self.note_irregular_of(store, store.commit_log.files.irregular)

    def _note_no_log(self, store: MessageStore) -> None:
        """Notes, for a command that only reads, that the log has no file though queues have units.
        Commands that write refuse such a store. Where there is a log no queue is looked at."""
        from rmqctl.cli.pager import takes_lock

        if store.commit_log.files.entries or takes_lock():
            return
        # As they are stored: cut to a log that is not there they would be empty.
        queues = map(store.queues.as_stored, store.queues.directories())
        if any(queue is not None and queue.max_offset > queue.min_offset for queue in queues):
            self.note(
                "note: the log has no file, and queues have units: no message can be read. If the "
                "log is elsewhere (storePathCommitLog), give the broker's configuration with "
                "--broker-conf, or mount its disk. A broker that starts so deletes the queues."
            )

    def quiet_progress(
        self, title: str, *, counts: bool = False
    ) -> AbstractContextManager[Callable[[int, int], None]]:
        """A bar on a terminal's stderr for work before any row. Gives the function that takes how
        much is done, and how much there is: bytes, unless it ``counts`` other things."""
        from rmqctl.cli.progress import late_progress

        return late_progress(title, counts=counts, quiet=self.quiet)

    def planned_recovery(
        self, store: MessageStore, writer: RowWriter, *, strict: bool = False
    ) -> StartPlan:
        """For a dry run: what opening for writing would do first; prints its row if it would do
        something. ``strict`` as of :func:`~rmqctl.operations.mend.recovery.checked_plan`."""
        from rmqctl.operations.mend.recovery import checked_plan, recovery_row

        with self.quiet_progress("recovery") as progress:
            plan = checked_plan(store, progress, strict=strict)
        if plan.is_needed:
            writer.row(recovery_row(plan))
        return plan

    def planned_order(self, store: MessageStore, writer: RowWriter, *, strict: bool) -> bool:
        """The same for commands that open a store for writing only where a start would change
        something in it. Returns whether it would change nothing."""
        from rmqctl.operations.mend.recovery import check_may_write, is_in_order

        check_may_write(store)
        if is_in_order(store):
            return True
        self.planned_recovery(store, writer, strict=strict)
        return False

    def note_uncommitted(self) -> None:
        """For a member of a DLedger group: notes which of its newest messages the group may not
        have."""
        from rmqctl.operations.look.uncommitted import uncommitted
        from rmqctl.rows.words import some

        found = uncommitted(self.root, self.config)
        if found is not None:
            count = some(found.entries, "message")
            where = found.physical_offset
            place = "at the log's end" if where is None else f"from offset {where} on"
            self.note(
                f"note: {count} {place}, not known to be committed: only this member of the group "
                "may have what is there, and no consumer has got it."
            )

    def log_bytes(self) -> int:
        """How many bytes the files of the log have, for a bar; 0 where there is no log, or none
        that can be listed, which the command itself will tell.

        :raises AmbiguousLog: as of a command that reads it.
        """
        from rmqctl.engine.log.spread import open_commit_log
        from rmqctl.errors import CannotRead

        try:
            # The files' size says nothing here: only where the first one begins and the last ends.
            log = open_commit_log(self.root, self.config, 1)
        except CannotRead:
            return 0
        return log.files.end_offset - log.min_offset

    def writer(
        self,
        main_type: str | None = None,
        *,
        bulk: bool = False,
        vertical: bool = False,
        live: bool = False,
        heading: str | None = None,
        also: Sequence[str] = (),
    ) -> RowWriter:
        """The writer of the command's rows; use as a context manager. The parameters are those of
        :class:`~rmqctl.cli.output.RowWriter`; that bodies are shown it knows."""
        return RowWriter(
            self.format,
            main_type=main_type,
            bulk=bulk,
            vertical=vertical,
            live=live,
            wide=self.verbose,
            quiet=self.quiet,
            paged=self.paged,
            heading=heading,
            also=[*_body_fields(), *also],
        )

    def progress(
        self, title: str, total: int, writer: RowWriter, *, counts: bool = False
    ) -> AbstractContextManager[Callable[[int], None]]:
        """A bar on a terminal's stderr. Gives the function that takes how much of ``total`` is
        done: bytes, unless it ``counts`` other things."""
        from rmqctl.cli.progress import progress

        return progress(title, total, writer, counts=counts, quiet=self.quiet)


def _body_fields() -> tuple[str, ...]:
    """The fields that a row has for the body that the running command is told to show."""
    context = click.get_current_context(silent=True)
    asked = {} if context is None else context.params
    if asked.get("body", "none") == "none":
        return ()
    more = ("body_compression", "body_status", "body_reason") if asked.get("decompress") else ()
    return ("body", "body_encoding", "status", *more)
