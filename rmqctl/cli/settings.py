"""``Settings``: the options that all commands have, and the notes that they print."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import click

from rmqctl.cli.output import RowWriter, note

if TYPE_CHECKING:
    from rmqctl.engine.files.filequeue import FileEntry
    from rmqctl.engine.messagestore import MessageStore, WritableStore
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.engine.start.model import StartPlan
    from rmqctl.operations.mend.rebuild import RebuildSummary
    from rmqctl.rows import Row


_KEYS_COMPARED = re.compile(r"\bKEYS\s*(?:=|IN\b)|=\s*KEYS\b", re.IGNORECASE)


class Settings(NamedTuple):
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
            self._note_no_log(store)
        if self.verbose:
            self.detail(
                f"{self.root}: log from {store.min_offset} to {store.max_offset}, files of "
                f"{store.commit_log.file_size} bytes, queue files of {store.queues.file_size}"
            )
        self._note_irregular_of(
            store, store.irregular if every_queue else store.commit_log.files.irregular
        )
        return store

    def _note_irregular_of(self, store: MessageStore, files: list[FileEntry]) -> None:
        if files:
            from rmqctl.operations.look.info import irregular_files

            self.note_irregular(irregular_files(store, files))

    def note_irregular_log(self) -> None:
        """The notes of :meth:`open` about files of the log, for a command that reads the log
        without opening the store."""
        from rmqctl.engine.messagestore import MessageStore

        with MessageStore(self.root, self.config) as store:
            self._note_irregular_of(store, store.commit_log.files.irregular)

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

    def note_recovery(self, plan: StartPlan | None) -> None:
        """Notes what opening for writing has brought in order after a crash or a loss."""
        if plan is None or not plan.is_needed:
            return
        from rmqctl.rows.words import some_are

        cut = sum(one.max_offset - one.end for one in plan.queue_cuts if not one.is_hole)
        self.note(
            ("note: " if plan.is_clean else "note: the store was not closed cleanly: ")
            + f"brought in order as by a broker's start; the log ends at {plan.end.offset}, "
            f"{plan.dispatch_bytes} bytes of it were dispatched again"
            + (f", {some_are(cut, 'unit')} gone that had no record" if cut else "")
            + "."
        )

    def note_completion(self, root: Path, summary: RebuildSummary) -> None:
        """Notes what was brought in order behind a rebuild, or why it could not be."""
        from rmqctl.engine.files.paths import ABORT

        self.note_recovery(summary.recovered)
        if summary.not_in_order:
            is_clean = not (root / ABORT).exists()
            what = "could not be brought in order" if is_clean else "was not closed cleanly"
            self.note(f"note: {root} {what}: {summary.not_in_order}")

    def quiet_progress(self, title: str) -> AbstractContextManager[Callable[[int, int], None]]:
        """A bar on a terminal's stderr for work before any row, which seldom takes long. Gives the
        function that takes how much is done, and how much there is."""
        from rmqctl.cli.progress import late_progress

        return late_progress(title, quiet=self.quiet)

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

    def planned_order(self, store: MessageStore, writer: RowWriter, *, strict: bool) -> None:
        """The same for commands that open a store for writing only where a start would change
        something in it."""
        from rmqctl.operations.mend.recovery import check_may_write, is_in_order

        check_may_write(store)
        if not is_in_order(store):
            self.planned_recovery(store, writer, strict=strict)

    def note_irregular(self, files: list[str]) -> None:
        """Notes files that are not as long as they must be: something of them may be left out."""
        if not files:
            return
        self.note(
            f"note: {_some(files)}. What they lack is left out, and a broker does not start on "
            "them: `rmqctl verify` says what to do."
        )

    def note_config(self, store: MessageStore) -> None:
        """Notes that the broker keeps its configuration elsewhere than in the files of config/."""
        from rmqctl.engine.state.laterversions import config_not_in_files

        names = [name for name, _ in config_not_in_files(store.root, store.config)]
        if names:
            self.note(
                f"note: this broker keeps its configuration in {_some(names)}, which is not read: "
                "what the JSON files of config/ say may be long out of date. Ask a running broker "
                "with mqadmin; of a store with its queues in RocksDB `rmqctl rebuild queues "
                "--to-file-queues --in-place` makes these files anew, too."
            )

    def note_queues(self, store: MessageStore) -> None:
        """Notes queues in RocksDB that are not read, because a package lacks or because queues in
        files are read instead."""
        from rmqctl.engine.state.laterversions import has_doubtful_queues, queues_in_rocksdb

        if store.queues.in_files and queues_in_rocksdb(store.root, store.config) is not None:
            from rmqctl.installed import install_command

            self.note(
                "note: this broker keeps its queues in RocksDB, which are not read without the "
                "package rocksdict: what is in them does not count here. Install it with "
                f"`{install_command('rocksdb')}`. `rmqctl walk commitlog` shows every message, and "
                "`rmqctl rebuild queues --to-file-queues --in-place` makes files of the queues."
            )
        elif has_doubtful_queues(store.root, store.config):
            self.note(
                "note: this store has queues in RocksDB, too; those in files are read. Where its "
                "broker reads the others, give its broker.conf, with storeType=defaultRocksDB."
            )

    def note_compacted(self, store: MessageStore, topic: str | None = None) -> None:
        """Notes that of compacted topics (5.x), or of the given one, the ordinary queues count."""
        found = sorted(store.compacted_topics)
        if names := [one for one in found if topic in (None, one)]:
            self.note(
                f"note: compacted topics (5.x): {_some(names)}. Here their queues count as they "
                "were put, as far as the log goes back; `rmqctl pull` and `rmqctl walk queue` show "
                "what compaction has kept."
            )

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

    def note_version(self, store: MessageStore, instead: str) -> None:
        """For something that only 5.x has, and that was not found: notes that no broker of 5.x has
        run on the store. ``instead`` says what that means."""
        from rmqctl.engine.state.laterversions import is_of_5

        if not is_of_5(store.root):
            self.note(f"note: no broker of 5.x has run on this store: {instead}")

    def note_index(self, store: MessageStore) -> bool:
        """Notes index files that are passed over; returns whether there are any."""
        files = [f"{path.name} ({size} bytes)" for path, size in store.index.irregular.items()]
        if files:
            self.note(
                f"note: index files of a wrong length are left out: {_some(files)}. Messages may "
                "be missing here: `rmqctl rebuild index` writes the index anew."
            )
        return bool(files)

    def note_bodies(self, summary: Row) -> bool:
        """Notes how many bodies were shown that fail their CRC; returns whether there are any."""
        mismatches = summary.get("body_crc_mismatches", 0)
        if mismatches:
            bodies = "one body is" if mismatches == 1 else f"{mismatches} bodies are"
            self.note(
                f"note: {bodies} not what was stored (status body-crc-mismatch): bytes have "
                "changed on disk. Prefer a replica; `rmqctl put` and `import` refuse such rows."
            )
        return bool(mismatches)

    def note_missing(self, summary: Row) -> None:
        """Notes for how many hits of the index the log has no record."""
        if missing := summary.get("missing", 0):
            hits = "one hit" if missing == 1 else f"{missing} hits"
            self.note(
                f"note: {hits} of the index cannot be read, and may be what was looked for: the "
                "log no longer goes back so far, or is damaged there. `rmqctl verify` says why."
            )

    def note_keys(self, sql: str | None) -> None:
        """For a filter that has matched nothing: notes how it compares KEYS, if it does."""
        if sql is not None and _KEYS_COMPARED.search(sql):
            self.note(
                "note: a filter compares KEYS as a whole, which is all keys of a message with "
                "blanks between: --key KEY of `rmqctl walk commitlog` finds one of them, and so "
                "does `rmqctl find KEY`."
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

    def note(self, text: str) -> None:
        """A note on stderr, unless -q."""
        if not self.quiet:
            note(text)

    def detail(self, text: str) -> None:
        """A note on stderr with -v."""
        if self.verbose and not self.quiet:
            note(text)

    def note_absent_topic(self, store: MessageStore, topic: str | None) -> bool:
        """Where nothing was found: notes that the store has no such topic, and whether it did.
        None names no topic."""
        from rmqctl.cli.mistyped import note_absent_topic

        return note_absent_topic(self, store, topic)

    def note_absent_queue(self, store: MessageStore, topic: str, queue_id: int) -> None:
        """Notes that the store has no such queue (most often a name is mistyped), or that its files
        have wrong lengths."""
        from rmqctl.engine.services.anyqueue import opened_queue
        from rmqctl.engine.state.laterversions import queues_in_rocksdb

        self.note_queues(store)
        with opened_queue(store, topic, queue_id) as queue:
            if queue is not None:
                self._note_irregular_of(store, queue.irregular)
                return
        if store.queues.in_files and queues_in_rocksdb(store.root, store.config):
            return  # That has been said.
        if not self.quiet:
            from rmqctl.cli.mistyped import absent_queue

            self.note(absent_queue(store, topic, queue_id))

    def progress(
        self, title: str, total: int, writer: RowWriter, *, counts: bool = False
    ) -> AbstractContextManager[Callable[[int], None]]:
        """A bar on a terminal's stderr. Gives the function that takes how much of ``total`` is
        done: bytes, unless it ``counts`` other things."""
        from rmqctl.cli.progress import progress

        return progress(title, total, writer, counts=counts, quiet=self.quiet)


def _some(names: list[str]) -> str:
    more = f", and {len(names) - 3} more" if len(names) > 3 else ""
    return "; ".join(names[:3]) + more


def _body_fields() -> tuple[str, ...]:
    """The fields that a row has for the body that the running command is told to show."""
    context = click.get_current_context(silent=True)
    asked = {} if context is None else context.params
    if asked.get("body", "none") == "none":
        return ()
    more = ("body_compression", "body_status", "body_reason") if asked.get("decompress") else ()
    return ("body", "body_encoding", "status", *more)
