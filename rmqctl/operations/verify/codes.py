"""The catalogue of verify: one code for each kind of damage, with its severity and its next step.

*error*: something is lost, is wrong, or will be lost. *warning*: something is not as it should be,
but nothing is lost yet. *info*: worth knowing, with nothing to mend; it does not count for the exit
code.
"""

from __future__ import annotations

from typing import NamedTuple

ERROR, WARNING, INFO = "error", "warning", "info"


class Code(NamedTuple):
    """A code of the catalogue; ``meaning`` is its text on the reference page."""

    severity: str
    structure: str
    meaning: str
    advice: str


REBUILD_INDEX = "`rmqctl rebuild index` writes the index from the log."
_LOG_LOST = (
    "These bytes are lost unless a replica has them. Keep the broker down: its recovery may delete "
    "everything after this place. `rmqctl salvage` writes a new store with all other messages at "
    "their old offsets; with --from it takes the lost ones from a replica."
)

#: The advice on a log file whose first record belongs to another file.
MISPLACED = (
    "The file is whole, but its first records belong into a file of another name: files of the log "
    "were swapped or renamed. Keep the broker down, because its start may delete them. Rename each "
    "file to the offset of its first record, in 20 digits, and verify again."
)
#: The advice on a file that is missing, and lies there under a name that is not its own.
NAMED_OTHERWISE = (
    "It is not lost: its first records are in a file of another name in the log's directory. Keep "
    "the broker down, rename that file, and verify again."
)
#: The advice on a unit which contradicts its record, where the record has no other.
RECORD_DOUBTED = (
    "The record has no unit at the place that it names, and no checksum covers its topic, queue id "
    "and queue offset: they may have changed in the log. A queue made anew would lack the message. "
    "`rmqctl salvage` writes a new store, and corrects the record where the unit says what it was."
)
#: The advice on a unit of a light queue, or another further one, that its record does not name.
MULTI_DOUBTED = (
    "The units before and behind it are right, so this record was a message of the queue when it "
    "was stored: INNER_MULTI_DISPATCH or INNER_MULTI_QUEUE_OFFSET in its properties has changed in "
    "the log, where no checksum covers them. Leave the queue as it is, because one made anew lacks "
    "messages, or has them at other offsets."
)
#: The advice on a last file of the log that ends before its time.
CUT_SHORT = (
    "A broker refuses to start on it. If the broker uses other sizes, give its broker.conf with "
    "--broker-conf. Otherwise the end of the file is gone. If messages were lost with it, bring "
    "the whole file back from a replica or a backup. If not, or if nobody has it, `rmqctl repair` "
    "adds zeros up to its length."
)
#: The advice on records behind the end of the log to which units point: after a crash, and after a
#: clean stop.
TORN_BEHIND_ITS_UNIT = (
    "The message had a queue unit, so a broker that does not force each message to disk "
    "(ASYNC_FLUSH) may have acknowledged it. A start removes both, and so do rmqctl commands that "
    "write. Before that `rmqctl salvage` keeps the message where unit and body prove what its "
    "header was; with --dry-run it says whether they do."
)
WAS_WHOLE = (
    "Queue units point to it, and the last stop was clean, so it was whole once. Keep the broker "
    "down: its start cuts it off, and so does a put. `rmqctl salvage` keeps it where unit and body "
    "prove what its header was; otherwise a replica may have it."
)

