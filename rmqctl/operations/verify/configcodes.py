"""The codes of ``config check``, by the same rules as :mod:`rmqctl.operations.verify.codes`."""

from __future__ import annotations

from rmqctl.operations.verify.codes import ERROR, INFO, WARNING, Code

#: The advice of ``config-unreadable`` where there is no copy (``ConfigManager#load``).
NO_COPY = (
    "There is no .bak copy, or it is empty, so a broker starts as if the file were empty, too. Put "
    "the file back from a backup of the store, or correct the place while the broker is down."
)
#: The same where the copy is broken, or only the copy exists (``ConfigManager#loadBak``).
NO_SOUND_COPY = (
    "Neither the file nor its .bak copy can be used, and a broker does not start. Put the file "
    "back from a backup of the store, or correct the place, while the broker is down."
)
#: The advice of ``consumer-offset-past-queue`` where the log has no file, so that no offset can be
#: set.
NO_LOG = (
    "The log has no files, so queues seem shorter than they are. If the log is elsewhere "
    "(storePathCommitLog), give the broker.conf with --broker-conf, or mount its disk. Set no "
    "offset before that."
)

CONFIG_CODES: dict[str, Code] = {
    "config-unreadable": Code(
        ERROR,
        "config",
        "a file of config/ is not what a broker writes there",
        "A broker takes the .bak copy, which may be older. Correct the place, or let `rmqctl "
        "repair` put the .bak there.",
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
        "a file of config/ is absent or empty, but its .bak copy is not",
        "A broker takes the .bak copy, which may be older. `rmqctl repair` puts it there.",
    ),
    "config-absent": Code(
        INFO,
        "config",
        "a file of config/ and its .bak copy are absent or empty, and the queues have messages",
        "A broker starts without the topics, groups or offsets that belong there.",
    ),
    "config-offsets-lost": Code(
        WARNING,
        "config",
        "consumerOffset.json (with enableLmq lmqConsumerOffset.json), or with delayed messages "
        "delayOffset.json, and its .bak copy are absent or empty, and topics.json is there",
        "A broker writes it every few seconds, so it is lost. Started so, groups begin anew, where "
        "messages are missed or consumed again, or every delayed message that is left is delivered "
        "again. Keep the broker down, and put the file back from a backup of the store or a slave.",
    ),
    "config-temporary-left": Code(
        INFO,
        "config",
        "there is a .tmp file: a broker, or rmqctl, was killed while it wrote",
        "It may hold newer values than the file, but nothing ever reads it; the next write of the "
        "file removes it.",
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
        "one object has the same key twice",
        "A broker takes the last one. Remove the other.",
    ),
    "config-entry-malformed": Code(
        ERROR,
        "config",
        "an entry is not of the kind that a broker writes there",
        "A broker fails on it or skips it. Correct the file while the broker is down.",
    ),
    "consumer-offset-past-queue": Code(
        ERROR,
        "config",
        "a group has consumed more than the queue has: the queue has lost its end",
        "A broker moves the group to the queue's end, or, if the queue starts at 0, to its start: "
        "messages are skipped or read again. `rmqctl repair` sets the offset before consumers "
        "start, once the queue has all that the log has of it.",
    ),
    "consumer-offset-before-queue": Code(
        WARNING,
        "config",
        "messages were deleted before a group has read them",
        "They are lost for the group: a broker moves it to the queue's first message. `rmqctl "
        "repair` does so once the queue has all that the log has of it.",
    ),
    "consumer-offset-moved-back": Code(
        INFO,
        "config",
        "an offset is smaller than in the .bak copy",
        "This is normal after an operator has reset it. Otherwise the file was put back from "
        "somewhere.",
    ),
    "consumer-offset-without-queue": Code(
        WARNING,
        "config",
        "a group has read from a queue that has no files",
        "The queue was deleted or lost: `rmqctl verify` says whether the log has its messages.",
    ),
    "group-without-config": Code(
        INFO,
        "config",
        "a group has offsets, but is not in subscriptionGroup.json",
        "With autoCreateSubscriptionGroup (the default) a broker adds the group when it connects "
        "again.",
    ),
    "queue-without-topic-config": Code(
        WARNING,
        "config",
        "a topic has queues, but is not in topics.json",
        "A broker answers TOPIC_NOT_EXIST to its consumers. Create the topic again.",
    ),
    "topic-without-queue": Code(
        INFO,
        "config",
        "a topic of topics.json has no queue",
        "This is normal as long as nothing was sent to it.",
    ),
    "queue-not-readable": Code(
        WARNING,
        "config",
        "a queue has messages, but its id is not below readQueueNums",
        "Consumers are not told of this queue. Raise readQueueNums until they have read it.",
    ),
    "queue-not-writable": Code(
        INFO,
        "config",
        "the id of a queue is not below writeQueueNums",
        "Producers are not told of this queue. This is how a topic is made smaller.",
    ),
    "delay-offset-past-queue": Code(
        WARNING,
        "config",
        "more messages of a delay level were delivered than its queue has: the queue has lost its "
        "end",
        "A broker continues at the queue's end. `rmqctl verify` says whether the log has more.",
    ),
    "delay-offset-before-queue": Code(
        WARNING,
        "config",
        "messages of a delay level were deleted before their delivery",
        "They are lost: a broker continues with the first message of the queue.",
    ),
    "delay-offset-missing": Code(
        INFO,
        "config",
        "a delay level has messages, but its progress is not known",
        "A broker delivers the queue from its start, including what was delivered before.",
    ),
    "delay-level-unknown": Code(
        WARNING,
        "config",
        "messages have a delay level that messageDelayLevel does not have",
        "If the broker sets messageDelayLevel, give its broker.conf with --broker-conf. Otherwise "
        "these messages are never delivered.",
    ),
}
