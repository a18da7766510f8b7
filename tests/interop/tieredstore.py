"""Makes stores of 5.3.3 with tiered storage in files, and records what their broker reads there.

    python -m tests.interop.tieredstore

writes ``tests/golden/later/tiered.tar.xz`` and ``tiered.json`` beside it, and ``tiered-killed``,
unless they are there: the store as the broker leaves it when it stops, the uploaded files in
``tiered/`` of it; and the same store after another run, which was killed, so that one file of the
index is not uploaded. It takes five minutes, for a broker begins to upload a queue with what came
in the last two.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

from formats.text import index_key_hash
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.tiered.store import TieredQueue, TieredStore, TieredUnit
from tests.golden_data import LATER, copy_tree
from tests.interop.engine import Engine, Row, build
from tests.interop.popstore import send as send_plain
from tests.interop.popstore import start, stop, wait_for

VALUES: Row = {
    "mappedFileSizeCommitLog": 262144,
    "mappedFileSizeConsumeQueue": 4000,
    "mappedFileSizeTimerLog": 52 * 1000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
    "tieredStoreCommitLogMaxSize": 4096,
    "tieredStoreConsumeQueueMaxSize": 400,
    "tieredStoreIndexFileMaxHashSlotNum": 20,
    "tieredStoreIndexFileMaxIndexNum": 80,
}
_PLUG_IN: Row = {
    "messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore",
    "tieredBackendServiceProvider": "org.apache.rocketmq.tieredstore.provider.PosixFileSegment",
    # Consumers get only what is uploaded, and nothing from a cache.
    "tieredStorageLevel": "FORCE",
    "readAheadCacheEnable": False,
    "tieredStoreGroupCommit": False,
}
#: Messages of a queue that are too old to be uploaded: the first upload begins behind them.
_OLD = 15
_TWO_MINUTES = 125
#: Messages of each queue in the first run, and in the second.
SENT = ({("orders", 0): 30, ("orders", 1): 12, ("late", 0): 9}, {("orders", 0): 14, ("late", 0): 3})


def values_of(root: Path) -> Row:
    return {**VALUES, **_PLUG_IN, "tieredStoreFilePath": str(root / "tiered")}


def send(engine: Engine, topic: str, queue_id: int, numbers: range) -> None:
    """Sends messages with tags and a key of their own; every fourth has the key ``fourth``, too."""
    rows = [
        {
            "topic": topic,
            "queueId": queue_id,
            "body": b64encode(f"{topic}-{queue_id}-{number} ".encode() * (number % 7 + 1)).decode(),
            "properties": {"TAGS": f"t{number % 3}", "KEYS": _keys(topic, queue_id, number)},
        }
        for number in numbers
    ]
    done = engine.ask("send", messages=rows)
    assert {one["status"] for one in done} == {"SEND_OK"}


def _keys(topic: str, queue_id: int, number: int) -> str:
    return f"k{queue_id}-{number}" + (" fourth" if number % 4 == 0 else "")


class Sent:
    """Sends messages, and keeps the queue offset at which each queue ends."""

    def __init__(self, ends: dict[tuple[str, int], int]) -> None:
        self.ends = dict(ends)

    def more(self, engine: Engine, counts: dict[tuple[str, int], int]) -> None:
        for (topic, queue_id), count in counts.items():
            first = self.ends.get((topic, queue_id), 0)
            send(engine, topic, queue_id, range(first, first + count))
            self.ends[topic, queue_id] = first + count

    def await_upload(self, engine: Engine, counts: dict[tuple[str, int], int]) -> None:
        """Waits until all messages are uploaded, and the last one of each queue is in the index."""

        def is_there(topic: str, queue_id: int) -> bool:
            end = self.ends[topic, queue_id]
            ends = engine.ask("tieredEnds", topic=topic, queueId=queue_id)
            key = f"k{queue_id}-{end - 1}"
            return (
                ends is not None
                and ends[1] == end
                and bool(engine.ask("tieredQuery", topic=topic, key=key))
            )

        wait_for(lambda: all(is_there(*place) for place in counts))

    def answers(self, engine: Engine) -> Row:
        """What the broker answers to pulls of all queues, and to queries for some keys."""
        pulled = [
            [topic, queue_id, engine.ask("tieredPull", topic=topic, queueId=queue_id)]
            for topic, queue_id in sorted(self.ends)
        ]
        keys = [("orders", "fourth"), ("late", "fourth"), ("orders", "k1-3"), ("orders", "none")]
        keys += [(topic, f"k{queue}-{end - 1}") for (topic, queue), end in self.ends.items()]
        queried = [[*key, engine.ask("tieredQuery", topic=key[0], key=key[1])] for key in keys]
        return {"pulled": pulled, "queried": queried}


def as_read(root: Path, said: Row) -> Row:
    """What rmqctl reads for all that a broker has answered (:meth:`Sent.answers`)."""
    store = TieredStore(root, MessageStoreConfig())
    pulled = []
    for topic, queue_id, _ in said["pulled"]:
        (queue,) = store.open_queues(topic, queue_id)
        pulled.append([topic, queue_id, [_record(queue, unit) for unit in queue.units()]])
        queue.close()
    queried = []
    for topic, key, _ in said["queried"]:
        code = index_key_hash(topic, key)
        items = {one[2:5]: None for file, _ in store.index_files() for one in file.find(code)}
        names = ("queueId", "physicalOffset", "size")
        queried.append([topic, key, [dict(zip(names, one, strict=True)) for one in sorted(items)]])
    return {"pulled": pulled, "queried": queried}


def _record(queue: TieredQueue, unit: TieredUnit) -> Row:
    mapped, position = queue.log.locate(unit.physical_offset)
    digest = hashlib.sha256(mapped.read(position, unit.size)).hexdigest()
    return {
        "queueOffset": unit.queue_offset,
        "physicalOffset": unit.physical_offset,
        "sha256": digest,
    }


def pack(root: Path, name: str, said: Row) -> None:
    archive = LATER / f"{name}.tar.xz"
    copy = copy_tree(root, root.parent / name)
    command = ["tar", "-C", str(copy.parent), "--sparse", "-cJf", str(archive), name]
    subprocess.run(command, check=True)
    text = json.dumps({"config": VALUES, **said}, separators=(",", ":"))
    archive.with_name(f"{name}.json").write_text(text + "\n", "utf-8")


def run(scratch: Path, root: Path, sent: Sent, number: int, ends: Callable[[Engine], None]) -> Row:
    """Has a broker write, upload and answer; then ``ends`` stops or kills it."""
    engine = Engine("5.3.3", scratch / "log")
    engine.ask("broker", root=str(root), config=values_of(root))
    sent.more(engine, SENT[number])
    sent.await_upload(engine, SENT[number])
    said = sent.answers(engine)
    ends(engine)
    return said


def main() -> None:
    if (LATER / "tiered.tar.xz").exists():
        raise SystemExit("the stores are there already; a better store is a new one")
    build()
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        root = scratch / "store"
        engine = Engine("5.3.3", scratch / "log")
        start(engine, root, VALUES, ["orders", "late"])
        send_plain(engine, "late", 0, _OLD)
        stop(engine)
        time.sleep(_TWO_MINUTES)
        sent = Sent({("late", 0): _OLD})
        pack(root, "tiered", run(scratch, root, sent, 0, stop))
        pack(root, "tiered-killed", run(scratch, root, sent, 1, Engine.kill))


if __name__ == "__main__":
    main()
