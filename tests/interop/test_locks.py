"""A store has one writer: its lock keeps rmqctl out while the engine writes, and the other way
round."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from tests import processes
from tests.golden_data import tree_content
from tests.interop.engine import Engine
from tests.interop.stores import Messages, assert_agree, conf_text, config_of, settings

PUT = ["put", "--topic", "TopicA", "--tags", "x", "--body", "hello"]
SET_OFFSET = ["group", "set-offset", "g", "--topic", "TopicA", "--to", "end", "--new", "--yes"]
WRITERS = [
    PUT,
    ["flush"],
    ["rebuild", "all", "--in-place", "--yes"],
    ["clean", "--yes"],
    SET_OFFSET,
]


def rmqctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return processes.run("rmqctl", *arguments)


#: What an engine writes from time to time also without puts: its checkpoint every second, and the
#: offsets of its delay levels every ten seconds (``flushDelayOffsetInterval``).
BY_THE_CLOCK = ("checkpoint", "config/delayOffset.json", "config/delayOffset.json.bak")


def content_that_stays(root: Path) -> dict[str, object]:
    """The content of all files that a running engine does not change without puts."""
    return {name: c for name, c in tree_content(root).items() if name not in BY_THE_CLOCK}


@pytest.mark.proves("lock")
def test_a_running_engine_keeps_writers_out_and_lets_readers_in(
    engine: Engine, chance: random.Random, tmp_path: Path
) -> None:
    values, root = settings(chance), tmp_path / "store"
    conf = tmp_path / "broker.conf"
    conf.write_text(conf_text(values), "utf-8")
    here = ["--store", str(root), "--broker-conf", str(conf)]
    store = engine.open(root, values)
    messages = Messages(chance, values, engine.version)
    store.put(messages.take(50))
    assert_agree(store, values)
    before = content_that_stays(root)
    for command in WRITERS:
        refused = rmqctl(*command, *here)
        assert refused.returncode == 4, refused.stderr
        assert re.search(r" is in use: process \d+ \(java\) holds ", refused.stderr)
    assert rmqctl("walk", "commitlog", *here).returncode == 0
    verified = rmqctl("verify", *here)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert_agree(store, values)
    assert content_that_stays(root) == before

    # None of these commands disturbed the engine or took its lock away.
    store.put(messages.take(10))
    assert rmqctl(*PUT, *here).returncode == 4
    store.shutdown()
    assert rmqctl(*PUT, *here).returncode == 0


def test_a_writer_of_rmqctl_keeps_the_engine_out(
    engine: Engine, chance: random.Random, tmp_path: Path
) -> None:
    values, root = settings(chance), tmp_path / "store"
    messages = Messages(chance, values, engine.version)
    with MessageStore(root, config_of(values), writable=True, create=True) as writer:
        writer.put_messages(messages.take(20))
        refused = engine.open(root, values)
        assert not refused.is_open
        assert "Lock failed" in refused.why
        writer.put_messages(messages.take(5))
    store = engine.open(root, values)
    assert store.is_open
    assert len(store.dump()["message"]) == 25
    store.shutdown()
