"""Small stores, the messages in them, and what must be true of a store after anything."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from formats.constants import MAX_ADDR
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import UNIT_SIZE, unit_dtype
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_to
from rmqctl.operations.verify import verify
from rmqctl.operations.verify.findings import INFO, Finding

HOST = (bytes((10, 0, 0, 1)), 10911)
TIME = 1_700_000_000_000


def small_config(
    log: int = 1 << 16, queue: int = 1000, slots: int = 100, items: int = 1000
) -> MessageStoreConfig:
    """Sizes with which files roll after few messages; explicit, as from a ``broker.conf``."""
    return MessageStoreConfig(
        mapped_file_size_commit_log=log,
        mapped_file_size_consume_queue=queue,
        max_hash_slot_num=slots,
        max_index_num=items,
        explicit=frozenset({"max_hash_slot_num", "max_index_num"}),
    )


def broker_conf(config: MessageStoreConfig) -> str:
    """The same as the text of a ``broker.conf``."""
    return (
        f"mappedFileSizeCommitLog={config.mapped_file_size_commit_log}\n"
        f"mappedFileSizeConsumeQueue={config.mapped_file_size_consume_queue}\n"
        f"maxHashSlotNum={config.max_hash_slot_num}\nmaxIndexNum={config.max_index_num}\n"
        f"transientStorePoolEnable={config.transient_store_pool_enable}\n"
        f"enableConsumeQueueExt={config.enable_consume_queue_ext}\n"
        f"mappedFileSizeConsumeQueueExt={config.mapped_file_size_consume_queue_ext}\n"
    )


def message(
    number: int,
    topic: str = "",
    queue_id: int | None = None,
    body: bytes | None = None,
    keys: int = 1,
) -> MessageExtBrokerInner:
    """The ``number``-th message: three topics, two queues each, ``keys`` keys of its own."""
    properties = {"TAGS": f"tag{number % 5}"}
    if keys:
        properties["KEYS"] = " ".join(f"k{number}-{at}" for at in range(keys))
    return MessageExtBrokerInner(
        topic or f"topic{number % 3}",
        body if body is not None else b"%d " % number * (number * 7 % 60),
        queue_id=number // 3 % 2 if queue_id is None else queue_id,
        properties=properties,
        born_timestamp=TIME + number,
        born_host=HOST,
        store_host=HOST,
    )


class Clock:
    """Store times that go on by a second and a half a message."""

    def __init__(self, start: int = TIME) -> None:
        self.now = start

    def __call__(self) -> int:
        self.now += 1500
        return self.now


def fill_files(root: Path, config: MessageStoreConfig, files: int, more: int = 0) -> None:
    """Makes a store whose log rolls until it has so many files, and then has so many messages
    more; their bodies are 200 times ``x``."""
    with MessageStore(root, config, writable=True, create=True, clock=Clock()) as store:
        number, behind = 0, 0
        while behind < more or len(store.commit_log.files.entries) < files:
            behind += len(store.commit_log.files.entries) == files
            assert store.put_message(message(number, body=b"x" * 200), flush=False).is_ok
            number += 1


def tree(root: Path) -> dict[str, bytes]:
    """Content of every file; links as where they lead."""
    found = {}
    for directory, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(directory, name)
            key = str(path.relative_to(root))
            if path.is_symlink():
                found[key] = os.readlink(path).encode()
            elif path.is_file():
                found[key] = path.read_bytes()
            else:
                found[key] = b"directory" if path.is_dir() else b"special"
    return found


def times(root: Path) -> dict[str, tuple[int, int, int]]:
    """Modification and change times and sizes of everything below ``root``, itself included."""
    found = {}
    for path in (root, *root.rglob("*")):
        status = path.lstat()
        found[str(path.relative_to(root))] = status.st_mtime_ns, status.st_ctime_ns, status.st_size
    return found


def findings(root: Path, config: MessageStoreConfig) -> list[Finding]:
    """What verify finds, without what is only worth knowing."""
    found = (row for row in verify(root, config) if isinstance(row, Finding))
    return [row for row in found if row.severity != INFO]


def assert_clean(root: Path, config: MessageStoreConfig, *allowed: str) -> None:
    bad = [row for row in findings(root, config) if row.code not in allowed]
    assert not bad, "; ".join(
        f"{row.code} in {row.path} @{row.position} log {row.physical_offset}: "
        f"expected {row.expected}, found {row.found}"
        for row in bad
    )


def derived_files(root: Path) -> tuple[dict[str, bytes], list[bytes]]:
    """Queue files by name and index files in order (their names are times)."""
    queues = {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted((root / "consumequeue").rglob("*"))
        if path.is_file()
    }
    index = [path.read_bytes() for path in sorted((root / "index").glob("*"))]
    return queues, index


def without_addresses(stored: bytes) -> bytes:
    """A queue's file with one address for each that leads to its extension."""
    units = np.frombuffer(stored[: len(stored) // UNIT_SIZE * UNIT_SIZE], unit_dtype()).copy()
    units["tags_code"][units["tags_code"] <= MAX_ADDR] = MAX_ADDR
    return units.tobytes()


def assert_rebuild_is_identical(root: Path, config: MessageStoreConfig, aside: Path) -> None:
    """Queues and index are what the log alone gives: what an unkilled run would have left.

    A file made ahead for the next unit, all zeros, is no difference, nor are addresses of extension
    units: one that a kill has left without the unit of its queue, in front of the first of that,
    stays, as with the engine (``ConsumeQueueExt#truncateByMaxAddress``). Where they lead ``verify``
    says.
    """
    rebuild_to(plan_rebuild(root, config, "all"), aside)
    expected_queues, expected_index = derived_files(aside)
    queues, index = derived_files(root)
    for name in queues.keys() | expected_queues.keys():
        found, expected = queues.get(name), expected_queues.get(name)
        if expected is None and found is not None and not found.strip(b"\0"):
            continue
        if config.enable_consume_queue_ext and found is not None and expected is not None:
            found, expected = without_addresses(found), without_addresses(expected)
        assert found == expected, f"{name} differs from its rebuild"
    if len(index) == len(expected_index) + 1 and not index[-1][40:].strip(b"\0"):
        index.pop()
    same = [file == other for file, other in zip(index, expected_index, strict=True)]
    assert all(same), f"the index differs from its rebuild: {same}"
