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
    "everything behind this place. `rmqctl salvage` writes a new store with all other messages "
    "where they are, and takes these from a replica with --from."
)

#: The advice on a log file whose first record belongs to another file.
MISPLACED = (
    "The file is whole, and another one's, as its first records say: files of the log were swapped "
    "or renamed. Keep the broker down, whose start may delete them; give each the name of its "
    "first record's place, in 20 digits, and verify again."
)
#: The advice on a file that is missing, and lies there under a name that is not its own.
NAMED_OTHERWISE = (
    "It is not lost: a file of the log's directory holds it under another name, as its first "
    "records say. Keep the broker down, give it its own name, and verify again."
)
#: The advice on records behind the end of the log to which units point: after a crash, and after a
#: clean stop.
TORN_BEHIND_ITS_UNIT = (
    "Its message had its unit: a broker that does not force each to disk (ASYNC_FLUSH) may have "
    "acknowledged it. A start takes both away; `rmqctl salvage` keeps it where unit and body prove "
    "what its header was."
)
WAS_WHOLE = (
    "Queue units point to it, and the last stop was clean: it was whole once. Keep the broker "
    "down: its start, as a put, cuts it off. `rmqctl salvage` keeps it where unit and body prove "
    "what its header was; else a replica may have it."
)

LOG_CODES: dict[str, Code] = {
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
        "here and deletes what follows: keep it down, and let `rmqctl salvage` write a new store.",
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
    "delay-not-a-number": Code(
        ERROR,
        "commitlog",
        "a delayed message's level, its property DELAY, is no number",
        "A broker cannot read this record. One that recovers over it cuts the log here and deletes "
        "what follows; one that dispatches it passes over the rest of the file: keep it down, and "
        "let `rmqctl salvage` write a new store.",
    ),
    "message-not-decodable": Code(
        ERROR,
        "commitlog",
        "no Java client can decode the message: a host's port is none, or the sys flag says that "
        "the body is compressed, and it does not decompress",
        "A consumer loses it, and every message behind it in the same answer: put the group's "
        "offset behind it, or let it pull one message at a time. `rmqctl pull` shows them all.",
    ),
    "queue-place-impossible": Code(
        ERROR,
        "commitlog",
        "a record says a queue id or a queue offset that no queue has",
        "Queues that are made anew lack it: keep those that there are. `rmqctl salvage` writes a "
        "new store, and puts the record right where its unit says what stood there.",
    ),
    "dispatch-stops": Code(
        WARNING,
        "commitlog",
        "a broker's dispatch fails at this record again and again: where the offsets of further "
        "queues are no numbers, and with enableMultiDispatch in 4.9.3 where it has no properties",
        "Nothing behind it reaches a queue once a broker dispatches it, and 4.9.3 does not come to "
        "the end of its start. Keep the broker down until the queues have what is behind it "
        "(`rmqctl flush`, or `rmqctl rebuild queues`): its dispatch begins there.",
    ),
    "store-time-implausible": Code(
        WARNING,
        "commitlog",
        "no clock of a broker shows the time at which the message is said to be stored: from "
        "before there was RocketMQ, or from 2100 or later",
        "Consumers get the message; offsets by time near it may be wrong, and a start after a "
        "crash may read from another file. Either the broker's clock was, or bytes have changed: "
        "`rmqctl diff` compares with a replica.",
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
        "between two files one is missing, or the end of the first",
        "Bring the file back from a replica or a backup, or let `rmqctl salvage --from` do it; "
        "every message in what is missing is lost else.",
    ),
    "file-length-mismatch": Code(
        ERROR,
        "directory",
        "a file's length is not that of its neighbours, or not of the configured geometry",
        "A broker refuses to start on it. If it uses other sizes give its broker.conf with "
        "--broker-conf. An empty last file of the log, but for an only one, `rmqctl repair` moves "
        "away; of a queue's, "
        "`rmqctl rebuild queues` writes a whole one.",
    ),
    "file-length-unproven": Code(
        WARNING,
        "directory",
        "the only file of the log has a length that nothing confirms: neither the configuration "
        "nor a second file, and it is no power of two",
        "It may have been cut. Give the broker's broker.conf with --broker-conf "
        "(mappedFileSizeCommitLog); without it no rmqctl command writes to the store.",
    ),
    "index-length-mismatch": Code(
        ERROR,
        "directory",
        "an index file's length is not that of the geometry (slots and items)",
        "With other maxHashSlotNum or maxIndexNum give the broker.conf with --broker-conf. A "
        "broker with the wrong ones finds nothing in it. " + REBUILD_INDEX,
    ),
    "foreign-file": Code(
        ERROR,
        "directory",
        "something that is no file of the store lies in one of its directories",
        "A broker refuses to start with it in commitlog/ or in a queue. `rmqctl repair` moves it "
        "away, and keeps it.",
    ),
    "queue-files-too-small": Code(
        ERROR,
        "directory",
        "queue files of one unit (mappedFileSizeConsumeQueue=20): a broker's start never ends",
        "Give the broker a mappedFileSizeConsumeQueue of 40 or more, and move consumequeue/ away: "
        "`rmqctl rebuild queues --in-place` with that broker.conf writes the queues.",
    ),
    "not-a-directory": Code(
        ERROR,
        "directory",
        "something else stands where a directory of the store must be",
        "Nothing that belongs there can be read or written. `rmqctl repair` moves it away, and "
        "writes queues, their extension and the index from the log.",
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
        "Nothing that was acknowledged is lost; the next append overwrites it, and `rmqctl repair` "
        "cuts it off.",
    ),
    "stale-record": Code(
        WARNING,
        "commitlog",
        "after the end stands an older record, intact but of another place",
        "A broker that recovers after a crash takes it for a record of the log: `rmqctl repair` "
        "cuts it off.",
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
        "A starting broker recovers from the checkpoint and throws the last index file away. Where "
        "none runs, `rmqctl flush` recovers, keeps the index, and ends it.",
    ),
    "repair-unfinished": Code(
        ERROR,
        "store",
        "a repair was cut off: some of the store is old, some new",
        "Start no broker on it. `rmqctl repair --resume` ends the repair, `rmqctl repair --undo` "
        "takes it back.",
    ),
    "commitlog-missing": Code(
        ERROR,
        "commitlog",
        "the log has no file, and queues have units",
        "Keep the broker down: without a log it deletes all queues. If the log lies elsewhere "
        "(storePathCommitLog) give the broker.conf with --broker-conf, or mount its disk; else "
        "bring it back from a replica or a backup. Do not rebuild: there is nothing to rebuild "
        "from.",
    ),
    "file-removed-meanwhile": Code(
        INFO,
        "directory",
        "a file was removed while the store was checked, as a broker's retention does",
        "What was to be compared with it was not checked: verify again.",
    ),
}
#: The codes for damage of the log itself, against which ``salvage`` helps.
SALVAGED = frozenset(
    {code for code, known in LOG_CODES.items() if known.advice == _LOG_LOST}
    | {"body-crc-mismatch", "delay-not-a-number", "commitlog-file-missing"}
    | {"queue-place-impossible"}
)
