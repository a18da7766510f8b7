"""The codes of verify for queues, index and checkpoint, by the same rules as
:mod:`rmqctl.operations.verify.codes`."""

from __future__ import annotations

from rmqctl.operations.verify.codes import ERROR, INFO, REBUILD_INDEX, WARNING, Code

_REBUILD_QUEUES = "`rmqctl rebuild` makes the queue anew."
_NOT_INDEXED = (
    "A query by key does not find them, and a broker never indexes what it has dispatched. "
)

DERIVED_CODES: dict[str, Code] = {
    # queues
    "consumequeue-missing": Code(
        ERROR,
        "queue",
        "no queue at all is there",
        "A broker makes all queues at its start when none is there; `rmqctl rebuild` does so now.",
    ),
    "queue-missing": Code(
        ERROR,
        "queue",
        "the log has messages of this queue, but it has no files",
        "A broker does not bring it back. " + _REBUILD_QUEUES,
    ),
    "queue-of-deleted-topic": Code(
        INFO,
        "queue",
        "the log has messages of a topic that has no queue files and is not in topics.json",
        "So it is when a topic was deleted: its queues go with it. Else put the topic back into "
        "topics.json; `rmqctl rebuild queues --in-place --topic T` brings its queues back.",
    ),
    "queue-begun-again": Code(
        WARNING,
        "queue",
        "records of the log have no unit, and later ones have their places",
        "So it is when a topic was deleted and made again, and needs nothing then. If it was not, "
        "the queue was lost once, and a broker began it again: consumers do not get the older "
        "messages; `rmqctl walk commitlog --topic T` shows them. Leave this topic out of a "
        "rebuild: the older messages would take the places of the later ones.",
    ),
    "multi-dispatch-queue-missing": Code(
        WARNING,
        "queue",
        "records have offsets in further queues (INNER_MULTI_DISPATCH) of which none is there, and "
        "the broker.conf says enableMultiDispatch=false",
        "A broker has stored them with enableMultiDispatch: consumers of these queues do not get "
        "them. `rmqctl rebuild queues` with enableMultiDispatch=true in the broker.conf, and "
        "enableLmq as it was, writes the queues.",
    ),
    "multi-dispatch-contradicted": Code(
        INFO,
        "queue",
        "enableMultiDispatch or enableLmq of the broker.conf does not explain the queues that are "
        "there",
        "They are checked, and rebuilt, as they were written. A broker of this configuration "
        "leaves them as they are, and adds nothing to them.",
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
    "extension-sizes-astray": Code(
        ERROR,
        "queue",
        "in an extension file the sizes do not lead from unit to unit up to their end: a broker "
        "with enableConsumeQueueExt does not start on it",
        "`rmqctl rebuild queues --in-place` with this --topic and --queue-id writes the queue and "
        "its extension anew, without the bit maps of a broker's filters.",
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
        ERROR,
        "queue",
        "units point behind the end of the log",
        "The log has lost its end: bring its last files back from a replica. Else these messages "
        "are lost; a starting broker takes the units away, and so does `rmqctl rebuild queues`.",
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
    "queue-offsets-skipped": Code(
        INFO,
        "commitlog",
        "between two records of a batch queue (5.x) queue offsets are left out",
        "No message has them, and a consumer passes over them. `rmqctl walk commitlog --topic T` "
        "shows the records.",
    ),
    # index
    "index-missing": Code(
        ERROR, "index", "no index file, though messages have keys", _NOT_INDEXED + REBUILD_INDEX
    ),
    "index-sizes-unusual": Code(
        INFO,
        "index",
        "the index files have other numbers of slots and items than a broker's defaults, as the "
        "links in them prove",
        "They are read so. A broker whose broker.conf does not say these sizes finds nothing in "
        "them; commands that write want that broker.conf (--broker-conf).",
    ),
    "index-behind": Code(
        ERROR,
        "index",
        "the newest messages with keys are not indexed (info: the next start does that)",
        _NOT_INDEXED + REBUILD_INDEX,
    ),
    "index-starts-late": Code(
        ERROR,
        "index",
        "messages with keys before the first index item",
        _NOT_INDEXED + REBUILD_INDEX,
    ),
    "key-not-indexed": Code(ERROR, "index", "keys of messages have no index item", REBUILD_INDEX),
    "index-item-without-key": Code(
        ERROR, "index", "an item whose record has no such key, or no record", REBUILD_INDEX
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
        ERROR, "index", "an item's time is not its message's", REBUILD_INDEX
    ),
    "index-prev-mismatch": Code(
        ERROR,
        "index",
        "an item does not point to the item before it in its slot",
        "Older messages are not found by key. " + REBUILD_INDEX,
    ),
    "index-slot-mismatch": Code(
        ERROR,
        "index",
        "a slot does not point to its newest item",
        "Messages are not found by key. " + REBUILD_INDEX,
    ),
    "index-header-mismatch": Code(
        ERROR, "index", "a field of the header is not what the items say", REBUILD_INDEX
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
        "`rmqctl checkpoint set --computed` stores the latest one that the data proves right.",
    ),
    "checkpoint-zero": Code(
        WARNING,
        "checkpoint",
        "it holds no time though the log has records",
        "After a crash a broker walks the whole log, and cuts it at the first damage. "
        "`rmqctl flush` writes one.",
    ),
}
