"""docs/reference/compatibility.md, made from what the interop tests prove.

    python -m tests.interop.compatibility            write the page
    python -m tests.interop.compatibility --check    exit code 1 when it is out of date

A test says with the marker ``proves`` which features it stands for, and with ``level`` how far, if
need be by version: the default is all of it. Nothing is ✓ here that no test
runs against the engine of that version.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interop.engine import LATEST, VERSIONS

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reference" / "compatibility.md"
#: Levels, the best first, and their signs.
SIGNS = {"full": "✓", "partly": "◐", "named": "✗", "untried": "·"}


class Feature(NamedTuple):
    """A row of the page: a feature, the first version that has it, and a note."""

    text: str
    note: str = ""
    since: str = "4.9.3"


FEATURES = {
    "read": Feature("Log, queues and index that the engine wrote: read, pulled, found by key"),
    "verify": Feature("`verify` finds nothing in them"),
    "rebuild": Feature("`rebuild` gives their bytes again"),
    "killed": Feature("The same after the engine was killed, with what its next start will mend"),
    "pool": Feature("The same with a transient store pool"),
    "write": Feature(
        "Stores that rmqctl wrote or rebuilt: the engine starts on them, and loses and changes"
        " nothing"
    ),
    "turns": Feature("Engine and rmqctl write the same store in turns"),
    "kinds": Feature("Batches, delayed and transactional messages, IPv6 hosts"),
    "light": Feature(
        "Light queues (LMQ)",
        "4.9.3 counts them from 0 again after each start, and then hides messages; `verify` names"
        " those. 5.3.3 stores light queues only (`%LMQ%…`), and none of delayed messages, retries"
        " or topics `rmq_sys_…`",
    ),
    "ext": Feature("Consume queue extension", "read and verified"),
    "damage": Feature("Whatever the engine loses of a damaged store has a finding"),
    "salvage": Feature(
        "Stores that `salvage` made of damaged ones: the engine starts on them, changes nothing,"
        " and has every message that was not hit"
    ),
    "repair": Feature(
        "Stores that `repair` mended: the engine starts on them, also after a crash, changes no"
        " byte of log and queues, keeps the index, and has every message where it was"
    ),
    "backup": Feature(
        "Stores that `restore` made of backups, made while the engine wrote, too: it starts on"
        " them, and has every message up to the place in the log that the backup names"
    ),
    "start": Feature(
        "A start as `simulate-start` plays it, on damaged stores, too: it ends or does not end, "
        "deletes the same files, and leaves the same offsets"
    ),
    "lock": Feature("The lock: an engine keeps writers out, a writer keeps the engine out"),
    "broker": Feature(
        "A whole broker on rmqctl's store: consumers continue where they were, delayed messages "
        "are delivered, failed ones come again, transactions end, reading commands run beside it"
    ),
    "serve": Feature(
        "`serve --read-only`: the version's own clients consume the store of a killed engine to its"
        " end, by tags, by SQL92, in order, and by asking; its bytes stay"
    ),
    "serve-writes": Feature(
        "`serve`: what clients send, singly, in batches, delayed, in transactions and back, is"
        " stored byte for byte as a broker does, which then goes on with the store",
        "as 4.9.3 stores it; 5.3.3 has the same messages at the same places of the same queues",
    ),
    "serve-secured": Feature("`serve` with accounts and TLS: clients sign, and are held to theirs"),
    "serve-ha": Feature(
        "`serve --ha`: a slave broker follows over rolls and a kill of its master; log and queues"
        " are the same then, byte by byte",
        "slaves of 5.3.3, without a controller, follow in the tests of every night",
    ),
    "replicate": Feature(
        "`replicate`: a copy follows a master over rolls, kills and restarts of both; log and"
        " queues are the same then, byte by byte",
        "5.3.3 without a controller; queues of static topics do not come over",
    ),
    "pull": Feature(
        "Answers of a pull",
        "5.3.3 sends a consumer that asks far past the end to the end; `pull` sends it to the"
        " queue's first message, as 4.9.3 does. Of a damaged queue: where a unit leads to bytes"
        " that are no record, a broker gives these out as a message (of a unit of zeros no bytes),"
        " or fails if the size is negative or too large; `pull` leaves them out and counts them. If"
        " the unit is in one of the queue's last three files, the next start of a broker ends the"
        " queue before zeros and negative values; `pull` reads on",
    ),
    "separator": Feature(
        "Separator after the last property", "`put` follows the store's newest record", "5.3.3"
    ),
    "crc": Feature(
        "Checksum of the record (`enabledAppendPropCRC`)",
        "`put` follows the store's newest record; `verify` checks it where a record has it",
        "5.3.3",
    ),
    "long-topics": Feature("Retry topics of more than 127 bytes", "", "5.3.3"),
    "compression": Feature(
        "Bodies that are compressed with LZ4 or ZSTD", "with the extra `codecs`", "5.3.3"
    ),
    "checkpoint": Feature(
        "Checkpoint with five fields, `abort` with a process id",
        "`put` leaves the further fields as they are, and makes such an `abort` on a 5.x store",
        "5.3.3",
    ),
    "dledger": Feature(
        "Stores of a DLedger group's member (`enableDLegerCommitLog`), also such as were plain ones"
        " before: read, verified, queues and index rebuilt, exported into a plain store that the"
        " engine goes on with; killed ones, too",
        "tested with the engine in groups of one member; a member of three, with entries that were "
        "never committed, is read; rmqctl appends to no such log",
    ),
    "controller": Feature(
        "Epochs of a broker in controller mode: read, written and cut as the engine does; records"
        " on which it does not start are named",
        "`info`, `verify`, `salvage`; no controller is run",
        "5.3.3",
    ),
    "rocksdb": Feature(
        "Queues in RocksDB",
        "read with the extra `rocksdb`, as far as their broker has flushed them; writing is"
        " refused. `rebuild queues --to-file-queues` makes file queues of them, and JSON files of"
        " topics, groups and offsets: a broker goes on with these",
        "5.3.3",
    ),
    "batch-queues": Feature(
        "Batch queues",
        "read and pulled, verified unit by unit; `rebuild` gives their bytes again, and puts to"
        " their topics are refused; `offset` answers as 5.3.3 does for the times of messages. For a"
        " time between two of them 5.3.3 often has another answer than the message before it"
        " (UPPER, for which it may even go to the queue's first one) or behind it (LOWER); `floor`"
        " and `ceil` have these",
        "5.3.3",
    ),
    "compaction": Feature(
        "Compacted topics",
        "read and pulled; verified: units, records, keys, and each record beside the commit log's;"
        " nothing of them is made anew, and puts to them are refused",
        "5.3.3",
    ),
    "timer": Feature(
        "Messages with a time of delivery: wheel, timer log and check point read, verified, and"
        " made anew from the messages",
        "those in RocksDB (`timerRocksDBEnable`, 5.4 and later) are not read",
        "5.3.3",
    ),
    "pop": Feature(
        "Messages that were popped",
        "`pop ls` names those that the broker gives back, and where; not of pop in RocksDB",
        "5.3.3",
    ),
    "tiered": Feature(
        "Tiered storage in files (`PosixFileSegment`): messages read, found by key, and verified",
        "with stores that a broker of 5.3.3 writes every night; only files are read, and nothing "
        "is written",
        "5.3.3",
    ),
}

HEAD = """\
# Compatibility

