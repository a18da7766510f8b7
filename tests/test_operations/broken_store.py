"""A small store in which everything is wrong that ``repair`` can mend, each thing once."""

from __future__ import annotations

import json
import os
from pathlib import Path

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.state import brokerjson, fastjson
from rmqctl.operations.repair import model
from tests.test_operations.small_store import CONFIG, make_small_store

#: What the plan for it does, in order.
ACTIONS = [
    model.QUARANTINE,
    model.QUARANTINE,
    model.EXTEND_FILE,
    model.CUT_TAIL,
    model.REBUILD_QUEUE,
    model.REBUILD_QUEUE,
    model.REBUILD_INDEX,
    model.RESTORE_CONFIG,
    model.SET_OFFSET,
    model.SET_OFFSET,
    model.SET_CHECKPOINT,
]


def make_sound_store(root: Path) -> Path:
    """The store before anything was wrong with it."""
    make_small_store(root)
    config = root / "config"
    config.mkdir()
    (config / "topics.json").write_text(fastjson.dumps({"topicConfigTable": {}}))
    (config / "topics.json.bak").write_text(fastjson.dumps({"topicConfigTable": {}}))
    with MessageStore(root, CONFIG) as store:
        queue = store.consume_queue("%RETRY%g", 1)
        assert queue is not None
        table = {"%RETRY%g@g": {1: queue.max_offset}, "%RETRY%g@h": {1: 0}}
    # A broker with enableLmq keeps all offsets there.
    offsets = {"lmqOffsetTable": {"%LMQ%one@%LMQ%h": 1}, "offsetTable": table}
    (config / "lmqConsumerOffset.json").write_text(fastjson.dumps(offsets))
    return root


def break_store(root: Path, *, is_cut: bool = True) -> Path:
    """Breaks it. ``is_cut``: the log's last file has lost its end, too, and most commands refuse
    the store."""
    (root / "commitlog/notes.txt").write_text("foreign")
    (root / "consumequeue/TopicA/x").mkdir()
    (root / "consumequeue/TopicA/x/y").write_text("foreign")
    with MessageStore(root, CONFIG) as store:
        end = store.max_offset
        mapped, position = store.commit_log.locate(end)
        path = mapped.path
    with path.open("r+b") as log:
        log.seek(position)
        log.write(b"\x00\x00\x00\x99torn")
        if is_cut:
            log.truncate()
    unit = root / "consumequeue/TopicA/0/00000000000000000000"
    _write(unit, 7, b"\x77")
    for file in (root / "consumequeue/主题/1").iterdir():
        file.unlink()
    (root / "consumequeue/主题/1").rmdir()
    index = min((root / "index").iterdir())
    _write(index, 44, b"\x00\x00\x00\x11")
    (root / "checkpoint").write_bytes(b"short")
    (root / "config/topics.json").write_text('{"topicConfigTable":')
    offsets = root / "config/lmqConsumerOffset.json"
    table = brokerjson.read(offsets)
    table["offsetTable"]["%RETRY%g@g"][1] += 100
    table["lmqOffsetTable"]["%LMQ%one@%LMQ%g"] = 4000
    offsets.write_text(fastjson.dumps(table))
    return root


def _write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def everything(root: Path) -> dict[str, str | bytes]:
    """All entries of a store, but for its lock: links, directories, and what files hold."""
    found: dict[str, str | bytes] = {}
    for directory, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(directory, name)
            key = str(path.relative_to(root))
            if path.is_symlink():
                found[key] = f"link to {os.readlink(path)}"
            elif path.is_dir():
                found[key] = "directory"
            elif key != "lock":
                found[key] = path.read_bytes()
    return found


def without_backups(content: dict[str, str | bytes]) -> dict[str, str | bytes]:
    return {name: one for name, one in content.items() if not name.startswith("rmqctl-backup-")}


def steps_of(plan: Path) -> list[str]:
    """The actions of a plan in a file."""
    return [step["action"] for step in json.loads(plan.read_text())["steps"]]
