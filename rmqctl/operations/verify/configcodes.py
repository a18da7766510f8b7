"""The codes of ``config check``, by the same rules as :mod:`rmqctl.operations.verify.codes`."""

from __future__ import annotations

from rmqctl.operations.verify.codes import ERROR, INFO, WARNING, Code

#: The advice of ``config-unreadable`` where there is no copy (``ConfigManager#load``).
NO_COPY = (
    "There is no .bak copy, so a broker starts as if the file were empty. Put the file back from a "
    "backup of the store, or mend the place while the broker is down."
)
#: The same where the copy is broken, or only the copy exists (``ConfigManager#loadBak``).
NO_SOUND_COPY = (
    "The file and its .bak copy are both of no use, and a broker does not start. Put the file back "
    "from a backup of the store, or mend the place, while the broker is down."
)
#: The advice of ``consumer-offset-past-queue`` where the log has no file, so that no offset can be
#: set.
NO_LOG = (
    "The log has no file, so queues seem shorter than they are. If it lies elsewhere "
    "(storePathCommitLog) give the broker.conf with --broker-conf, or mount its disk; set no "
    "offset before."
)

CONFIG_CODES: dict[str, Code] = {
    "config-unreadable": Code(
        ERROR,
        "config",
        "a file of config/ is not what a broker writes there",
        "A broker takes the .bak copy, which may be older. Mend the place, or let `rmqctl repair` "
        "put the .bak there.",
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
        "A broker takes the .bak copy, which may be older. `rmqctl repair` puts it there.",
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
        "a .tmp file: a broker, or rmqctl, was killed while it wrote",
        "It may hold newer values than the file, but nobody ever reads it; the next write of the "
        "file takes it away.",
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
