"""find: finds messages by a text: their key, their id, or words in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from formats.constants import LONG_MAX, PROPERTY_UNIQ_KEY
from rmqctl.engine.record.record import Record
from rmqctl.engine.services.anyqueue import queue_directories
from rmqctl.engine.state.brokerjson import CONFIG
from rmqctl.engine.state.topicconfig import topic_configs
from rmqctl.engine.tiered.metadata import FILE as TIERED
from rmqctl.errors import ConfigFileUnreadable, UsageError
from rmqctl.operations.look.message import parse_physical_offset
from rmqctl.operations.look.ranges import check_range
from rmqctl.operations.look.rows import bodies_counted, message_row_with_body

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.rows.structures import MessageRow
    from rmqctl.rows.summaries import FindSummary

MESSAGE_ID, UNIQUE_KEY, KEY = "message-id", "unique-key", "key"
_MESSAGE_ID = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{56}")
#: Values of ``not_searched``.
(
    LOG,
    TOPICS_FILE,
    OTHER_TOPICS,
    NO_INDEX,
    IRREGULAR_INDEX,
    BEFORE_INDEX,
    DAMAGES,
    BODIES,
    UPLOADED,
    REST,
) = (
    "log",
    "topics-without-queues",
    "other-topics",
    "no-index",
    "irregular-index-files",
    "before-index",
    "damaged-parts",
    "compressed-bodies",
    "uploaded-files",
    "beyond-limit",
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to look for. ``scans``: in the log as well; ``limit``: the most messages to give. The
    other fields are those of a walk."""

    text: str
    topic: str | None = None
    since: int | None = None
    until: int | None = None
    limit: int = 100
    scans: bool = False
    body: str = "none"
    decompress_limit: int | None = None

    def __post_init__(self) -> None:
        """:raises UsageError: the text is empty, or ``since`` is later than ``until``."""
        if not self.text:
            raise UsageError(reason="the text is empty: give a key, a message id, or a word.")
        check_range("--since", self.since, "--until", self.until)

    def shows(self, record: Record) -> bool:
        return (
            (self.topic is None or record.topic == self.topic)
            and (self.since is None or record.store_timestamp >= self.since)
            and (self.until is None or record.store_timestamp <= self.until)
        )


