"""An index that lacks items: what a start of the engine makes up for is an info, the rest an error,
for nothing but a rebuild brings it back."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.operations.verify import Finding, verify
from tests.interop.engine import Engine, Row
from tests.interop.stores import TOPICS, V4, config_of, settings

BORN = 1_700_000_000_000


@pytest.fixture
def values(chance: random.Random) -> Row:
    return {**settings(chance, light_queues=False), "mappedFileSizeCommitLog": 4096}


@pytest.fixture
def root(values: Row, tmp_path: Path) -> Path:
    """A message a second, over some files of the log, stopped cleanly; its index is gone."""
    root = tmp_path / "store"
    clock = iter(range(BORN, BORN + 10**9, 1000))
    config = config_of(values)
    with MessageStore(root, config, writable=True, create=True, clock=lambda: next(clock)) as store:
        for number in range(120):
            message = MessageExtBrokerInner(
                TOPICS[0],
                b"x",
                properties={"KEYS": f"k{number}"},
                born_host=V4[0],
                store_host=V4[1],
            )
            assert store.put_message(message, flush=False).is_ok
    shutil.rmtree(root / "index")
    return root


def of_index(root: Path, values: Row) -> list[tuple[str, str]]:
    found = [row for row in verify(root, config_of(values)) if isinstance(row, Finding)]
    return [(row.code, row.severity) for row in found if row.structure == "index"]


def start(engine: Engine, root: Path, values: Row) -> None:
    store = engine.open(root, values)
    assert store.is_open
    store.settle()
    store.shutdown()


def test_after_a_clean_stop_no_start_indexes_anything(
    engine: Engine, root: Path, values: Row
) -> None:
    assert of_index(root, values) == [("index-missing", "error")]
    start(engine, root, values)
    assert of_index(root, values) == [("index-missing", "error")]


def test_after_a_crash_a_start_indexes_from_the_checkpoint_on(
    engine: Engine, root: Path, values: Row
) -> None:
    (root / "abort").touch()
    assert of_index(root, values) == [("index-missing", "error")]
    start(engine, root, values)
    assert of_index(root, values) == [("index-starts-late", "error")]


def test_after_a_crash_without_a_checkpoint_a_start_indexes_all(
    engine: Engine, root: Path, values: Row
) -> None:
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    assert of_index(root, values) == [("index-behind", "info")]
    start(engine, root, values)
    assert of_index(root, values) == []
