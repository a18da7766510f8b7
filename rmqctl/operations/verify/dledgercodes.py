"""The additional codes of verify for a store that is one of several copies, of a DLedger group or
in controller mode, by the same rules as :mod:`rmqctl.operations.verify.codes`."""

from __future__ import annotations

from rmqctl.operations.verify.codes import ERROR, INFO, WARNING, Code

_OF_A_MEMBER = (
    "Keep this member down and look at the others: a group needs more than half of them. One that "
    "starts with an empty store gets all of the log again from the leader."
)

_OF_A_COPY = (
    "Let another copy be the master. One that starts with an empty store gets all of the log again."
)

DLEDGER_CODES: dict[str, Code] = {
    "epoch-file-unreadable": Code(
        ERROR,
        "directory",
        "`epochFileCheckpoint` of a broker in controller mode contradicts itself, or cannot be "
        "read",
        "If a line is not a number, the broker does not start. Otherwise the .bak counts, or the "
        "broker forgets which master has written which part of its log. Bring the file back from "
        "the .bak, or from a backup.",
    ),
    "epochs-out-of-order": Code(
        ERROR,
        "directory",
        "the epochs of `epochFileCheckpoint`, or their offsets, do not rise",
        "No broker writes this. A broker finds a wrong place where its log and that of another "
        "copy diverge. " + _OF_A_COPY,
    ),
    "epoch-past-end": Code(
        ERROR,
        "directory",
        "an epoch begins past the end of the log",
        "The log has lost its end since. This broker would not write down its next epoch, and "
        "copies of its log would diverge unnoticed. " + _OF_A_COPY,
    ),
    "confirmed-past-end": Code(
        WARNING,
        "checkpoint",
        "the copies had confirmed more of the log than there is now",
        "What is missing was lost here; other copies have it. " + _OF_A_COPY,
    ),
    "broker-identity-unreadable": Code(
        WARNING,
        "directory",
        "`brokerIdentity` does not name cluster, broker and number",
        "Nothing is lost, but the broker does not join its controller. Bring the file back as it "
        "was, `<cluster>#<broker>#<id>`.",
    ),
    "long-topic-not-confirmed": Code(
        ERROR,
        "commitlog",
        "in controller mode, a record with a topic of more than 127 bytes comes after what the "
        "copies have confirmed",
        'A broker of 5.3.3 does not start on it ("Unknown magicCode"). Start it once with '
        "enableControllerMode=false, or let another copy take its place.",
    ),
    "dledger-header-mismatch": Code(
        ERROR,
        "commitlog",
        "the header of an entry contradicts itself, its place, or its record",
        "The record after the header may be whole: rmqctl reads it. At its next start DLedger ends "
        "its log before such an entry, and gets what follows from the leader, if another member "
        "has it. " + _OF_A_MEMBER,
    ),
    "dledger-index-order": Code(
        ERROR,
        "commitlog",
        "the index of an entry does not follow that of the entry before it",
        "At its next start DLedger refuses such a log, or ends it here. " + _OF_A_MEMBER,
    ),
    "dledger-term-falls": Code(
        ERROR,
        "commitlog",
        "the term of an entry is less than that of the entry before it",
        "No leader writes this. " + _OF_A_MEMBER,
    ),
    "dledger-index-unit-mismatch": Code(
        ERROR,
        "commitlog",
        "`dledger-*/index` does not say where an entry is",
        "This member cannot find these entries by their number, so a member that has fallen behind "
        "does not catch up. At its start DLedger writes anew only the units of its last three data "
        "files. " + _OF_A_MEMBER,
    ),
    "dledger-index-length": Code(
        ERROR,
        "directory",
        "a file of `dledger-*/index` has a length that no such file has",
        "A member does not start on it. Without `dledger-*/index` it starts, and writes the units "
        "of its last three data files. A member that starts with an empty store gets everything "
        "from the leader.",
    ),
    "dledger-index-behind": Code(
        WARNING,
        "commitlog",
        "`dledger-*/index` does not have the newest entries",
        "A crash leaves it so. DLedger writes these units at its next start.",
    ),
    "dledger-committed-past-end": Code(
        ERROR,
        "commitlog",
        "entries that the group had committed are no longer in this member's log",
        "They are lost here, but other members have them. Let one of those become the leader "
        "before this one starts; this one then gets them again.",
    ),
    "dledger-uncommitted": Code(
        INFO,
        "commitlog",
        "nothing says yet that the newest entries are committed",
        "The file that says so is written every few seconds, so it may be behind after a crash. No "
        "consumer gets the entries until they are committed; a group whose leader changes cuts "
        "what no other member has.",
    ),
    "dledger-state-unreadable": Code(
        WARNING,
        "commitlog",
        "`checkpoint` or `currterm` of a DLedger member does not have the content that it must "
        "have",
        "Nothing is lost. Without `currterm` a member may vote twice in one term: bring it back "
        "from its .bak.",
    ),
}