@dataclass(slots=True)
class _Search:
    """One search: the messages found so far, by physical offset, and counts for the summary."""

    store: MessageStore
    wanted: Wanted
    found: dict[int, str] = field(default_factory=dict)
    topics: int = 0
    collisions: int = 0
    missing: int = 0
    scanned_bytes: int = 0
    damages: int = 0
    unread_bodies: int = 0
    has_more: bool = False
    not_searched: list[str] = field(default_factory=list)

    def has_room(self) -> bool:
        """Whether one more message may be shown. If not, it is noted that there are more."""
        self.has_more = len(self.found) >= self.wanted.limit
        return not self.has_more

    def by_message_id(self) -> Iterator[Record]:
        """The record that an offset message id names, if it has that id. A unique key may look like
        such an id, and lead elsewhere."""
        if not _MESSAGE_ID.fullmatch(self.wanted.text):
            return
        try:
            offset = parse_physical_offset(self.wanted.text)
        except UsageError:
            return
        record = self.store.commit_log.find_record(offset)
        if record is None or not self.wanted.shows(record):
            return
        if record.msg_id.upper() == self.wanted.text.upper():
            self.found[record.physical_offset] = MESSAGE_ID
            yield record

    def by_index(self, progress: Callable[[int], None]) -> Iterator[Record]:
        """The messages with that key, or unique key, of every known topic; newest first in each.
        The index has hashes of topic and key together, so each topic is looked up. For each,
        ``progress`` is called with 0, so that it can end the search."""
        wanted, until = self.wanted, self.wanted.until
        end = LONG_MAX if until is None else until
        for topic in self._topics():
            self.topics += 1
            progress(0)
            for match in self.store.query_message(topic, wanted.text, wanted.since or 0, end):
                record = match.record
                if record is None:
                    self.missing += 1
                elif not match.matches:
                    self.collisions += 1
                elif record.physical_offset not in self.found:
                    if not self.has_room():
                        return
                    is_unique = record.properties.get(PROPERTY_UNIQ_KEY) == wanted.text
                    self.found[record.physical_offset] = UNIQUE_KEY if is_unique else KEY
                    yield record

    def _topics(self) -> list[str]:
        if self.wanted.topic is not None:
            return [self.wanted.topic]
        try:
            named = topic_configs(self.store.root) or {}
        except ConfigFileUnreadable:
            # Nearly every topic has queues: a broken file is no reason to find nothing.
            named = {}
            self.not_searched.append(TOPICS_FILE)
        with_queues = (where.topic for where in queue_directories(self.store))
        return sorted({*with_queues, *named})

    def by_scan(self, progress: Callable[[int], None]) -> Iterator[Record]:
        """The messages that only the log has; notes at the end what was read."""
        from rmqctl.engine.scan.choice import Choice
        from rmqctl.operations.look.textsearch import TextSearch

        wanted = self.wanted
        choice = Choice(wanted.topic, wanted.since, wanted.until)
        search = TextSearch(wanted.text, choice)
        if wanted.decompress_limit is not None:
            search.decompress_limit = wanted.decompress_limit
        for record, where in search.run(self.store, progress):
            if record.physical_offset in self.found:
                continue
            if not self.has_room():
                break
            self.found[record.physical_offset] = where
            yield record
        if search.damages:
            self.not_searched.append(DAMAGES)
        if search.unread_bodies:
            self.not_searched.append(BODIES)
        self.scanned_bytes = search.scanned_bytes
        self.damages = search.damages
        self.unread_bodies = search.unread_bodies

    def tell_index(self) -> None:
        """Notes what the index does not cover."""
        index = self.store.index
        first = next(index.files(), None)
        if first is None:
            self.not_searched.append(NO_INDEX)
        elif self._may_have_records_before(first.header.begin_phy_offset):
            self.not_searched.append(BEFORE_INDEX)
        if index.irregular:
            self.not_searched.append(IRREGULAR_INDEX)

    def _may_have_records_before(self, physical_offset: int) -> bool:
        """Whether the log may have records before an offset. In a log of DLedger, the header of the
        first entry does not count."""
        log, start = self.store.commit_log, self.store.min_offset
        if start >= physical_offset or log.files.index_of(start) < 0:
            return start < physical_offset
        entry = log.entry_at(start)
        return not isinstance(entry, Record) or entry.physical_offset < physical_offset

    def row(self, record: Record) -> MessageRow:
        wanted = self.wanted
        row = message_row_with_body(self.store, record, wanted.body, wanted.decompress_limit)
        row["found_by"] = self.found[record.physical_offset]
        return row


@bodies_counted
def find(
    store: MessageStore, wanted: Wanted, progress: Callable[[int], None] = lambda done: None
) -> Iterator[MessageRow | FindSummary]:
    """Rows ``message`` with ``found_by``, then ``summary``. First come the messages found by the id
    and the index, in log order; then, with ``scans``, the others, in log order. ``progress`` is
    called with the bytes of the log that were scanned, and may raise to end the search.

    The summary's ``not_searched`` says what was not looked at. Where it is empty, the store has no
    other message with that text.
    """
    search = _Search(store, wanted)
    # Where the index cannot be read, the scan of the log finds everything.
    passes_over = wanted.scans and store.index.is_of_other_geometry
    told = [*search.by_message_id(), *(() if passes_over else search.by_index(progress))]
    for record in sorted(told, key=lambda one: one.physical_offset):
        yield search.row(record)
    if wanted.scans:
        search.not_searched.clear()  # The scan also finds what the index lacks.
        for record in search.by_scan(progress):
            yield search.row(record)
    else:
        search.not_searched.append(LOG)
        search.tell_index()
    if (store.root / CONFIG / TIERED).exists():
        search.not_searched.append(UPLOADED)
    if wanted.topic is not None:
        search.not_searched.append(OTHER_TOPICS)
    if search.has_more:
        search.not_searched.append(REST)
    yield {
        "type": "summary",
        "messages": len(search.found),
        "topics": search.topics,
        "index_files": len(store.index.paths),
        "collisions": search.collisions,
        "missing": search.missing,
        "scanned": wanted.scans,
        "scanned_bytes": search.scanned_bytes,
        "damages": search.damages,
        "unread_bodies": search.unread_bodies,
        "not_searched": search.not_searched,
    }
