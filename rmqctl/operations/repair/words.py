"""The sentences of a plan's steps: what each step changes, and what is lost by it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rmqctl.engine.files import paths
from rmqctl.engine.messagestore import system_clock
from rmqctl.engine.state import brokerjson
from rmqctl.operations.mend.timer import planned_timer
from rmqctl.operations.repair import model
from rmqctl.rows.words import some, some_are

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.operations.repair.model import Step

_NOTHING = "Nothing."
_WITH_ABORT = " The store was not closed cleanly: `rmqctl flush` before a broker starts on it."


def sentences(store: MessageStore, step: Step) -> tuple[str, str]:
    """What a step changes, and what it sacrifices, in sentences."""
    return _SAID[step.action](store, step)


def _quarantine(store: MessageStore, step: Step) -> tuple[str, str]:
    path = store.root / step.path
    what = "directory" if path.is_dir() and not path.is_symlink() else "file"
    changes = f"Moves the {what} {step.path} out of the way: a broker does not start with it there."
    return changes, "Nothing of the store. Whoever put it there may need it."


def _extend_file(store: MessageStore, step: Step) -> tuple[str, str]:
    path, position, length = step.what["path"], step.what["position"], step.what["length"]
    changes = (
        f"Extends {path} to its full length, with {length} zeros behind its {position} bytes. A "
        "broker does not start on a shorter file."
    )
    return changes, (
        "Nothing that is there. Messages that were behind these bytes stay lost: if a replica or "
        "a backup has the whole file, bring that back instead."
    )


def _cut_tail(store: MessageStore, step: Step) -> tuple[str, str]:
    what = step.what
    where = (
        f"Overwrites {what['length']} bytes behind the end of the log, from offset "
        f"{what['physical_offset']} on, with zeros"
    )
    if (store.root / step.path).stat().st_size < store.commit_log.file_size:
        changes = f"{where}: a message whose end is gone with that of the file."
        return changes, "These bytes, which cannot be read as a message."
    changes = f"{where}: a torn append, or old records that a start has cut off."
    return changes, (
        "These bytes. No message that was acknowledged as on disk is in them; with ASYNC_FLUSH a "
        "broker acknowledges before that."
    )


def _rebuild_queues(store: MessageStore, step: Step) -> tuple[str, str]:
    return (
        "Makes all queues from the log.",
        "Nothing that the log has. Queues of which it has no message are removed, and begin at "
        "offset 0 again with their next message.",
    )


def _rebuild_queue(store: MessageStore, step: Step) -> tuple[str, str]:
    topic, queue_id = step.what["topic"], step.what["queue_id"]
    changes = f"Makes queue {queue_id} of topic {topic} from the log."
    queue = store.consume_queue(topic, queue_id)
    if queue is None:
        return changes, _NOTHING
    now = f"It has offsets {queue.min_offset} to {queue.max_offset} now"
    if "unit-points-past-log-end" in step.mends:
        return changes, (
            f"{now}. Those of messages that the log has lost go, and new messages get them."
        )
    return changes, f"Nothing that the log has. {now}."


def _rebuild_index(store: MessageStore, step: Step) -> tuple[str, str]:
    files = len(paths.scan_names(store.root / paths.INDEX))
    old = f" in place of {some(files, 'file')}" if files else ""
    abort = _WITH_ABORT if store.had_abort else ""
    return f"Makes the whole index from the log{old}.", f"Nothing that the log has.{abort}"


def _rebuild_timer(store: MessageStore, step: Step) -> tuple[str, str]:
    counts = planned_timer(store, system_clock())
    recalls = f", and {counts.recalls} that recall one" if counts.recalls else ""
    changes = (
        "Makes wheel, timer log and check point of the timer from "
        f"{some(counts.messages, 'waiting message')}{recalls}."
    )
    lost = counts.gone + counts.unreadable
    sacrifices = []
    if lost:
        sacrifices.append(f"{some(lost, 'message')} that the log lacks, or has with no time.")
    if counts.doubtful:
        sacrifices.append(
            f"{some(counts.doubtful, 'message')} may be delivered twice: due already, and nothing "
            "says whether that was done."
        )
    return changes, " ".join(sacrifices) or "Nothing that the log has."


def _restore_config(store: MessageStore, step: Step) -> tuple[str, str]:
    copy = (store.root / (step.path + brokerjson.BACKUP)).stat()
    when = _time(copy.st_mtime_ns // 1_000_000)
    changes = f"Puts the content of {step.path}.bak, of {when}, into {step.path}."
    lost = "What a broker wrote after that"
    if step.path.rpartition("/")[2] in brokerjson.OFFSET_TABLES:
        return changes, f"{lost}: groups read messages of that time again."
    return changes, f"{lost}."


def _set_offset(store: MessageStore, step: Step) -> tuple[str, str]:
    what = step.what
    where = f"group {what['group']} on queue {what['queue_id']} of topic {what['topic']}"
    changes = f"Moves {where} from offset {what['old_offset']} to {what['new_offset']}."
    if what["new_offset"] < what["old_offset"]:
        lost = what["old_offset"] - what["new_offset"]
        return changes, (
            f"Nothing: {some_are(lost, 'message')} behind the new offset, and in no queue. What "
            "comes back from a replica, the group reads again."
        )
    return changes, "Nothing: the messages before the new offset are deleted."


def _set_checkpoint(store: MessageStore, step: Step) -> tuple[str, str]:
    log, queues, index = map(_time, step.what.values())
    changes = (
        f"Stores the checkpoint: the log is on disk up to {log}, queues up to {queues}, the index "
        f"up to {index}. These are the latest times that are true after the other steps."
    )
    return changes, _NOTHING


def _time(milliseconds: int) -> str:
    """A time (epoch milliseconds) as ISO 8601; as a number if it is outside the calendar."""
    try:
        when = datetime.fromtimestamp(milliseconds // 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return f"{milliseconds} ms"
    when = when.replace(microsecond=milliseconds % 1000 * 1000)
    return when.isoformat(timespec="milliseconds")


_SAID = {
    model.QUARANTINE: _quarantine,
    model.EXTEND_FILE: _extend_file,
    model.CUT_TAIL: _cut_tail,
    model.REBUILD_QUEUES: _rebuild_queues,
    model.REBUILD_QUEUE: _rebuild_queue,
    model.REBUILD_INDEX: _rebuild_index,
    model.REBUILD_TIMER: _rebuild_timer,
    model.RESTORE_CONFIG: _restore_config,
    model.SET_OFFSET: _set_offset,
    model.SET_CHECKPOINT: _set_checkpoint,
}
