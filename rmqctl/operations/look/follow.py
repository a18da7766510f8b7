"""``--follow``: the rows of ``pull`` and ``walk commitlog`` while a broker writes the store.

A row ``moved`` tells that the offset to read at has jumped: the end of the log moved back (a broker
recovered and cut it), or retention deleted messages that had not been read yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from rmqctl.engine.read.follow import LiveStore, LogFollower, Moved, QueueFollower
from rmqctl.engine.record.record import Blank, Damage, Record
from rmqctl.engine.record.status import GetMessageStatus
from rmqctl.operations.look.places import require_walk_start
from rmqctl.operations.look.rows import bodies_counted, message_row_with_body
from rmqctl.operations.look.walk import Selection, log_row

if TYPE_CHECKING:
    from rmqctl.engine.filters.tags import MessageFilter
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.rows.structures import BlankRow, DamageRow, MessageRow, MovedRow
    from rmqctl.rows.summaries import PullFollowSummary, WalkCommitlogFollowSummary


class Patience(Protocol):
    """Decides how long to follow, and how often to look."""

    def ended(self) -> bool:
        """Whether it is time to end."""
        ...

    def wait(self) -> None:
        """Waits until the next look. Returns early when it is time to end."""
        ...


@bodies_counted
def follow_log(
    store: MessageStore,
    what: Selection,
    patience: Patience,
    *,
    body: str = "none",
    decompress_limit: int | None = None,
    message_filter: MessageFilter | None = None,
    from_end: bool = False,
) -> Iterator[MessageRow | BlankRow | DamageRow | MovedRow | WalkCommitlogFollowSummary]:
    """Rows of :func:`~rmqctl.operations.look.walk.walk_commit_log` and ``moved``, from
    ``what.start`` on (None: from the log's first record; ``from_end``: from its present end), until
    ``what.end``, ``what.limit`` or the end of patience; then ``summary``.

    :raises NoRecordAt: no record starts at ``what.start``.
    """
    start = store.max_offset if from_end else store.min_offset
    if what.start is not None:
        require_walk_start(store, what.start)
        start = what.start
    counts = {"message": 0, "blank": 0, "damage": 0, "moved": 0}
    with LiveStore(store.root, store.config) as live:
        follower = LogFollower(live, start)
        for entry in _entries(follower, patience):
            row: MessageRow | BlankRow | DamageRow | MovedRow | None
            if isinstance(entry, Moved):
                row = moved_row(entry)
            elif what.end is not None and entry.physical_offset >= what.end:
                # The entry was not yielded: a later run goes on with it.
                follower.offset = entry.physical_offset
                break
            else:
                row = log_row(live, entry, what, body, decompress_limit, message_filter)
            if row is not None:
                counts[row["type"]] += 1
                yield row
                if sum(counts.values()) == what.limit:
                    break
        yield {
            "type": "summary",
            "messages": counts["message"],
            "blanks": counts["blank"],
            "damages": counts["damage"],
            "moves": counts["moved"],
            "next_offset": follower.offset,
        }


def _entries(
    follower: LogFollower, patience: Patience
) -> Iterator[Record | Blank | Damage | Moved]:
    while not patience.ended():
        for entry in follower.look():
            yield entry
            if patience.ended():
                return
        patience.wait()


@bodies_counted
def follow_queue(
    store: MessageStore,
    topic: str,
    queue_id: int,
    offset: int | None,
    patience: Patience,
    *,
    max_messages: int | None = None,
    message_filter: MessageFilter | None = None,
    body: str = "none",
    decompress_limit: int | None = None,
    from_end: bool = False,
) -> Iterator[MessageRow | MovedRow | PullFollowSummary]:
    """Rows ``message`` of a queue, and ``moved``, from ``offset`` on (None: from the queue's first
    message; ``from_end``: from its present end), until ``max_messages`` or the end of patience;
    then ``summary``. The queue need not exist yet.

    :raises TopicNotAllowed: no queue can have this topic.
    """
    queue = store.consume_queue(topic, queue_id)
    if from_end:
        offset = 0 if queue is None else queue.max_offset
    messages = moves = 0
    with LiveStore(store.root, store.config) as live:
        follower = QueueFollower(live, topic, queue_id, offset, message_filter)
        while not patience.ended() and messages != max_messages:
            for found in follower.look():
                if isinstance(found, Moved):
                    moves += 1
                    yield moved_row(found)
                else:
                    messages += 1
                    yield message_row_with_body(live, found, body, decompress_limit)
                if patience.ended() or messages == max_messages:
                    break
            else:
                patience.wait()
        status = GetMessageStatus.FOUND if messages else GetMessageStatus.NO_MATCHED_MESSAGE
        yield {
            "type": "summary",
            "status": status.value,
            "next_begin_offset": follower.offset or 0,
            "min_offset": follower.min_offset,
            "max_offset": follower.max_offset,
            "messages": messages,
            "moves": moves,
        }


def moved_row(moved: Moved) -> MovedRow:
    """A row ``moved``. Its offsets are physical offsets of the log, or queue offsets of a queue."""
    return {
        "type": "moved",
        "reason": moved.reason,
        "from_offset": moved.from_offset,
        "to_offset": moved.to_offset,
    }
