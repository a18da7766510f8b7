"""A store of 5.3.3 with a compacted topic.

    python -m tests.interop.compactionstore

writes ``tests/golden/later/compaction.tar.xz`` and ``compaction.json`` beside it, unless they are
there. Queue 0 was compacted twice, with messages stored before, in between and after; queue 1 was
never compacted. Some messages have no keys, and are not copied; some have no body, and remove the
message with their key.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from rmqctl.engine.record.message import MessageExtBrokerInner
from tests.golden_data import LATER
from tests.interop.engine import Engine, Row, build

VALUES: Row = {
    "mappedFileSizeCommitLog": 32768,
    "mappedFileSizeConsumeQueue": 2000,
    # A file for ten units, of which the last one marks the end.
    "compactionCqMappedFileSize": 460,
    # Less than the engine allows, which then takes five times a queue file's size.
    "compactionMappedFileSize": 1000,
    "maxHashSlotNum": 50,
    "maxIndexNum": 400,
}
#: The topic that the driver's engine compacts.
TOPIC = "CompactTopic"
_HOST = (bytes((10, 1, 2, 3)), 10911)


def messages(first: int, count: int) -> list[MessageExtBrokerInner]:
    """The messages to put. Three of four are for queue 0; a key comes again after five messages,
    and some keys come only once."""
    made = []
    for number in range(first, first + count):
        key = f"once{number}" if number % 7 == 3 else f"k{number % 5}"
        properties = {"KEYS": key, "TAGS": f"t{number % 3}", "UNIQ_KEY": f"u{number}"}
        if number % 13 == 12:
            del properties["KEYS"]
        body = b"" if number % 11 == 9 else f"{number} ".encode() + b"x" * (number * 7 % 120)
        made.append(
            MessageExtBrokerInner(
                "Plain" if number % 17 == 16 else TOPIC,
                body or (b"p" if number % 17 == 16 else b""),
                int(number % 4 == 3),
                properties=properties,
                born_timestamp=1_700_000_000_000 + number,
                born_host=_HOST,
                store_host=_HOST,
            )
        )
    return made


def write(engine: Engine, root: Path) -> list[int]:
    """The queue offset up to which queue 0 was compacted, for each of the times."""
    positions = []
    for first in (0, 60, 90):
        store = engine.open(root, VALUES)
        assert {row["status"] for row in store.put(messages(first, 60 if not first else 30))} == {
            "PUT_OK"
        }
        store.settle()
        if first < 90:
            positions.append(engine.ask("compact", store=store.name, topic=TOPIC, queueId=0))
        store.shutdown()
    return positions


def main() -> None:
    archive = LATER / "compaction.tar.xz"
    if archive.exists():
        raise SystemExit(f"{archive} is there already; a better store is a new one")
    build()
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        engine = Engine("5.3.3", scratch / "log")
        positions = write(engine, scratch / "compaction")
        engine.close()
        command = ["tar", "-C", directory, "--sparse", "-cJf", str(archive), "compaction"]
        subprocess.run(command, check=True)
    archive.with_name("compaction.json").write_text(
        json.dumps({"config": VALUES, "positions": positions}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
