"""The codes of verify for the kept queues of compacted topics (5.x), by the same rules as
:mod:`rmqctl.operations.verify.codes`.

They differ from the codes of the commit log and its queues, because other commands mend these.
"""

from __future__ import annotations

from rmqctl.operations.verify.codes import ERROR, WARNING, Code

_LOST = (
    "Consumers do not get these messages. Bring both directories of this queue (in compactionLog/ "
    "and compactionCq/) back from a replica, or move both away: the queue then has what is stored "
    "from now on. The commit log has the messages until it expires: `rmqctl walk commitlog`."
)
_AWAY = "Move it away while no broker runs."

COMPACTION_CODES: dict[str, Code] = {
    "compaction-file-unpaired": Code(
        ERROR,
        "directory",
        "a file of a compacted topic in `compaction/` has no partner",
        "A broker of 5.x does not start on it: each file of compactionLog/ belongs to the file of "
        "the same name in compactionCq/. Bring the partner back from a replica, or move both "
        "directories of this queue away: it then has what is compacted from now on.",
    ),
    "compaction-file-length": Code(
        ERROR,
        "compaction",
        "a file of a compacted topic has another length than the others",
        "A broker of 5.x does not start on it. " + _LOST,
    ),
    "compaction-foreign-file": Code(
        ERROR,
        "compaction",
        "something that is not a file of a compacted topic is beside its files",
        "A broker of 5.x does not start with it. A file whose name ends with .delete is left over "
        "from a compaction that a kill has cut off. " + _AWAY,
    ),
    "compaction-left-over": Code(
        WARNING,
        "compaction",
        "there are files left over from a compaction, or from a copy from the master, that a kill "
        "has cut off",
        "The next compaction writes over them; what is after its end stays, and is later taken for "
        "messages. " + _AWAY,
    ),
    "compaction-record-damaged": Code(
        ERROR, "compaction", "there is no sound record where a compacted topic must have one", _LOST
    ),
    "compaction-body-crc-mismatch": Code(
        ERROR,
        "compaction",
        "a body in the log of a compacted topic does not match its CRC: it is not what was stored",
        _LOST,
    ),
    "compaction-record-differs": Code(
        ERROR,
        "compaction",
        "a record of a compacted topic differs from the commit log's record, of which it is a copy",
        "One of the two is damaged, and consumers get this one. `rmqctl walk commitlog --topic T` "
        "shows the other.",
    ),
    "compaction-record-without-key": Code(
        ERROR,
        "compaction",
        "a record of a compacted topic has no KEYS: a broker copies no record without them",
        "Its properties are damaged, and the next compaction removes it. " + _LOST,
    ),
    "compaction-unit-mismatch": Code(
        ERROR,
        "compaction",
        "a unit of a compacted topic does not match its record",
        "A start reads the last files only up to the first unit that leads nowhere, and so does a "
        "pull. " + _LOST,
    ),
    "compaction-record-without-unit": Code(
        ERROR,
        "compaction",
        "records in the log of a compacted topic have no unit",
        "No consumer gets them. In the last file, where a kill leaves such records, this is no "
        "error: a starting broker removes them.",
    ),
    "compaction-offsets-disordered": Code(
        ERROR,
        "compaction",
        "queue offsets of a compacted topic do not rise from record to record",
        "A kill while files were exchanged leaves old and new ones side by side. " + _LOST,
    ),
    "compaction-not-compacted": Code(
        WARNING,
        "compaction",
        "a message that compaction removes is still there: it is empty, or a later one has its key",
        "Consumers get it. This happens when compacted files were mixed with older ones. The next "
        "compaction removes it if a newer message has its key.",
    ),
    "compaction-message-missing": Code(
        WARNING,
        "compaction",
        "the commit log has the latest message of a key, but the files of its compacted topic do "
        "not",
        "Consumers do not get it. This happens to messages that were stored with "
        "enableCompaction=false, or at the moment of a kill: a broker does not bring them back. "
        "Otherwise files of the queue are gone: bring both directories back from a replica.",
    ),
    "compaction-position-unreadable": Code(
        WARNING,
        "compaction",
        "`compaction/position-checkpoint` is broken, and there is no sound .bak copy",
        "A broker starts without it and compacts every queue from its start. " + _AWAY,
    ),
    "compaction-position-ahead": Code(
        WARNING,
        "compaction",
        "`compaction/position-checkpoint` claims more than the queue of a compacted topic has",
        "Messages up to there are not compacted. If the file is broken, move it away while no "
        "broker runs: every queue is then compacted from its start.",
    ),
}
