"""The finding codes of stores of 5.x, by the rules of :mod:`rmqctl.operations.verify.codes`."""

from __future__ import annotations

from rmqctl.operations.verify.codes import ERROR, INFO, WARNING, Code

_TIMER_ANEW = (
    "`rmqctl timer rebuild` makes wheel, timer log and check point anew from the messages."
)

ROCKSDB_ANEW = (
    "`rmqctl rebuild queues --to-file-queues --in-place` makes file queues from the log; a broker "
    "with storeType=default reads them."
)

LATER_CODES: dict[str, Code] = {
    "rocksdb-not-compared": Code(
        INFO,
        "queue",
        "the queues were not compared with the log: nothing here can read them, or nothing says "
        "which of two kinds of queues count",
        "Queues in RocksDB are compared where the package rocksdict is installed (`pip install "
        "rocksdict`), without --master. If a store has queues in files, too, storeType or "
        "rocksdbCQDoubleWriteEnable in the broker.conf says which ones its broker reads.",
    ),
    "rocksdb-unreadable": Code(
        ERROR,
        "queue",
        "the database of the queues, or a part of it, cannot be read",
        "Its broker does not start on it, or serves only a part. Bring it back from a backup, or "
        "make the queues from the log: `rmqctl rebuild queues --to-file-queues --in-place "
        "--from-log-alone`, with --min-offset for queues whose messages have all expired.",
    ),
    "unit-store-time-mismatch": Code(
        WARNING,
        "queue",
        "a unit in RocksDB has another store time than its record",
        "Searches for an offset by time give wrong results. " + ROCKSDB_ANEW,
    ),
    "queue-end-contradicted": Code(
        ERROR,
        "queue",
        "the last unit of a queue that the database notes is missing, or another one",
        "Its broker continues after that one: consumers miss messages, or wait for some. "
        + ROCKSDB_ANEW,
    ),
    "queue-begin-contradicted": Code(
        ERROR,
        "queue",
        "the begin of a queue that the database notes is not its first unit",
        "Consumers that begin there miss messages, or find nothing and never continue. "
        + ROCKSDB_ANEW,
    ),
    "queue-file-without-unit": Code(
        WARNING,
        "queue",
        "the last file of a queue has no unit, as a kill between the making of the file and its "
        "first unit leaves it",
        "A broker of 5.x may not start on it (`newPosition < 0`): `rmqctl simulate-start --as "
        "5.3.3` says whether. `rmqctl rebuild` makes the queue anew, without that file.",
    ),
    "timer-wheel-length": Code(
        ERROR,
        "directory",
        "the timer wheel of 5.x has a length that no wheel has",
        "A broker of 5.x does not start on it. " + _TIMER_ANEW,
    ),
    "timer-metrics-unreadable": Code(
        ERROR,
        "directory",
        "neither `config/timermetrics` nor its .bak is JSON",
        "A broker of 5.x does not start on them. Move both away: they hold counts, which the "
        "broker makes anew at five in the morning.",
    ),
    "queue-type-contradicted": Code(
        ERROR,
        "directory",
        "the queues of a topic are of another kind than `queue.type` in topics.json says",
        "A broker of 5.x does not start on it. Bring topics.json back as it was (its .bak, a "
        "replica): a topic with queues in batchconsumequeue/ has the attribute queue.type=BatchCQ, "
        "one with queues in consumequeue/ does not.",
    ),
    "timer-wheel-missing": Code(
        ERROR,
        "timer",
        "there is a timer log, but no timer wheel",
        "A broker makes an empty wheel. Of the messages that wait, it finds only those of the "
        "timer log's last two files. " + _TIMER_ANEW,
    ),
    "timer-log-length": Code(
        ERROR,
        "timer",
        "a file of the timer log has another length than the others",
        "A broker of 5.x does not start on it. " + _TIMER_ANEW,
    ),
    "timer-log-file-missing": Code(
        ERROR,
        "timer",
        "a file of the timer log is missing between two others",
        "A broker never delivers the messages whose units were in it. " + _TIMER_ANEW,
    ),
    "timer-log-cut-short": Code(
        WARNING,
        "timer",
        "bytes that are not a unit follow the last unit of the timer log",
        "A broker cuts the timer log there. If there were units after them, the messages of these "
        "units wait for ever. " + _TIMER_ANEW,
    ),
    "timer-log-lost": Code(
        ERROR,
        "timer",
        "the timer log ends before the place up to which it had been forced to disk",
        "A broker never delivers the messages whose units are lost. " + _TIMER_ANEW,
    ),
    "timer-checkpoint-missing": Code(
        WARNING,
        "timer",
        "`config/timercheck` is missing or zeros, though the timer log has units",
        "A broker puts every message of rmq_sys_wheel_timer that the log has into the wheel again. "
        "It delivers again what it had delivered, and delivers twice what waits. " + _TIMER_ANEW,
    ),
    "timer-clock-implausible": Code(
        ERROR,
        "timer",
        "the time up to which the timer has delivered is negative, or in the future",
        "Until a time in the future a broker delivers nothing, and it never delivers what was due "
        "before that. From a negative time on it delivers again what the wheel has of the last "
        "seven days. " + _TIMER_ANEW,
    ),
    "timer-checkpoint-behind": Code(
        WARNING,
        "timer",
        "`config/timercheck` is much older than the end of the timer log",
        "A broker puts messages into the wheel that are already in it, and delivers them twice, "
        "also those that were recalled. " + _TIMER_ANEW,
    ),
    "timer-unit-damaged": Code(
        WARNING,
        "timer",
        "a unit of the timer log has a magic code that no unit has",
        "A broker uses it as it is, until a start checks this part of the log; the log then ends "
        "there. " + _TIMER_ANEW,
    ),
    "timer-queue-lost": Code(
        ERROR,
        "timer",
        "the timer has read more of the queue of rmq_sys_wheel_timer than there is",
        "The queue was cut: the timer may skip messages that are stored in it from now on. "
        + _TIMER_ANEW,
    ),
    "timer-behind": Code(
        INFO,
        "timer",
        "messages are not in the timer wheel yet",
        "The next start puts them in. `rmqctl timer ls` lists them.",
    ),
    "timer-slot-misplaced": Code(
        ERROR,
        "timer",
        "a slot of the timer wheel holds a time that belongs into another slot",
        "A broker does not find the messages of that time. " + _TIMER_ANEW,
    ),
    "timer-chain-broken": Code(
        ERROR,
        "timer",
        "the units of a slot of the timer wheel do not lead back to the slot's first unit",
        "Of the messages of that time, a broker delivers only those before the break, or none. "
        + _TIMER_ANEW,
    ),
    "timer-unit-unreachable": Code(
        ERROR,
        "timer",
        "no slot of the timer wheel leads to units of the timer log whose time is in the future",
        "A broker never delivers their messages. " + _TIMER_ANEW,
    ),
    "timer-message-expired": Code(
        ERROR,
        "timer",
        "retention has deleted messages from the log that still wait for their time",
        "They are lost unless a replica has them. Set fileReservedTime to more than the longest "
        "delay, or more than timerRollWindowSlot (two days) if that is less.",
    ),
    "timer-unit-past-log-end": Code(
        ERROR,
        "timer",
        "units of the timer log point past the end of the commit log",
        "The log was cut: the messages are lost unless a replica has them, and other messages will "
        "take their places. " + _TIMER_ANEW,
    ),
    "timer-unit-mismatch": Code(
        ERROR,
        "timer",
        "no message of the right size is at the place to which a unit of the timer log points",
        "A broker delivers nothing, or something else, at that time. " + _TIMER_ANEW,
    ),
}
