"""The codes of verify for queues, index and checkpoint, by the same rules as
:mod:`rmqctl.operations.verify.codes`."""

from __future__ import annotations

from rmqctl.operations.verify.codes import ERROR, INFO, REBUILD_INDEX, WARNING, Code

_REBUILD_QUEUES = "`rmqctl rebuild` makes the queue anew."
_NOT_INDEXED = (
    "A query by key does not find them, and a broker never indexes what it has already dispatched. "
)

DERIVED_CODES: dict[str, Code] = {
    # queues
    "consumequeue-missing": Code(
        ERROR,
        "queue",
        "there are no queues at all",
        "A broker makes all queues at its start if there are none; `rmqctl rebuild` makes them "
        "now.",
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
        "This is normal when a topic was deleted: its queues go with it. Otherwise put the topic "
        "back into topics.json; `rmqctl rebuild queues --in-place --topic T` brings its queues "
        "back.",
    ),
    "queue-begun-again": Code(
        WARNING,
        "queue",
        "records of the log have no unit, and later records have their places in the queue",
        "This is normal when a topic was deleted and made again, and needs no action. Otherwise "
        "the queue was lost once, and a broker began it again: consumers do not get the older "
        "messages; `rmqctl walk commitlog --topic T` shows them. Leave this topic out of a "
        "rebuild: the older messages would take the places of the later ones.",
    ),
    "multi-dispatch-queue-missing": Code(
        WARNING,
        "queue",
        "records have offsets in further queues (INNER_MULTI_DISPATCH), none of these queues "
        "exists, and the broker.conf says enableMultiDispatch=false",
        "A broker has stored the records with enableMultiDispatch. Consumers of these queues do "
        "not get them. Set enableMultiDispatch=true in the broker.conf, and enableLmq as it was: "
        "then `rmqctl rebuild queues --missing` writes the queues.",
    ),
    "multi-dispatch-contradicted": Code(
        INFO,
        "queue",
        "enableMultiDispatch or enableLmq of the broker.conf does not explain the queues that "
        "exist",
        "They are checked and rebuilt as they were written. A broker with this configuration "
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
        "A broker, or any rmqctl command that writes, dispatches them at its start.",
    ),
    "unit-mismatch": Code(
        ERROR,
        "queue",
        "a unit does not match its record",
        "Consumers get another message, or none. " + _REBUILD_QUEUES,
    ),
    "extension-sizes-astray": Code(
        ERROR,
        "queue",
        "the sizes in an extension file do not lead from unit to unit up to the end: a broker with "
        "enableConsumeQueueExt does not start on it",
        "`rmqctl rebuild queues --in-place` with this --topic and --queue-id writes the queue and "
        "its extension anew, without the bit maps of a broker's filters.",
    ),
    "extension-file-unclaimed": Code(
        INFO,
        "queue",
        "an extension file has content to which no unit of the queue points",
        "A kill leaves such a file. Nothing reads it, and a starting broker removes it.",
    ),
    "unit-delivery-time-mismatch": Code(
        ERROR,
        "queue",
        "the unit of a delayed message has another delivery time than its level gives",
        "If the broker sets messageDelayLevel, give its broker.conf with --broker-conf. Otherwise "
        "the message is delivered at the wrong time. " + _REBUILD_QUEUES,
    ),
    "unit-misplaced": Code(
        ERROR,
        "queue",
        "units are at other queue offsets than their records say",
        "The broker logs `logic queue order maybe wrong`. " + _REBUILD_QUEUES,
    ),
    "unit-hole": Code(
        ERROR, "queue", "units were never written, but later ones were", _REBUILD_QUEUES
    ),
    "unit-points-past-log-end": Code(
        ERROR,
        "queue",
        "units point past the end of the log",
        "The log has lost its end: bring its last files back from a replica. Otherwise these "
        "messages are lost; a starting broker removes the units, and so does `rmqctl rebuild "
        "queues`.",
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
        ERROR,
        "queue",
        "a unit points to a record of another topic or queue",
        _REBUILD_QUEUES + " Where the record has no unit at the place that it names, its head may "
        "have changed instead: then `rmqctl salvage` corrects it.",
    ),
    "queue-offset-repeated": Code(
        ERROR,
        "commitlog",
        "two records claim the same place in a queue",
        "At most one of them can be consumed: the one whose unit stands there. `rmqctl walk "
        "commitlog --topic T` shows both.",
    ),
    "queue-offsets-skipped": Code(
        INFO,
        "commitlog",
        "queue offsets are left out between two records of a batch queue (5.x)",
        "No message has them, and a consumer skips them. `rmqctl walk commitlog --topic T` shows "
        "the records.",
    ),
    # index
    "index-missing": Code(
        ERROR,
        "index",
        "there is no index file, though messages have keys",
        _NOT_INDEXED + REBUILD_INDEX,
    ),
    "index-sizes-unusual": Code(
        INFO,
        "index",
        "the index files have other numbers of slots and items than a broker's defaults, as the "
        "links in the files prove",
        "rmqctl reads them with these numbers. A broker whose broker.conf does not have them finds "
        "nothing in the files; commands that write need that broker.conf (--broker-conf).",
    ),
    "index-behind": Code(
        ERROR,
        "index",
        "the newest messages with keys are not indexed (info: where the next start indexes them)",
        _NOT_INDEXED + REBUILD_INDEX,
    ),
    "index-starts-late": Code(
        ERROR,
        "index",
        "there are messages with keys before the first index item",
        _NOT_INDEXED + REBUILD_INDEX,
    ),
    "key-not-indexed": Code(
        ERROR, "index", "some keys of messages have no index item", REBUILD_INDEX
    ),
    "index-item-without-key": Code(
        ERROR, "index", "an item leads to a record without this key, or to no record", REBUILD_INDEX
    ),
    "index-item-points-into-damage": Code(
        WARNING,
        "index",
        "items lead to a damaged or missing part of the log",
        "A query by key finds the item, but no message.",
    ),
    "index-item-repeated": Code(
        INFO,
        "index",
        "the index has the same key of the same message twice",
        "A query finds it twice.",
    ),
    "index-item-mismatch": Code(
        ERROR, "index", "the time of an item is not that of its message", REBUILD_INDEX
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
        ERROR, "index", "a field of the header does not match the items", REBUILD_INDEX
    ),
    "index-uncounted-items": Code(
        WARNING,
        "index",
        "there are items after the counted ones, or the header ends before the last item: a writer "
        "was killed",
        "The next rmqctl command that writes mends it; a broker overwrites it.",
    ),
    # checkpoint
    "checkpoint-missing": Code(
        WARNING,
        "checkpoint",
        "there is no checkpoint",
        "After a crash a broker walks the whole log. `rmqctl flush` writes one.",
    ),
    "checkpoint-unreadable": Code(
        ERROR,
        "checkpoint",
        "the file is too short to be a checkpoint",
        "`rmqctl flush` writes a new one.",
    ),
    "checkpoint-in-future": Code(
        ERROR,
        "checkpoint",
        "the checkpoint claims more than the log has",
        "After a crash a broker would start its recovery too late and leave queues incomplete. "
        "`rmqctl checkpoint set --computed` stores the latest one that the data proves right.",
    ),
    "checkpoint-zero": Code(
        WARNING,
        "checkpoint",
        "the checkpoint holds no time, though the log has records",
        "After a crash a broker walks the whole log, and cuts it at the first damage. "
        "`rmqctl flush` writes one.",
    ),
}
