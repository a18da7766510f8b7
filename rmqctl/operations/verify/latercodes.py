"""What keeps a broker of 5.x from starting, beside what stops every version; by the same rules as
:mod:`rmqctl.operations.verify.codes`."""

from __future__ import annotations

from rmqctl.operations.verify.codes import ERROR, INFO, WARNING, Code

_TIMER_ANEW = (
    "`rmqctl timer rebuild` makes wheel, timer log and check point anew from the messages."
)

ROCKSDB_ANEW = (
    "`rmqctl rebuild queues --to-file-queues --in-place` makes file queues of the log, which a "
    "broker with storeType=default reads."
)

LATER_CODES: dict[str, Code] = {
    "rocksdb-not-compared": Code(
        INFO,
        "queue",
        "the queues were not compared with the log: nothing here reads them, or nobody says which "
        "of two kinds count",
        "Queues in RocksDB are compared where the package rocksdict is "
        "(`pip install rocksdict`), without --master. Where a store has queues in files, "
        "too, storeType or rocksdbCQDoubleWriteEnable in the broker.conf says which its broker "
        "reads.",
    ),
    "rocksdb-unreadable": Code(
        ERROR,
        "queue",
        "the database of the queues cannot be read, or a part of it",
        "Its broker will not start on it, or serve less than all. Take it from a backup, or let "
        "the log tell: `rmqctl rebuild queues --to-file-queues --in-place --from-log-alone`, with "
        "--min-offset of queues whose messages have all expired.",
    ),
    "unit-store-time-mismatch": Code(
        WARNING,
        "queue",
        "a unit in RocksDB has another store time than its record",
        "Offsets by time come out wrong. " + ROCKSDB_ANEW,
    ),
    "queue-end-contradicted": Code(
        ERROR,
        "queue",
        "the database notes a last unit of a queue that is not there, or is another one",
        "Its broker goes on behind that one: consumers miss messages, or wait for some. "
        + ROCKSDB_ANEW,
    ),
    "queue-begin-contradicted": Code(
        ERROR,
        "queue",
        "a broker begins the queue elsewhere than at its first unit, as the database notes it",
        "Consumers that begin there miss messages, or find nothing and never get on. "
        + ROCKSDB_ANEW,
    ),
    "timer-wheel-length": Code(
        ERROR,
        "directory",
        "the timer wheel of 5.x has another length than every wheel",
        "A broker of 5.x does not start on it. " + _TIMER_ANEW,
    ),
    "timer-metrics-unreadable": Code(
        ERROR,
        "directory",
        "neither `config/timermetrics` nor its .bak is JSON",
        "A broker of 5.x does not start on them. Move both away: they are counts, which it makes "
        "anew at five in the morning.",
    ),
    "queue-type-contradicted": Code(
        ERROR,
        "directory",
        "the queues of a topic are of another kind than `queue.type` in topics.json says",
        "A broker of 5.x does not start on it. Bring topics.json back as it was (its .bak, a "
        "replica): a topic with queues in batchconsumequeue/ has the attribute queue.type=BatchCQ, "
        "one with queues in consumequeue/ has not.",
    ),
    "timer-wheel-missing": Code(
        ERROR,
        "timer",
        "there is a timer log and no timer wheel",
        "A broker makes an empty wheel, and finds of the messages that wait only those of the "
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
        "behind the last unit of the timer log stand bytes that are none",
        "A broker cuts the timer log there. If units have been behind it, its messages wait for "
        "ever. " + _TIMER_ANEW,
    ),
    "timer-log-lost": Code(
        ERROR,
        "timer",
        "the timer log ends before the place up to which it was on disk",
        "A broker never delivers the messages whose units are lost. " + _TIMER_ANEW,
    ),
    "timer-checkpoint-missing": Code(
        WARNING,
        "timer",
        "`config/timercheck` is not there, or zeros, and the timer log has units",
        "A broker puts every message of rmq_sys_wheel_timer that the log has into the wheel again: "
        "what was delivered is delivered once more, and what waits comes twice. " + _TIMER_ANEW,
    ),
    "timer-clock-implausible": Code(
        ERROR,
        "timer",
        "the time up to which the timer has delivered is negative, or is still to come",
        "Until such a time a broker delivers nothing, and never what was due before it; from a "
        "negative one on it delivers once more what the wheel has of the last seven days. "
        + _TIMER_ANEW,
    ),
    "timer-checkpoint-behind": Code(
        WARNING,
        "timer",
        "`config/timercheck` is of a moment long before the timer log's end",
        "A broker puts messages into the wheel once more that are in it, and delivers them twice, "
        "also those that were recalled. " + _TIMER_ANEW,
    ),
    "timer-unit-damaged": Code(
        WARNING,
        "timer",
        "a unit of the timer log has a magic code that no unit has",
        "A broker takes it as it is, until a start checks this part of the log; then it ends "
        "there. " + _TIMER_ANEW,
    ),
    "timer-queue-lost": Code(
        ERROR,
        "timer",
        "the timer has read the queue of rmq_sys_wheel_timer further than it goes",
        "The queue was cut: the timer may pass over messages that come into it now. " + _TIMER_ANEW,
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
        "a slot of the timer wheel holds a time that belongs into another one",
        "A broker does not find the messages of that time. " + _TIMER_ANEW,
    ),
    "timer-chain-broken": Code(
        ERROR,
        "timer",
        "the units of a slot do not lead back to its first one",
        "A broker delivers of that time only what comes before the break, or nothing. "
        + _TIMER_ANEW,
    ),
    "timer-unit-unreachable": Code(
        ERROR,
        "timer",
        "no slot of the timer wheel leads to units of the timer log whose time is still to come",
        "A broker never delivers their messages. " + _TIMER_ANEW,
    ),
    "timer-message-expired": Code(
        ERROR,
        "timer",
        "retention has deleted messages from the log that wait for their time",
        "They are lost unless a replica has them. Keep the log for longer than the longest delay, "
        "or timerRollWindowSlot (two days) if that is less: fileReservedTime.",
    ),
    "timer-unit-past-log-end": Code(
        ERROR,
        "timer",
        "units of the timer log point behind the end of the commit log",
        "The log was cut: the messages are lost unless a replica has them, and in their places "
        "others will stand. " + _TIMER_ANEW,
    ),
    "timer-unit-mismatch": Code(
        ERROR,
        "timer",
        "where a unit of the timer log says that its message is there is none of that size",
        "A broker delivers nothing, or something else, at that time. " + _TIMER_ANEW,
    ),
}