<!-- Made by `python -m tests.interop.compatibility`; do not edit. -->

What is proven against the real engine in every run of the tests (`tests/interop`): ✓ all of it,
◐ with the difference that is named, ✗ not read, and `info` and `verify` say so, – not in that
version, · not tried with it.

"""


TAIL = """
What no row above is about:

| | |
|---|---|
| What keeps a broker of 5.3.3 from starting: a timer wheel of another length, timer metrics that \
do not parse, queues of another type than their topic's, a compacted file without its pair | \
findings of `verify`, each with its cure \
([A broker that will not start](../how-to/broker-will-not-start.md)); every night a broker of \
5.3.3 is started on each of them, and again behind the cure |
| Topics, groups and offsets in RocksDB (`config/topics`, `config/subscriptionGroups`, \
`config/consumerOffsets`; `config/rdb`) | named, and commands that read the JSON files say so; \
`rebuild queues --to-file-queues` takes those of the first three along |
| Timers, transactions, index and pop in RocksDB (`timerRocksDBStore`, `transRocksDBStore`, \
`indexRocksDBStore`, `kvStore`), users and rights (`config/users`, `config/acls`) | named, not \
read |
| RocketMQ 5.4 and later | their index items of tags, and the checkpoint of 5.5, are read and \
written; what else they write as 5.3.3 does is read; `config/metadata` and `rocksdbstore` are \
named. `simulate-start` plays a start of 4.9.3 or 5.3.3; after a crash 5.5 reads at most ten files \
of the log (`commitLogRecoverMaxNum`) |
"""


class _Collector:
    """A plugin of pytest that keeps the tests which a run has collected."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = list(session.items)


def proven(items: Iterable[pytest.Item]) -> dict[tuple[str, str], str]:
    """The level of each feature in each version: the lowest that any of its tests claims."""
    levels: dict[tuple[str, str], str] = {}
    order = list(SIGNS)
    for item in items:
        callspec = getattr(item, "callspec", None)
        version = str(callspec.params.get("version")) if callspec is not None else ""
        for mark in item.iter_markers("proves"):
            level = mark.kwargs.get("level", "full")
            if isinstance(level, dict):  # by version
                level = level.get(version, "full")
            for feature in mark.args:
                if feature not in FEATURES:
                    raise ValueError(f"{item.name} proves the unknown feature {feature!r}")
                key = feature, version
                levels[key] = max(levels.get(key, "full"), level, key=order.index)
    return levels


def page(levels: dict[tuple[str, str], str]) -> str:
    columns = [*VERSIONS, LATEST]
    lines = [f"| | {' | '.join(columns)} | |", f"|---|{':---:|' * len(columns)}---|"]
    for name, feature in FEATURES.items():
        signs = []
        for version in columns:
            level = levels.get((name, version), "untried" if version == LATEST else "named")
            signs.append("–" if feature.since > version else SIGNS[level])
        lines.append(f"| {feature.text} | {' | '.join(signs)} | {feature.note} |")
    return HEAD + "\n".join(lines) + "\n" + TAIL


def main(arguments: list[str]) -> int:
    collector = _Collector()
    command = ["--collect-only", "-qq", "-p", "no:cacheprovider", str(HERE)]
    code = pytest.main(command, plugins=[collector])
    if code:
        return int(code)
    text = page(proven(collector.items))
    if "--check" in arguments:
        return int(PAGE.read_text("utf-8") != text)
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
