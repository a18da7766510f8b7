"""What verify and config check can find: one code a kind of damage, its severity, its next step.

*error*: something is lost, wrong or will be lost. *warning*: not as it should be, and nothing is
lost yet. *info*: worth knowing, nothing to mend; does not count as a finding for the exit code.
"""

from __future__ import annotations

from typing import NamedTuple

ERROR, WARNING, INFO = "error", "warning", "info"


class Finding(NamedTuple):
    """One finding. Fields that say nothing here are None.

    ``physical_offset`` is a place in the log, ``position`` one in the file ``path`` (relative to
    the store).
    """

    code: str
    severity: str
    structure: str
    path: str | None = None
    physical_offset: int | None = None
    position: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    expected: str | None = None
    found: str | None = None
    advice: str = ""


class Code(NamedTuple):
    """What a code means everywhere: ``meaning`` is for the reference page."""

    severity: str
    structure: str
    meaning: str
    advice: str


_REBUILD_QUEUES = "`rmqctl rebuild queues` writes the queues from the log."
_REBUILD_INDEX = "`rmqctl rebuild index` writes the index from the log."
_LOG_LOST = (
    "These bytes are lost unless a replica has them. Keep the broker down: its recovery may delete "
    "everything behind this place. Copy the store first."
)

CODES: dict[str, Code] = {
    # commit log
    "bad-magic": Code(
        ERROR, "commitlog", "no record's or blank's magic code stands where one must", _LOG_LOST
    ),
    "total-size-mismatch": Code(
        ERROR, "commitlog", "the lengths in the record do not add up to its total size", _LOG_LOST
    ),
    "total-size-out-of-range": Code(
        ERROR, "commitlog", "the record does not fit into its file", _LOG_LOST
    ),
    "body-length-out-of-range": Code(
        ERROR, "commitlog", "the body would reach beyond the file", _LOG_LOST
    ),
    "topic-length-out-of-range": Code(
        ERROR, "commitlog", "no topic can have that length", _LOG_LOST
    ),
    "properties-length-out-of-range": Code(
        ERROR, "commitlog", "the properties would reach beyond the file", _LOG_LOST
    ),
    "physical-offset-mismatch": Code(
        ERROR, "commitlog", "the record names another place as its own", _LOG_LOST
    ),
    "blank-size-mismatch": Code(
        ERROR,
        "commitlog",
        "a blank's size is not the rest of the file",
        "A broker takes the rest of the file as blank whatever the size says.",
    ),
    "zeroed-records": Code(ERROR, "commitlog", "zeros, and records again behind them", _LOG_LOST),
    "body-crc-mismatch": Code(
        ERROR,
        "commitlog",
        "the body is not what was stored",
        "The body of this message is damaged. A broker that recovers over this place cuts the log "
        "here and deletes what follows: copy the store before you start one.",
    ),
    "record-crc-mismatch": Code(
        ERROR,
        "commitlog",
        "the record is not what its own checksum says (`__CRC32#`, of 5.x)",
        "A field, the topic, the properties or the checksum is damaged: the body is what was "
        "stored. A broker with forceVerifyPropCRC that recovers over this place cuts the log here "
        "and deletes what follows: copy the store before you start one.",
    ),
    "properties-malformed": Code(
        ERROR,
        "commitlog",
        "the properties do not parse",
        "Tags or keys of this message are lost; a broker reads what it can of them.",
    ),
    "dispatch-stops": Code(
        WARNING,
        "commitlog",
        "with enableMultiDispatch a broker's dispatch fails at this record again and again: in "
        "4.9.3 at one without properties, in every version where offsets are no numbers",
        "Nothing behind it reaches a queue once a broker dispatches it, and after a crash 4.9.3 "
        "does not start. Start it with enableMultiDispatch=false until the record is deleted.",
    ),
    "topic-not-allowed": Code(
        ERROR,
        "commitlog",
        "the topic cannot be a directory below consumequeue/",
        "The record gets no queue: a broker would write outside consumequeue/.",
    ),
    "commitlog-file-missing": Code(
        ERROR,
        "commitlog",
        "a file is missing between two others",
        "Bring the file back from a replica or a backup; every message in it is lost else.",
    ),
    "file-length-mismatch": Code(
        ERROR,
        "directory",
        "a file's length is not that of its neighbours, or not of the configured geometry",
        "A broker refuses to start on it. If it uses other sizes give its broker.conf with "
        "--broker-conf; an empty last file may be deleted.",
    ),
    "index-length-mismatch": Code(
        ERROR,
        "directory",
        "an index file's length is not that of the geometry (slots and items)",
        "With other maxHashSlotNum or maxIndexNum give the broker.conf with --broker-conf. A "
        "broker with the wrong ones finds nothing in it. " + _REBUILD_INDEX,
    ),
    "foreign-file": Code(
        ERROR,
        "directory",
        "something that is no file of the store lies in one of its directories",
        "A broker refuses to start with it in commitlog/ or in a queue: move it away.",
    ),
    "symbolic-link": Code(
        WARNING,
        "directory",
        "a symbolic link inside the store",
        "rmqctl reads through it, but does not write through it.",
    ),
    "unreadable-file": Code(
        ERROR, "directory", "the system refuses to read it", "Check its owner, rights and disk."
    ),
    "torn-tail": Code(
        WARNING,
        "commitlog",
        "the last append was cut off by a crash",
        "Nothing that was acknowledged is lost; the next append overwrites it.",
    ),
    "stale-record": Code(
        WARNING,
        "commitlog",
        "after the end stands an older record, intact but of another place",
        "A broker that recovers after a crash takes it for a record of the log.",
    ),
    "residue-after-end": Code(
        INFO,
        "commitlog",
        "bytes of an earlier life stand behind the end of the log",
        "They are overwritten as the log grows.",
    ),
    "log-starts-late": Code(
        INFO,
        "commitlog",
        "older files are gone, as retention removes them",
        "Units and index items that point there are passed over.",
    ),
    "not-understood": Code(
        INFO,
        "store",
        "a structure of a later version, or of an option, that is not checked",
        "The rest of the store is.",
    ),
    "unclean-shutdown": Code(
        INFO,
        "store",
        "abort is there: a broker runs, or stopped without closing the store",
        "A starting broker recovers from the checkpoint and throws the last index file away.",
    ),
    # queues
    "consumequeue-missing": Code(
        ERROR,
        "queue",
        "no queue at all is there",
        "A broker rebuilds all queues at its start when none is there. " + _REBUILD_QUEUES,
    ),
    "queue-missing": Code(
        ERROR,
        "queue",
        "the log has messages of this queue, but it has no files",
        "A broker does not bring it back. " + _REBUILD_QUEUES,
    ),
    "record-without-unit": Code(
        ERROR,
        "queue",
        "records of the log have no unit in their queue: no consumer sees them",
        _REBUILD_QUEUES,
    ),
    "dispatch-behind": Code(
        INFO,
        "queue",
        "the last records are not dispatched yet",
        "A broker, or any rmqctl command that writes, does it at its start.",
    ),
    "unit-mismatch": Code(
        ERROR,
        "queue",
        "a unit does not say what its record says",
        "Consumers get another message, or none. " + _REBUILD_QUEUES,
    ),
    "extension-file-unclaimed": Code(
        INFO,
        "queue",
        "an extension file with something in it that no unit of the queue points to",
        "A kill leaves one; nothing reads it, and a starting broker removes it.",
    ),
    "unit-delivery-time-mismatch": Code(
        ERROR,
        "queue",
        "a delayed message's unit names another time of delivery than its level gives",
        "If the broker sets messageDelayLevel give its broker.conf with --broker-conf. Else the "
        "message is delivered at the wrong time. " + _REBUILD_QUEUES,
    ),
    "unit-misplaced": Code(
        ERROR,
        "queue",
        "units stand at other queue offsets than their records say",
        "The broker logs `logic queue order maybe wrong`. " + _REBUILD_QUEUES,
    ),
    "unit-hole": Code(
        ERROR, "queue", "units that were never written, with others behind them", _REBUILD_QUEUES
    ),
    "unit-points-past-log-end": Code(
        ERROR, "queue", "units point behind the end of the log", _REBUILD_QUEUES
    ),
    "unit-points-into-damage": Code(
        ERROR,
        "queue",
        "units point into a damaged or missing part of the log",
        "These messages cannot be read. A pull skips them.",
    ),
    "unit-points-to-no-record": Code(
        ERROR, "queue", "units point to a place where no record starts", _REBUILD_QUEUES
    ),
    "unit-of-other-queue": Code(
        ERROR, "queue", "a unit points to a record of another topic or queue", _REBUILD_QUEUES
    ),
    "queue-offset-repeated": Code(
        ERROR,
        "commitlog",
        "two records claim the same place in a queue",
        "Only one of them can be consumed. `rmqctl walk commitlog --topic T` shows both.",
    ),
    # index
    "index-missing": Code(
        WARNING, "index", "no index file, though messages have keys", _REBUILD_INDEX
    ),
    "index-behind": Code(
        WARNING,
        "index",
        "the newest messages with keys are not indexed",
        "A query by key does not find them. " + _REBUILD_INDEX,
    ),
    "index-starts-late": Code(
        WARNING,
        "index",
        "messages with keys before the first index item",
        "A query by key does not find them. " + _REBUILD_INDEX,
    ),
    "key-not-indexed": Code(ERROR, "index", "keys of messages have no index item", _REBUILD_INDEX),
    "index-item-without-key": Code(
        ERROR, "index", "an item whose record has no such key, or no record", _REBUILD_INDEX
    ),
    "index-item-points-into-damage": Code(
        WARNING,
        "index",
        "items of messages in a damaged or missing part of the log",
        "A query by key finds the item, but no message.",
    ),
    "index-item-repeated": Code(
        INFO, "index", "the same key of the same message twice", "A query finds it twice."
    ),
    "index-item-mismatch": Code(
        ERROR, "index", "an item's time is not its message's", _REBUILD_INDEX
    ),
    "index-prev-mismatch": Code(
        ERROR,
        "index",
        "an item does not point to the item before it in its slot",
        "Older messages are not found by key. " + _REBUILD_INDEX,
    ),
    "index-slot-mismatch": Code(
        ERROR,
        "index",
        "a slot does not point to its newest item",
        "Messages are not found by key. " + _REBUILD_INDEX,
    ),
    "index-header-mismatch": Code(
        ERROR, "index", "a field of the header is not what the items say", _REBUILD_INDEX
    ),
    "index-uncounted-items": Code(
        WARNING,
        "index",
        "items behind the counted ones: a writer was killed",
        "The next rmqctl command that writes takes them back; a broker overwrites them.",
    ),
    # checkpoint
    "checkpoint-missing": Code(
        WARNING,
        "checkpoint",
        "there is none",
        "After a crash a broker walks the whole log. `rmqctl flush` writes one.",
    ),
    "checkpoint-unreadable": Code(
        ERROR, "checkpoint", "it is too short to be one", "`rmqctl flush` writes a new one."
    ),
    "checkpoint-in-future": Code(
        ERROR,
        "checkpoint",
        "it claims more than the log has",
        "After a crash a broker would start its recovery too late and leave queues incomplete. "
        "`rmqctl verify` shows what is missing; `rmqctl flush` does not take it back.",
    ),
    "checkpoint-zero": Code(
        WARNING,
        "checkpoint",
        "it holds no time though the log has records",
        "After a crash a broker walks the whole log, and cuts it at the first damage. "
        "`rmqctl flush` writes one.",
    ),
    # config (found by `config check`)
    "config-unreadable": Code(
        ERROR,
        "config",
        "a file of config/ is not what a broker writes there",
        "A broker takes the .bak copy; without one it starts as if the file were empty, and with a "
        "broken one it does not start. Mend the place, or copy the .bak over the file.",
    ),
    "config-backup-unreadable": Code(
        WARNING,
        "config",
        "a .bak copy is not what a broker writes there",
        "The file itself is sound, and the broker's next write renews the copy.",
    ),
    "config-missing": Code(
        WARNING,
        "config",
        "a file of config/ is absent or empty, and its .bak copy is not",
        "A broker takes the .bak copy, which may be older. Copy it over the file.",
    ),
    "config-absent": Code(
        INFO,
        "config",
        "a file of config/ and its .bak copy are absent or empty, and the queues have messages",
        "A broker starts without topics, groups or offsets that it has there.",
    ),
    "config-temporary-left": Code(
        INFO,
        "config",
        "a .tmp file: the broker was killed while it wrote",
        "It may hold newer values than the file; a broker never reads it.",
    ),
    "config-older-than-backup": Code(
        WARNING,
        "config",
        "a file is older than its .bak copy",
        "The file was put back from somewhere. Compare the two before a broker starts.",
    ),
    "config-duplicate-key": Code(
        WARNING,
        "config",
        "a key stands twice in one object",
        "A broker takes the last one. Remove the other.",
    ),
    "config-entry-malformed": Code(
        ERROR,
        "config",
        "an entry is not of the kind that a broker writes there",
        "A broker fails on it or passes it over. Mend the file while the broker is down.",
    ),
    "consumer-offset-past-queue": Code(
        ERROR,
        "config",
        "a group has consumed more than the queue has: the queue has lost its end",
        "A broker moves the group to the queue's end, or, where the queue starts at 0, to its "
        "start: messages are skipped or read again. Set the offset before consumers start.",
    ),
    "consumer-offset-before-queue": Code(
        WARNING,
        "config",
        "a group has not read messages that are deleted",
        "They are lost for it: a broker moves the group to the queue's first message.",
    ),
    "consumer-offset-moved-back": Code(
        INFO,
        "config",
        "an offset is smaller than in the .bak copy",
        "So it is after an operator has reset it; else the file was put back from somewhere.",
    ),
    "consumer-offset-without-queue": Code(
        WARNING,
        "config",
        "a group has read from a queue that has no files",
        "The queue is deleted, or lost: `rmqctl verify` says whether the log has its messages.",
    ),
    "group-without-config": Code(
        INFO,
        "config",
        "a group has offsets, and is not in subscriptionGroup.json",
        "With autoCreateSubscriptionGroup (the default) a broker adds it when it comes again.",
    ),
    "queue-without-topic-config": Code(
        WARNING,
        "config",
        "a topic has queues, and is not in topics.json",
        "A broker answers TOPIC_NOT_EXIST to its consumers. Create the topic again.",
    ),
    "topic-without-queue": Code(
        INFO,
        "config",
        "a topic of topics.json has no queue",
        "So it is as long as nothing was sent to it.",
    ),
    "queue-not-readable": Code(
        WARNING,
        "config",
        "messages in a queue whose number is not below readQueueNums",
        "No consumer is told of this queue. Raise readQueueNums until they are read.",
    ),
    "queue-not-writable": Code(
        INFO,
        "config",
        "a queue whose number is not below writeQueueNums",
        "No producer is told of this queue: a topic is made smaller so.",
    ),
    "delay-offset-past-queue": Code(
        WARNING,
        "config",
        "more delayed messages of a level are delivered than its queue has: it has lost its end",
        "A broker goes on at the queue's end. `rmqctl verify` says whether the log has more.",
    ),
    "delay-offset-before-queue": Code(
        WARNING,
        "config",
        "delayed messages of a level were deleted before their delivery",
        "They are lost: a broker goes on with the first message of the queue.",
    ),
    "delay-offset-missing": Code(
        INFO,
        "config",
        "no progress is known of a delay level that has messages",
        "A broker delivers the queue from its start, what was delivered before as well.",
    ),
    "delay-level-unknown": Code(
        WARNING,
        "config",
        "a delay level that messageDelayLevel does not have",
        "If the broker sets messageDelayLevel give its broker.conf with --broker-conf. Else its "
        "messages are never delivered.",
    ),
}


def finding(code: str, **fields: object) -> Finding:
    """A finding of a code, with the code's severity, structure and advice unless given."""
    known = CODES[code]
    values: dict[str, object] = {
        "severity": known.severity,
        "structure": known.structure,
        "advice": known.advice,
    }
    for name, value in fields.items():
        values[name] = (
            str(value) if name in ("expected", "found", "path") and value is not None else value
        )
    return Finding(code=code, **values)  # type: ignore[arg-type]
