"""The finding codes of ``lint`` that ``verify`` does not have, by the rules of
:mod:`rmqctl.operations.verify.codes`."""

from __future__ import annotations

from rmqctl.operations.verify.codes import ERROR, INFO, WARNING, Code

LINT_CODES: dict[str, Code] = {
    "queue-file-missing": Code(
        ERROR,
        "queue",
        "a file of a queue is missing between two others",
        "Consumers get none of its messages. `rmqctl rebuild queues` makes the queue anew.",
    ),
    "sizes-contradicted": Code(
        ERROR,
        "directory",
        "the broker.conf says another length than the files have",
        "A broker with this broker.conf refuses to start. Give the one that the store was written "
        "with, or write the length of the files into it.",
    ),
    "not-writable": Code(
        ERROR,
        "directory",
        "there are files that their own owner may not write",
        "A broker opens each file for writing, so it does not start: `chmod u+w` them.",
    ),
    "read-only-mount": Code(
        ERROR,
        "directory",
        "the store, or a part of it, is on a file system that is mounted read-only",
        "A broker opens each file for writing, so it does not start. The system mounts a file "
        "system that has failed read-only: look at the system's log (`dmesg`) before you mount it "
        "for writing again.",
    ),
    "mixed-owners": Code(
        WARNING,
        "directory",
        "there are files of another owner than most",
        "This happens when somebody ran a tool, or the broker, as another user. If the broker may "
        "not write them, it does not start: `chown` them to the user that it runs as.",
    ),
    "dledger-log": Code(
        INFO,
        "directory",
        "there is a log of a DLedger group (enableDLegerCommitLog)",
        "Such a broker keeps its messages there; commitlog/ has those from before the broker "
        "joined the group. Start it with the group's broker.conf only: with another one it would "
        "not see them.",
    ),
    "file-limit-too-low": Code(
        WARNING,
        "store",
        "the store has more files than a process of this user may have open",
        "A broker keeps every file open, so it does not start, or fails later. Raise the hard "
        "limit of open files (`ulimit -Hn`, LimitNOFILE of the service) before you start it.",
    ),
    "map-limit-too-low": Code(
        WARNING,
        "store",
        "the store has more files than a process may have memory maps",
        "A broker maps every file, and fails with `Map failed`. Raise vm.max_map_count (sysctl) "
        "before you start it.",
    ),
    "lock-held": Code(
        INFO,
        "store",
        "another process holds the lock: a broker runs, or an rmqctl writes",
        "Do not start a broker, or a second one, on this store.",
    ),
}
