"""What is made of the log alone does not forget where a queue ended whose messages have expired."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.ends import QueueEnd, queue_end
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.engine.state.rocksdbqueues import LastUnit
from rmqctl.operations.mend import endedqueues
from rmqctl.operations.mend.endedqueues import ended_queues, write_last_units
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place, rebuild_to
from rmqctl.operations.verify import Finding, verify

CONFIG = parse_broker_conf(
    "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=400\n"
    "maxHashSlotNum=100\nmaxIndexNum=400\n"
)
ENDED = 23


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The log has lost its first files, and with them all messages of ``ended``, which are more
    than a queue file holds."""
    path = tmp_path / "store"
    with MessageStore(path, CONFIG, writable=True, create=True) as store:
        for _ in range(ENDED):
            store.put_message(MessageExtBrokerInner("ended", b"x"))
        end = store.max_offset
        for _ in range(40):
            store.put_message(MessageExtBrokerInner("goes-on", b"y" * 300))
    for file in (path / "commitlog").iterdir():
        if int(file.name) < end:
            file.unlink()
    return path


def put(root: Path, config: MessageStoreConfig = CONFIG) -> int:
    """The queue offset of the next message."""
    with MessageStore(root, config, writable=True) as store:
        result = store.put_message(MessageExtBrokerInner("ended", b"new"))
    assert result.append is not None
    return result.append.queue_offset


def errors(root: Path) -> list[str]:
    found = [one for one in verify(root, CONFIG) if isinstance(one, Finding)]
    return [one.code for one in found if one.severity != "info"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_rebuild_keeps_where_a_queue_ended(root: Path, tmp_path: Path, jobs: int) -> None:
    summary = rebuild_to(plan_rebuild(root, CONFIG, "all"), tmp_path / "new", jobs=jobs)
    assert summary.queues == 2
    assert {one.name for one in (tmp_path / "new" / "consumequeue").iterdir()} == {
        "ended",
        "goes-on",
    }
    for _ in range(2):
        rebuild_in_place(plan_rebuild(root, CONFIG, "all"), jobs=jobs)
        assert errors(root) == []
    assert put(root) == ENDED
    rebuild_in_place(plan_rebuild(root, CONFIG, "queues", "ended"), jobs=jobs)
    assert put(root) == ENDED + 1
    assert errors(root) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_queue_ends_between_plan_and_rebuild(root: Path, tmp_path: Path, jobs: int) -> None:
    """Beside a broker, whose retention removes the log file with its last message."""
    with MessageStore(root, CONFIG, writable=True) as store:
        store.put_message(MessageExtBrokerInner("ends-soon", b"x"))
        end = store.max_offset
        for _ in range(40):
            store.put_message(MessageExtBrokerInner("goes-on", b"y" * 300))
    plan = plan_rebuild(root, CONFIG, "all")
    for file in (root / "commitlog").iterdir():
        if int(file.name) < end:
            file.unlink()
    assert rebuild_to(plan, tmp_path / "new", jobs=jobs).queues == 3
    rebuild_in_place(plan, jobs=jobs)
    assert errors(root) == []
    assert put(root) == ENDED


def test_queues_that_were_built_are_not_opened(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be a hundred thousand of them."""
    opened: list[str] = []

    def noted(topic: str, *where: Any) -> QueueEnd | None:
        opened.append(topic)
        return queue_end(topic, *where)

    monkeypatch.setattr(endedqueues, "queue_end", noted)
    assert rebuild_to(plan_rebuild(root, CONFIG, "all"), tmp_path / "new").queues == 2
    assert opened == ["ended"]


def test_of_other_queues_nothing_is_said(root: Path, tmp_path: Path) -> None:
    summary = rebuild_to(plan_rebuild(root, CONFIG, "queues", "goes-on"), tmp_path / "new")
    assert summary.queues == 1
    assert not (tmp_path / "new" / "consumequeue" / "ended").exists()


def test_a_queue_whose_messages_the_log_should_have_is_not_kept(root: Path) -> None:
    """Nobody knows how it ended."""
    directory = root / "consumequeue" / "ended" / "0"
    last = max(directory.iterdir())
    for data in (
        (1 << 40).to_bytes(8, "big") + bytes(12),
        bytes(8) + b"\xff" * 4 + bytes(8),
        bytes(8) + b"\x7f" + b"\xff" * 3 + bytes(8),
    ):
        last.write_bytes(data.ljust(400, b"\0"))
        assert list(ended_queues(root, 400, 8192)) == []
    last.write_bytes(b"short")
    assert list(ended_queues(root, 400, 8192)) == []
    shutil.rmtree(directory)
    assert list(ended_queues(root, 400, 8192)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": "../up"},
        {"physical_offset": -1},
        {"queue_offset": -1},
        {"queue_offset": (1 << 63) // 20},
        {"queue_offset": 1 << 62},
    ],
)
def test_what_no_queue_can_be_is_not_made(tmp_path: Path, wrong: dict[str, object]) -> None:
    good = LastUnit("t", 0, 5, 100, None, None)
    bad = good._replace(**wrong)  # type: ignore[arg-type]
    assert write_last_units(tmp_path, [bad], 400) == 0
    assert list(tmp_path.rglob("*")) == []
    # A file of a length that no broker has is not filled with units.
    far = good._replace(queue_offset=10_000_000)
    assert write_last_units(tmp_path, [far], 20 * 20_000_000) == 0
    assert write_last_units(tmp_path, [good, replace_offset(good)], 400) == 1
    (file,) = (tmp_path / "consumequeue" / "t" / "0").iterdir()
    assert file.read_bytes()[100:120] == (100).to_bytes(8, "big") + bytes(3) + b"\1" + bytes(8)


def replace_offset(unit: LastUnit) -> LastUnit:
    """The same queue once more: what is there stays."""
    return unit._replace(queue_offset=unit.queue_offset + 1)


def test_an_extension_does_not_go_with_it(root: Path) -> None:
    """The address of a unit's extension would lead into another file."""
    directory = root / "consumequeue" / "ended" / "0"
    last = max(directory.iterdir())
    data = bytearray(last.read_bytes())
    position = (ENDED - 1) * 20 % 400
    data[position + 12 : position + 20] = (-(1 << 31) - 5).to_bytes(8, "big", signed=True)
    last.write_bytes(data)
    (unit,) = ended_queues(root, 400, 8192)
    assert unit.tags_code is None and unit.queue_offset == ENDED - 1
    config = replace(CONFIG, enable_consume_queue_ext=False)
    rebuild_in_place(plan_rebuild(root, config, "queues"))
    assert put(root, config) == ENDED