LOG_CODES: dict[str, Code] = {
    # commit log
    "bad-magic": Code(
        ERROR, "commitlog", "no magic code of a record or a blank is where one must be", _LOG_LOST
    ),
    "total-size-mismatch": Code(
        ERROR, "commitlog", "the lengths in the record do not add up to its total size", _LOG_LOST
    ),
    "total-size-out-of-range": Code(
        ERROR, "commitlog", "the record does not fit into its file", _LOG_LOST
    ),
    "body-length-out-of-range": Code(
        ERROR, "commitlog", "the body would reach past the end of the file", _LOG_LOST
    ),
    "topic-length-out-of-range": Code(
        ERROR, "commitlog", "no topic can have this length", _LOG_LOST
    ),
    "properties-length-out-of-range": Code(
        ERROR, "commitlog", "the properties would reach past the end of the file", _LOG_LOST
    ),
    "physical-offset-mismatch": Code(
        ERROR, "commitlog", "the record says that it belongs to another place", _LOG_LOST
    ),
    "blank-size-mismatch": Code(
        ERROR,
        "commitlog",
        "the size of a blank record is not the rest of the file",
        "A broker treats the rest of the file as blank, whatever the size says.",
    ),
    "zeroed-records": Code(ERROR, "commitlog", "zeros, with records after them", _LOG_LOST),
    "body-crc-mismatch": Code(
        ERROR,
        "commitlog",
        "the body does not match its CRC: it is not what was stored",
        "The body of this message is damaged. A broker that recovers over this place cuts the log "
        "here and deletes what follows. Keep it down, and let `rmqctl salvage` write a new store.",
    ),
    "record-crc-mismatch": Code(
        ERROR,
        "commitlog",
        "the record does not match its own checksum (`__CRC32#`, of 5.x)",
        "A field, the topic, the properties or the checksum is damaged; the body is what was "
        "stored. A broker with forceVerifyPropCRC that recovers over this place cuts the log here "
        "and deletes what follows: copy the store before you start one.",
    ),
    "properties-malformed": Code(
        ERROR,
        "commitlog",
        "the properties cannot be parsed",
        "Tags or keys of this message are lost; a broker reads what it can of the properties.",
    ),
    "delay-not-a-number": Code(
        ERROR,
        "commitlog",
        "the level of a delayed message, its property DELAY, is not a number",
        "A broker cannot read this record. A broker that recovers over it cuts the log here and "
        "deletes what follows; one that dispatches it skips the rest of the file. Keep it down, "
        "and let `rmqctl salvage` write a new store.",
    ),
    "message-not-decodable": Code(
        ERROR,
        "commitlog",
        "no Java client can decode the message: a host has an impossible port, or the sys flag "
        "says that the body is compressed and it cannot be decompressed",
        "A consumer loses it, and every message after it in the same answer. Set the group's "
        "offset past it, or let the consumer pull one message at a time. `rmqctl pull` shows them "
        "all.",
    ),
    "queue-place-impossible": Code(
        ERROR,
        "commitlog",
        "a record has a queue id or a queue offset that no queue can have",
        "Queues that are made anew lack it: keep the ones you have. `rmqctl salvage` writes a new "
        "store, and corrects the record where its unit says what these fields were.",
    ),
    "dispatch-stops": Code(
        WARNING,
        "commitlog",
        "a broker's dispatch fails at this record again and again: the offsets of further queues "
        "are not numbers, or, in 4.9.3 with enableMultiDispatch, it has no properties",
        "Once a broker dispatches it, nothing after it reaches a queue, and 4.9.3 never finishes "
        "its start. Keep the broker down until the queues have what follows it (`rmqctl flush`, or "
        "`rmqctl rebuild queues`): the broker's dispatch then begins there.",
    ),
    "store-time-implausible": Code(
        WARNING,
        "commitlog",
        "the store time of the message is one that no broker's clock shows: before RocketMQ "
        "existed, or in 2100 or later",
        "Consumers get the message. Offsets by time near it may be wrong, and a start after a "
        "crash may read from another file. Either the broker's clock was wrong, or bytes have "
        "changed: `rmqctl diff` compares with a replica.",
    ),
    "topic-not-allowed": Code(
        ERROR,
        "commitlog",
        "the topic cannot be a directory below consumequeue/",
        "The record gets no queue, because a broker would write outside consumequeue/.",
    ),
    "commitlog-file-missing": Code(
        ERROR,
        "commitlog",
        "a file between two others is missing, or the end of the first one",
        "Bring the file back from a replica or a backup, or let `rmqctl salvage --from` do it. "
        "Otherwise every message in the missing part is lost.",
    ),
    "file-length-mismatch": Code(
        ERROR,
        "directory",
        "a file has another length than its neighbours, or than the configuration says",
        "A broker refuses to start on it. If the broker uses other sizes, give its broker.conf "
        "with --broker-conf. `rmqctl repair` adds zeros to a last file of the log that is too "
        "short, and moves an empty one away unless it is the only one; `rmqctl rebuild queues` "
        "writes a whole file for a queue.",
    ),
    "file-length-unproven": Code(
        WARNING,
        "directory",
        "the only file of the log has a length that nothing confirms: neither the configuration "
        "nor a second file does, and it is not a power of two",
        "It may have been cut. Give the broker's broker.conf with --broker-conf "
        "(mappedFileSizeCommitLog); without it, no rmqctl command writes to the store.",
    ),
    "index-length-mismatch": Code(
        ERROR,
        "directory",
        "the length of an index file does not fit its numbers of slots and items",
        "If the broker sets maxHashSlotNum or maxIndexNum, give its broker.conf with "
        "--broker-conf. A broker with the wrong numbers finds nothing in the file. "
        + REBUILD_INDEX,
    ),
    "foreign-file": Code(
        ERROR,
        "directory",
        "a directory of the store holds something that is not a file of the store",
        "A broker refuses to start with it in commitlog/ or in a queue. `rmqctl repair` moves it "
        "away and keeps it.",
    ),
    "queue-files-too-small": Code(
        ERROR,
        "directory",
        "the queue files hold one unit each (mappedFileSizeConsumeQueue=20): a broker's start "
        "never ends",
        "Set mappedFileSizeConsumeQueue in broker.conf to 40 or more, and move consumequeue/ away. "
        "`rmqctl rebuild queues --in-place` with that broker.conf then writes the queues.",
    ),
    "not-a-directory": Code(
        ERROR,
        "directory",
        "something else is where a directory of the store must be",
        "Nothing that belongs there can be read or written. `rmqctl repair` moves it away, and "
        "writes queues, their extension and the index from the log.",
    ),
    "symbolic-link": Code(
        WARNING,
        "directory",
        "there is a symbolic link inside the store",
        "rmqctl reads through it, but does not write through it.",
    ),
    "unreadable-file": Code(
        ERROR,
        "directory",
        "the system refuses to read the file",
        "Check its owner, permissions and disk.",
    ),
    "torn-tail": Code(
        WARNING,
        "commitlog",
        "a crash has cut off the last append",
        "Nothing that was acknowledged as on disk is lost; with ASYNC_FLUSH a broker acknowledges "
        "before that. The next append overwrites it, and `rmqctl repair` cuts it off.",
    ),
    "stale-record": Code(
        WARNING,
        "commitlog",
        "an older record follows the end of the log: intact, but from another place",
        "A broker that recovers after a crash takes it for a record of the log. `rmqctl repair` "
        "cuts it off.",
    ),
    "residue-after-end": Code(
        INFO,
        "commitlog",
        "old bytes follow the end of the log",
        "They are overwritten as the log grows.",
    ),
    "log-starts-late": Code(
        INFO,
        "commitlog",
        "the oldest files are gone, as when retention removes them",
        "Units and index items that point there are skipped.",
    ),
    "not-understood": Code(
        INFO,
        "store",
        "a structure of a later version, or of an option, that rmqctl does not check",
        "The rest of the store is checked.",
    ),
    "unclean-shutdown": Code(
        INFO,
        "store",
        "the file abort is there: a broker runs, or stopped without closing the store",
        "A starting broker recovers from the checkpoint and discards the last index file. If no "
        "broker runs, `rmqctl flush` recovers, keeps the index, and removes abort.",
    ),
    "repair-unfinished": Code(
        ERROR,
        "store",
        "a repair was interrupted: some of the store is old, some new",
        "Do not start a broker on it. `rmqctl repair --resume` completes the repair, `rmqctl "
        "repair --undo` takes it back.",
    ),
    "commitlog-missing": Code(
        ERROR,
        "commitlog",
        "the log has no files, but queues have units",
        "Keep the broker down: without a log it deletes all queues. If the log is elsewhere "
        "(storePathCommitLog), give the broker.conf with --broker-conf, or mount its disk. "
        "Otherwise bring it back from a replica or a backup. Do not rebuild: there is nothing to "
        "rebuild from.",
    ),
    "file-removed-meanwhile": Code(
        INFO,
        "directory",
        "a file was removed during the check, as a broker's retention does",
        "What was to be compared with it was not checked: verify again.",
    ),
}
#: The codes for damage of the log itself, against which ``salvage`` helps.
SALVAGED = frozenset(
    {code for code, known in LOG_CODES.items() if known.advice == _LOG_LOST}
    | {"body-crc-mismatch", "delay-not-a-number", "commitlog-file-missing"}
    | {"queue-place-impossible"}
)
