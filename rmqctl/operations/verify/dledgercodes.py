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
        "`epochFileCheckpoint` of a broker in controller mode does not hold together",
        "Where a line is no number the broker does not start; else its .bak counts, or it forgets "
        "who has written which part of its log. Bring it back from the .bak, or a backup.",
    ),
    "epochs-out-of-order": Code(
        ERROR,
        "directory",
        "epochs of `epochFileCheckpoint` do not rise, or their offsets do not",
        "No broker has written this: where two logs part is found wrongly. " + _OF_A_COPY,
    ),
    "epoch-past-end": Code(
        ERROR,
        "directory",
        "an epoch begins behind the end of the log",
        "The log has lost its end since. The next epoch of this broker would not be written down, "
        "and copies of it would part unseen. " + _OF_A_COPY,
    ),
    "confirmed-past-end": Code(
        WARNING,
        "checkpoint",
        "copies had confirmed more of the log than there is of it",
        "What is missing was lost here; other copies have it. " + _OF_A_COPY,
    ),
    "broker-identity-unreadable": Code(
        WARNING,
        "directory",
        "`brokerIdentity` does not say cluster, broker and number",
        "Nothing is lost. The broker does not join its controller: bring the file back as it was, "
        "`<cluster>#<broker>#<id>`.",
    ),
    "long-topic-not-confirmed": Code(
        ERROR,
        "commitlog",
        "a record with a topic of more than 127 bytes, in controller mode, behind what the copies "
        "have confirmed",
        'A broker of 5.3.3 does not start on it ("Unknown magicCode"). Start it once with '
        "enableControllerMode=false, or let another copy take its place.",
    ),
    "dledger-header-mismatch": Code(
        ERROR,
        "commitlog",
        "the header of an entry contradicts itself, its place, or its record",
        "The record behind it may be whole: rmqctl reads it. DLedger ends its log before such an "
        "entry at the next start, and gets what follows from the leader, when another member has "
        "it. " + _OF_A_MEMBER,
    ),
    "dledger-index-order": Code(
        ERROR,
        "commitlog",
        "the index of an entry does not follow that of the entry before it",
        "DLedger refuses such a log, or ends it here, at its next start. " + _OF_A_MEMBER,
    ),
    "dledger-term-falls": Code(
        ERROR,
        "commitlog",
        "the term of an entry is less than that of the entry before it",
        "No leader has written this. " + _OF_A_MEMBER,
    ),
    "dledger-index-unit-mismatch": Code(
        ERROR,
        "commitlog",
        "what `dledger-*/index` says of an entry is not where it lies",
        "The group cannot give out these entries by their number: a member that falls behind does "
        "not catch up. DLedger writes anew only the units of its last three data files, at its "
        "start. " + _OF_A_MEMBER,
    ),
    "dledger-index-length": Code(
        ERROR,
        "directory",
        "a file of `dledger-*/index` has another length than every such file",
        "A member does not start on it. Without `dledger-*/index` it starts, and writes the units "
        "of its last three data files; a member that starts with an empty store gets everything "
        "from the leader.",
    ),
    "dledger-index-behind": Code(
        WARNING,
        "commitlog",
        "`dledger-*/index` does not have the newest entries",
        "So a crash leaves it. DLedger writes these units at its next start.",
    ),
    "dledger-committed-past-end": Code(
        ERROR,
        "commitlog",
        "entries that the group had committed are no longer in this member's log",
        "They are lost here, and other members have them. Let one of those become the leader "
        "before this one starts; it then gets them again.",
    ),
    "dledger-uncommitted": Code(
        INFO,
        "commitlog",
        "the newest entries are not known to be committed",
        "The file is written every few seconds, so that a crash leaves it behind. No consumer gets "
        "them until they are; a group whose leader changes cuts what no other member has.",
    ),
    "dledger-state-unreadable": Code(
        WARNING,
        "commitlog",
        "`checkpoint` or `currterm` of a DLedger member does not say what it must",
        "Nothing is lost. Without `currterm` a member may vote twice in one term: bring it back "
        "from its .bak.",
    ),
}
