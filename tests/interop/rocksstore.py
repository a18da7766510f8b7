"""Makes a store of 5.3.3 whose queues, topics, groups and offsets are in RocksDB.

    python -m tests.interop.rocksstore

writes ``tests/golden/later/rocksdb.tar.xz`` and ``rocksdb.json`` beside it, unless they are there:
the store as its broker leaves it when it stops, without the first file of its log, which is then
deleted as retention does.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from tests.golden_data import LATER
from tests.interop.engine import Engine, Row, build
from tests.interop.popstore import send, start

VALUES: Row = {
    # A broker that flushes in the background and stops before it has begun to, does not write the
    # checkpoint.
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": 16384,
    "mappedFileSizeConsumeQueue": 1000,
    "mappedFileSizeTimerLog": 52 * 1000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
    # Long, so that the running broker deletes no file.
    "fileReservedTime": 10_000,
}
ROCKSDB: Row = {**VALUES, "storeType": "defaultRocksDB"}
#: Messages of each queue; all of ``bills`` are in the log's first file.
SENT = {("bills", 0): 5, ("orders", 0): 70, ("orders", 1): 9}
READ = 5


def write(engine: Engine, root: Path) -> None:
    """Has a broker store the messages, and the group ``readers`` consume all of ``bills``; then
    stops it."""
    start(engine, root, ROCKSDB, sorted({topic for topic, _ in SENT}))
    for (topic, queue_id), count in SENT.items():
        send(engine, topic, queue_id, count)
    read = engine.ask(
        "consume", topic="bills", group="readers", expression="*", count=READ, failing=False
    )
    assert len(read) == READ
    engine.ask("stop")


def expire(root: Path) -> None:
    """Deletes the first file of the log."""
    min((root / "commitlog").iterdir()).unlink()


def main() -> None:
    archive = LATER / "rocksdb.tar.xz"
    if archive.exists():
        raise SystemExit(f"{archive} is there already; a better store is a new one")
    build()
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        engine = Engine("5.3.3", scratch / "log")
        write(engine, scratch / "rocksdb")
        engine.close()
        expire(scratch / "rocksdb")
        command = ["tar", "-C", directory, "--sparse", "-cJf", str(archive), "rocksdb"]
        subprocess.run(command, check=True)
    said = {"config": VALUES, "sent": [[*place, count] for place, count in SENT.items()]}
    archive.with_name("rocksdb.json").write_text(json.dumps(said, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
