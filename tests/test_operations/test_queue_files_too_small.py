"""Files of sizes with which a broker comes to no end. Through queue files of one unit the engine's
start goes for ever (``ConsumeQueue#truncateDirtyLogicFiles``): no store is made with them, and one
that has them is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqctl.engine.index.indexwriter import IndexFilesTooSmall
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.errors import QueueFilesTooSmall
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place, rebuild_to
from rmqctl.operations.verify import ERROR, Finding, configcheck, verify

LARGER = parse_broker_conf("mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=40\n")
#: Any size up to a unit is rounded up to one.
SMALL = parse_broker_conf("mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=7\n")


def put(root: Path, config: MessageStoreConfig) -> None:
    with MessageStore(root, config, writable=True, create=True) as store:
        for number in range(7):
            message = MessageExtBrokerInner("T", b"x", properties={"KEYS": f"k{number}"})
            assert store.put_message(message).is_ok


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with such files, as earlier versions made it."""
    with monkeypatch.context() as patched:
        patched.setattr("rmqctl.engine.messagestore.check_new_queue_files", lambda *_: None)
        put(tmp_path / "store", SMALL)
    assert {path.stat().st_size for path in (tmp_path / "store/consumequeue/T/0").iterdir()} == {20}
    return tmp_path / "store"


def codes(root: Path, config: MessageStoreConfig) -> set[tuple[str, str]]:
    found = [row for row in verify(root, config) if isinstance(row, Finding)]
    return {(row.code, row.severity) for row in found}


def config_check(root: Path, config: MessageStoreConfig) -> set[str]:
    with MessageStore(root, config) as store:
        return {row.code for row in configcheck.check(store, configcheck.Summary())}


@pytest.mark.parametrize("there", [False, True])
def test_no_store_is_made_with_them(tmp_path: Path, there: bool) -> None:
    root = tmp_path / "store"
    if there:
        root.mkdir()
    with pytest.raises(QueueFilesTooSmall, match="of 40 or more") as refused:
        MessageStore(root, SMALL, writable=True, create=True)
    assert refused.value.exit_code == 2
    assert root.exists() == there and not (there and any(root.iterdir()))
    put(root, LARGER)
    assert codes(root, LARGER) == set()


@pytest.mark.parametrize("said", [True, False])
def test_a_store_that_has_them_is_named_and_mended(small: Path, said: bool) -> None:
    config = SMALL if said else replace(MessageStoreConfig(), mapped_file_size_commit_log=4096)
    assert codes(small, config) == {("queue-files-too-small", ERROR)}
    assert "queue-files-too-small" in config_check(small, config)
    # It can still be written to, and is not rebuilt so.
    put(small, config)
    with pytest.raises(QueueFilesTooSmall, match="move consumequeue/ away"):
        plan_rebuild(small, config, "queues")
    plan_rebuild(small, config, "index")
    (small / "consumequeue").rename(small.parent / "aside")
    rebuild_in_place(plan_rebuild(small, LARGER, "queues"))
    assert codes(small, LARGER) == set()
    assert "queue-files-too-small" not in config_check(small, LARGER)
    with MessageStore(small, LARGER) as store:
        queue = store.consume_queue("T", 0)
        assert queue is not None and queue.max_offset == 14


def test_a_configuration_that_would_make_them_is_named(tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, LARGER)
    (root / "consumequeue").rename(tmp_path / "aside")
    assert ("queue-files-too-small", ERROR) in codes(root, SMALL)
    with pytest.raises(QueueFilesTooSmall):
        plan_rebuild(root, SMALL, "all")
    with pytest.raises(QueueFilesTooSmall):
        MessageStore(root, SMALL, writable=True)


def test_index_files_without_room_for_an_item_are_not_made(tmp_path: Path) -> None:
    """``IndexFile#putKey`` of a broker refuses every key, and ``IndexService#putKey`` makes the
    next file, again and again. What is there is read."""
    root, config = tmp_path / "store", replace(LARGER, max_index_num=1)
    for create in (True, False):
        with pytest.raises(IndexFilesTooSmall, match="maxIndexNum of 2 or more"):
            MessageStore(root, config, writable=True, create=create)
        put(root, LARGER)
    (root / "index").rename(tmp_path / "aside")
    with pytest.raises(IndexFilesTooSmall):
        rebuild_to(plan_rebuild(root, config, "index"), tmp_path / "rebuilt")
    assert not (tmp_path / "rebuilt").exists()
    with MessageStore(root, config) as store:
        assert store.get_message("T", 0, 0).max_offset == 14
