"""What later versions of RocketMQ put into a store that this version does not understand.

Most of it can be passed over: the commit log stays the truth. Queues that live in RocksDB cannot:
a writer that does not keep them up to date would hide its messages from every consumer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rmqctl.engine.paths import CONSUME_QUEUE
from rmqctl.errors import UnsupportedStore

_QUEUES_IN_ROCKSDB = {
    "consumequeue_r": "queues in RocksDB (5.x)",
    "consumequeue_rocksdb": "queues in RocksDB (5.x)",
}
_PASSED_OVER = {
    "timerwheel": "timer wheel (5.x)",
    "timerlog": "timer log (5.x)",
    "timercheck": "timer checkpoint (5.x)",
    "compaction": "compacted topics (5.x)",
    "transRocksDBStore": "transactions in RocksDB (5.x)",
    "timerRocksDBStore": "timers in RocksDB (5.x)",
    "indexRocksDBStore": "index in RocksDB (5.x)",
    "rocksdb": "RocksDB (5.x)",
    "epochFileCheckpoint": "controller epochs (5.x)",
}
#: RocksDB names the file of its current manifest so.
_ROCKSDB_MARK = "CURRENT"


def not_understood(root: Path) -> Iterator[tuple[str, str]]:
    """``(name, what it is)`` of what stands in a store and is not read."""
    for name, what in (_QUEUES_IN_ROCKSDB | _PASSED_OVER).items():
        if (root / name).exists():
            yield name, what
    if os.path.isfile(root / CONSUME_QUEUE / _ROCKSDB_MARK):  # Path's raises without the right
        yield CONSUME_QUEUE, "queues in RocksDB (5.x)"


def check_understood(root: Path) -> None:
    """:raises UnsupportedStore: messages put here would be in no queue that a broker reads."""
    for name, what in not_understood(root):
        if name in _QUEUES_IN_ROCKSDB or name == CONSUME_QUEUE:
            raise UnsupportedStore(path=str(root / name), reason=f"the store keeps its {what}")
