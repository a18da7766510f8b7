"""A store of 5.3.3 with batch queues.

    python -m tests.interop.batchstore

writes ``tests/golden/later/batch-queues.tar.xz`` and ``batch-queues.json`` beside it, unless they
are there: what the engine stores when it gets single messages and records that hold several, in a
topic with batch queues and in one without.
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
    "mappedFileSizeCommitLog": 16384,
    "mappedFileSizeConsumeQueue": 1000,
    # A file for ten units.
    "mapperFileSizeBatchConsumeQueue": 460,
    "maxHashSlotNum": 50,
    "maxIndexNum": 400,
}
#: The topic that has batch queues in the driver's engine.
TOPIC = "BatchTopic"
#: ``MessageSysFlag.NEED_UNWRAP_FLAG | INNER_BATCH_FLAG``.
_INNER_BATCH = 0x40 | 0x80
_HOST = (bytes((10, 1, 2, 3)), 10911)


def messages() -> list[MessageExtBrokerInner]:
    """The messages to put; the body of every third one for queue 0 holds several messages."""
    made = []
    for number in range(66):
        queue_id = number % 3 % 2
        properties = {"TAGS": f"t{number % 4}", "KEYS": f"k{number}", "UNIQ_KEY": f"u{number}"}
        flag = 0
        if number % 9 == 0:
            properties = {"INNER_NUM": str(number % 5 + 2), "UNIQ_KEY": f"u{number}"}
            flag = _INNER_BATCH
        is_plain = number % 11 == 10
        made.append(
            MessageExtBrokerInner(
                "Plain" if is_plain else TOPIC,
                b"x" * (number * 7 % 300),
                queue_id,
                sys_flag=0 if is_plain else flag,
                properties={"TAGS": "p"} if is_plain else properties,
                born_timestamp=1_700_000_000_000 + number,
                born_host=_HOST,
                store_host=_HOST,
            )
        )
    return made


def write(engine: Engine, root: Path) -> None:
    store = engine.open(root, VALUES)
    assert {row["status"] for row in store.put(messages())} == {"PUT_OK"}
    store.settle()
    store.shutdown()


def main() -> None:
    archive = LATER / "batch-queues.tar.xz"
    if archive.exists():
        raise SystemExit(f"{archive} is there already; a better store is a new one")
    build()
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        engine = Engine("5.3.3", scratch / "log")
        write(engine, scratch / "batch-queues")
        engine.close()
        command = ["tar", "-C", directory, "--sparse", "-cJf", str(archive), "batch-queues"]
        subprocess.run(command, check=True)
    archive.with_name("batch-queues.json").write_text(
        json.dumps({"config": VALUES}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
