"""What keeps a broker of 5.x from starting, beside what stops every version; by the same rules as
:mod:`rmqctl.operations.verify.codes`."""

from __future__ import annotations

from rmqctl.operations.verify.codes import ERROR, Code

LATER_CODES: dict[str, Code] = {
    "timer-wheel-length": Code(
        ERROR,
        "directory",
        "the timer wheel of 5.x has another length than every wheel",
        "A broker of 5.x does not start on it. Bring `timerwheel` back from a replica or a backup. "
        "Without one move it, `timerlog/` and `config/timercheck` away: the broker makes them anew "
        "from the queue of rmq_sys_wheel_timer, and delivers at once what was due by then, also "
        "what was delivered before.",
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
    "compaction-file-unpaired": Code(
        ERROR,
        "directory",
        "a file of a compacted topic without its partner in `compaction/`",
        "A broker of 5.x does not start on it: each file of compactionLog/ and the one of that "
        "name in compactionCq/ belong together. Bring the partner back from a replica, or move "
        "both directories of this queue away: it then has what is compacted from now on.",
    ),
}
