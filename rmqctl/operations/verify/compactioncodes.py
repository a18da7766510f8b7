"""The codes of verify for the kept queues of compacted topics (5.x), by the same rules as
:mod:`rmqctl.operations.verify.codes`.

They differ from the codes of the commit log and its queues, because other commands mend these.
"""

from __future__ import annotations

from rmqctl.operations.verify.codes import ERROR, WARNING, Code

_LOST = (
    "Consumers do not get these messages. Bring both directories of this queue, in compactionLog/ "
    "and compactionCq/, back from a replica, or move both away: the queue then has what is stored "
    "from now on. The commit log has the messages until it expires: `rmqctl walk commitlog`."
)
_AWAY = "Move it away while no broker runs."

COMPACTION_CODES: dict[str, Code] = {
    "compaction-file-unpaired": Code(
        ERROR,
        "directory",
        "a file of a compacted topic without its partner in `compaction/`",
        "A broker of 5.x does not start on it: each file of compactionLog/ and the one of that "
        "name in compactionCq/ belong together. Bring the partner back from a replica, or move "
        "both directories of this queue away: it then has what is compacted from now on.",
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
        "something that is no file of a compacted topic lies beside its files",
        "A broker of 5.x does not start with it. One whose name ends with .delete is left of a "
        "compaction that a kill has cut off. " + _AWAY,
    ),
    "compaction-left-over": Code(
        WARNING,
        "compaction",
        "files of a compaction, or of a copy from the master, that a kill has cut off",
        "The next compaction writes over them, and what is behind its end stays and is taken for "
        "messages later. " + _AWAY,
    ),
    "compaction-record-damaged": Code(
        ERROR, "compaction", "no sound record stands where one of a compacted topic must", _LOST
    ),
    "compaction-body-crc-mismatch": Code(
        ERROR,
        "compaction",
        "the body in the log of a compacted topic is not what was stored",
        _LOST,
    ),
    "compaction-record-differs": Code(
        ERROR,
        "compaction",
        "a record of a compacted topic is not the commit log's of which it is a copy",
        "One of the two is damaged, and consumers get this one. `rmqctl walk commitlog --topic T` "
        "shows the other.",
    ),
    "compaction-record-without-key": Code(
        ERROR,
        "compaction",
        "a record of a compacted topic has no KEYS: a broker copies none without",
        "Its properties are damaged, and the next compaction removes it. " + _LOST,
    ),
    "compaction-unit-mismatch": Code(
        ERROR,
        "compaction",
        "a unit of a compacted topic does not say what its record says",
        "A start reads the last files up to the first unit that leads nowhere, and a pull up to "
        "there. " + _LOST,
    ),
    "compaction-record-without-unit": Code(
        ERROR,
        "compaction",
        "records in the log of a compacted topic have no unit",
        "No consumer gets them. In the last file, where a kill leaves such, it is no error: a "
        "starting broker takes them away.",
    ),
    "compaction-offsets-disordered": Code(
        ERROR,
        "compaction",
        "queue offsets of a compacted topic do not rise from record to record",
        "A kill while files were exchanged leaves old and new ones beside each other. " + _LOST,
    ),
    "compaction-not-compacted": Code(
        WARNING,
        "compaction",
        "a message that compaction removes is there: it is empty, or a later one has its key",
        "Consumers get it. So it is when compacted files were mixed with older ones; the next "
        "compaction removes it where a newer message has its key.",
    ),
    "compaction-message-missing": Code(
        WARNING,
        "compaction",
        "the commit log has the latest message of a key, and what is kept of its compacted topic "
        "has not",
        "Consumers do not get it. So it is of messages that were stored with "
        "enableCompaction=false, or in the moment of a kill: a broker does not bring them back. "
        "Else files of the queue are gone: bring both directories back from a replica.",
    ),
    "compaction-position-unreadable": Code(
        WARNING,
        "compaction",
        "`compaction/position-checkpoint` is broken, and its .bak does not help",
        "A broker starts without it and compacts every queue from its begin. " + _AWAY,
    ),
    "compaction-position-ahead": Code(
        WARNING,
        "compaction",
        "`compaction/position-checkpoint` says more than the queue of a compacted topic has",
        "Messages up to there are not compacted. Where it is broken, move it away while no broker "
        "runs: every queue is compacted from its begin then.",
    ),
}
