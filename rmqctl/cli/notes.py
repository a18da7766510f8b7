"""``Notes``: what commands say on stderr beside their rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.cli.output import note

if TYPE_CHECKING:
    from rmqctl.engine.files.filequeue import FileEntry
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.queue.outofplace import OutOfPlace
    from rmqctl.engine.start.model import StartPlan
    from rmqctl.operations.mend.rebuild import RebuildSummary
    from rmqctl.rows import Row

#: Said where messages were deleted before a command came to them.
DELETED = "what lay before {to_offset} was deleted before it was read (retention). Going on there"
_KEYS_COMPARED = re.compile(r"\bKEYS\s*(?:=|IN\b)|=\s*KEYS\b", re.IGNORECASE)


class Notes:
    """The notes. A method's name says what they are about; where there is nothing to say, it says
    nothing."""

    quiet: bool
    verbose: bool

    def note(self, text: str) -> None:
        """A note on stderr, unless -q."""
        if not self.quiet:
            note(text)

    def detail(self, text: str) -> None:
        """A note on stderr with -v."""
        if self.verbose and not self.quiet:
            note(text)

    def note_in_use(self, root: Path, consequence: str) -> None:
        """Notes that another process, mostly a broker, has the store, and what that means."""
        from rmqctl.engine.files.lock import is_locked

        if is_locked(root):
            self.note(f"note: another process holds the lock of {root}: {consequence}")

    def note_deleted(self, begin: int) -> None:
        """Notes that retention has deleted what lay before ``begin`` (a physical offset)."""
        self.note(f"note: {DELETED.format(to_offset=begin)}.")

    def note_irregular_of(self, store: MessageStore, files: list[FileEntry]) -> None:
        """:meth:`note_irregular` for files of a store that is open."""
        if files:
            from rmqctl.operations.look.info import irregular_files

            self.note_irregular(irregular_files(store, files))

    def note_irregular(self, files: list[str]) -> None:
        """Notes files that are not as long as they must be: something of them may be left out."""
        if not files:
            return
        self.note(
            f"note: {_some(files)}. What they lack is left out, and a broker does not start on "
            "them: `rmqctl verify` says what to do."
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

    def note_out_of_place(self, root: Path, found: OutOfPlace | None) -> None:
        """Notes records that a rebuild could not put where they name it, if there are any."""
        if not found:
            return
        from rmqctl.rows.words import some, some_are

        told = []
        if found.misplaced:
            units = some_are(found.misplaced, "unit")
            told.append(f"{units} not at the queue offset that the record names")
        if found.without_unit:
            told.append(f"{some_are(found.without_unit, 'record')} without a unit")
        self.note(
            f"note: in {some(len(found.queues), 'queue')} of {root}, {' and '.join(told)}: the log "
            "leaves queue offsets out there, or has them twice. A broker's dispatch does the same, "
            "and consumers may miss messages. The first of these records is at physical offset "
            f"{found.first}; `rmqctl verify` names all of them. Leave out of a rebuild what it "
            "does not make better: a topic that was deleted and made again, or a queue that was "
            "sound."
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

    def note_absent_topic(self, store: MessageStore, topic: str | None) -> bool:
        """Where nothing was found: notes that the store has no such topic, and whether it did.
        None names no topic."""
        if topic is None or self.quiet:
            return False
        from rmqctl.cli.mistyped import absent_topic

        found = absent_topic(store, topic)
        if found is not None:
            self.note(found)
        return found is not None

    def note_absent_queue(self, store: MessageStore, topic: str, queue_id: int) -> None:
        """Notes that the store has no such queue (most often a name is mistyped), or that its files
        have wrong lengths."""
        from rmqctl.engine.services.anyqueue import opened_queue
        from rmqctl.engine.state.laterversions import queues_in_rocksdb

        self.note_queues(store)
        with opened_queue(store, topic, queue_id) as queue:
            if queue is not None:
                self.note_irregular_of(store, queue.irregular)
                return
        if store.queues.in_files and queues_in_rocksdb(store.root, store.config):
            return  # That has been said.
        if not self.quiet:
            from rmqctl.cli.mistyped import absent_queue

            self.note(absent_queue(store, topic, queue_id))


def _some(names: list[str]) -> str:
    more = f", and {len(names) - 3} more" if len(names) > 3 else ""
    return "; ".join(names[:3]) + more
