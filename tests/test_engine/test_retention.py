"""Retention: when a broker deletes, what it takes, and what follows."""

from __future__ import annotations

import os
import struct
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from formats import constants
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.services import retention
from rmqctl.engine.services.deletewhen import Disks, judge
from rmqctl.engine.services.retention import EXPIRED, FORCED, Removal
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.errors import BrokerConfError, SymbolicLinkRefused
from tests import golden_data
from tests.test_safety.support import Clock, broker_conf, message, small_config

CONFIG = small_config(log=4096, queue=200, slots=20, items=60)
HOUR = 3_600_000
#: A local time, in ms: four o'clock, when a broker cleans.
FOUR = int(datetime(2024, 5, 1, 4, 30).timestamp()) * 1000
NOON = FOUR + 8 * HOUR


def store_of(root: Path, old: int, messages: int = 300) -> Path:
    """Log files, 17 of 300 messages; the first ``old`` are 100 hours old at four o'clock."""
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        results = store.put_messages([message(number) for number in range(messages)], flush=False)
        assert all(result.is_ok for result in results)
    age(root, old)
    return root


def age(root: Path, old: int) -> None:
    for number, path in enumerate(sorted((root / "commitlog").iterdir())):
        modified = (FOUR - (100 if number < old else 1) * HOUR) * 1_000_000
        os.utime(path, ns=(modified, modified))


def log_part(root: Path, at: int, **rule: Any) -> tuple[retention.Retention, list[Removal]]:
    conf = rule.pop("conf", "")
    config = parse_broker_conf(broker_conf(CONFIG) + conf)
    rule.setdefault("percent", 10)
    with MessageStore(root, config) as store:
        found = retention.plan(store, at, **rule)
    return found, [r for r in found.removals if r.structure == "commitlog"]


class Space(NamedTuple):
    f_blocks: int
    f_bfree: int
    f_bavail: int
    f_frsize: int = 4096


@pytest.mark.parametrize(
    ("percent", "conf", "space_full", "at_once", "refuses"),
    [
        (75, "", False, False, False),
        (76, "", True, False, False),
        (85, "", True, False, False),
        (86, "", True, True, False),
        (90, "", True, True, False),
        (91, "", True, True, True),
        (91, "cleanFileForciblyEnable=false", True, False, True),
        (86, "diskMaxUsedSpaceRatio=99", False, True, False),
        (96, "diskMaxUsedSpaceRatio=99", True, True, True),
        (10, "diskMaxUsedSpaceRatio=1", False, False, False),
        (11, "diskMaxUsedSpaceRatio=1", True, False, False),
    ],
)
def test_how_full_the_disks_are(
    tmp_path: Path, percent: int, conf: str, space_full: bool, at_once: bool, refuses: bool
) -> None:
    disks = Disks([tmp_path], tmp_path / "absent", percent)
    assert disks.log_percent == disks.queue_percent == percent
    verdict = judge(parse_broker_conf(conf), NOON, disks)
    assert verdict == (False, space_full, False, at_once, refuses)
    assert verdict.deletes == space_full


def test_used_space_is_rounded_up_as_the_broker_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 750 of 1000 that are not the superuser's: 75 %; one block more: 76 %.
    for free, percent in ((350, 75), (349, 76)):
        space = Space(1100, free, free - 100)
        monkeypatch.setattr(os, "statvfs", lambda path, space=space: space)
        assert Disks([tmp_path], tmp_path).log_percent == percent


def test_of_several_log_directories_the_emptiest_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = {"a": 90, "b": 60}
    monkeypatch.setattr(
        os, "statvfs", lambda path: Space(100, 100 - used[path.name], 100 - used[path.name])
    )
    real = Path.stat
    devices = {"a": 1, "b": 2}

    def stat(self: Path, **options: Any) -> Any:
        status = list(real(self, **options))
        status[2] = devices[self.name]
        return os.stat_result(status)

    for name in used:
        (tmp_path / name).mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", lambda self: True)
        patch.setattr(Path, "stat", stat)
        disks = Disks([tmp_path / "a", tmp_path / "b"], tmp_path / "a")
    assert (disks.log_percent, disks.queue_percent) == (60, 90)
    # The queues' disk is judged by itself.
    assert judge(MessageStoreConfig(), NOON, disks).clean_at_once


@pytest.mark.parametrize(
    ("when", "at", "is_time"),
    [
        ("04", FOUR, True),
        ("04", NOON, False),
        ("4;12", NOON, True),
        ("00;23", FOUR, False),
        ("04;", FOUR, True),
    ],
)
def test_the_hours(tmp_path: Path, when: str, at: int, is_time: bool) -> None:
    config = parse_broker_conf(f"deleteWhen={when}")
    assert judge(config, at, Disks([tmp_path], tmp_path, 10)).time_up == is_time


@pytest.mark.parametrize("when", ["", "four", "04,05", ";", "4;;5", "-4"])
def test_hours_that_are_none(tmp_path: Path, when: str) -> None:
    with pytest.raises(BrokerConfError, match="deleteWhen"):
        judge(parse_broker_conf(f"deleteWhen={when}"), FOUR, Disks([tmp_path], tmp_path, 10))


def test_what_expires(tmp_path: Path) -> None:
    root = store_of(tmp_path / "store", 13)
    names = sorted(path.name for path in (root / "commitlog").iterdir())
    assert len(names) == 17

    def taken(at: int, **rule: Any) -> list[str]:
        removals = log_part(root, at, **rule)[1]
        assert {r.reason for r in removals} <= {EXPIRED}
        return [r.path.name for r in removals]

    assert taken(FOUR) == names[:13]
    assert taken(FOUR, rounds=1) == names[:10]
    assert taken(NOON) == []
    assert taken(NOON, manual=True) == names[:13]
    assert taken(NOON, percent=76) == names[:13]
    assert taken(FOUR, conf="fileReservedTime=100") == names[:13]
    assert taken(FOUR, conf="fileReservedTime=101") == []
    # Everything has expired, and the last file stays.
    assert taken(FOUR, conf="fileReservedTime=0") == names[:16]
    # A young file in front keeps the older ones behind it: the log gets no gap.
    os.utime(root / "commitlog" / names[2], ns=(FOUR * 10**6,) * 2)
    assert taken(FOUR) == names[:2]


def test_a_full_disk_takes_files_of_any_age_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = store_of(tmp_path / "store", 3)
    blocks = [path.stat().st_blocks // 8 for path in sorted((root / "commitlog").iterdir())]
    found, removals = log_part(root, NOON, percent=86)
    assert len(removals) == 16 and found.verdict.clean_at_once
    assert [r.reason for r in removals] == [EXPIRED] * 3 + [FORCED] * 13
    # Of a disk of so many blocks one round of ten frees enough: 95 % becomes less than 86 %.
    size = sum(blocks[:10]) * 10
    monkeypatch.setattr(os, "statvfs", lambda path: Space(size, size // 20, size // 20))
    assert len(log_part(root, NOON, percent=None)[1]) == 10
    # Half as much is not enough; what has expired is gone by then, so a third round would be none.
    monkeypatch.setattr(os, "statvfs", lambda path: Space(3 * size, 3 * size // 20, 3 * size // 20))
    assert len(log_part(root, NOON, percent=None)[1]) == 16
    assert len(log_part(root, NOON, percent=None, conf="cleanFileForciblyEnable=false")[1]) == 3


def test_a_file_made_ahead_is_not_the_last_one(tmp_path: Path) -> None:
    root = store_of(tmp_path / "store", 17)
    ahead = root / "commitlog" / f"{17 * 4096:020d}"
    ahead.write_bytes(bytes(4096))
    os.utime(ahead, ns=(0, 0))
    assert len(log_part(root, FOUR)[1]) == 16


def test_queues_and_index_follow_by_the_bytes(tmp_path: Path) -> None:
    """The same rule spelt over raw bytes: a file goes when its last unit's offset is below."""
    root = store_of(tmp_path / "store", 13)
    found = log_part(root, FOUR)[0]
    assert found.new_min_offset == 13 * 4096
    expected = []
    for queue in sorted(root.glob("consumequeue/*/*")):
        files = sorted(queue.iterdir())
        for path in files[:-1]:
            (last,) = struct.unpack_from(">q", path.read_bytes(), 180)
            if last >= found.new_min_offset:
                break
            expected.append(path)
    for path in sorted((root / "index").iterdir())[:-1]:
        (end,) = struct.unpack_from(">q", path.read_bytes(), 24)
        if end < found.new_min_offset:
            expected.append(path)
    assert len(expected) > 10
    assert [r.path for r in found.removals if r.structure != "commitlog"] == expected
    for (topic, queue_id), queue_range in found.queues.items():
        path = root / "consumequeue" / topic / str(queue_id)
        data = b"".join(file.read_bytes() for file in sorted(path.iterdir()))
        offsets = [unit[0] for unit in struct.iter_unpack(">qiq", data) if unit[1]]
        first = sum(offset < found.new_min_offset for offset in offsets)
        assert queue_range == (0, first, len(offsets))


def test_a_damaged_unit_keeps_its_file(tmp_path: Path) -> None:
    """The engine takes zeros at a file's end for an old message, and deletes what stands there."""
    root = store_of(tmp_path / "store", 13)
    path = root / "consumequeue/topic0/0" / f"{200:020d}"
    with path.open("r+b") as file:
        file.seek(180)
        file.write(bytes(20))
    gone = [r.path for r in log_part(root, FOUR)[0].removals if r.path.parent == path.parent]
    assert [p.name for p in gone] == [f"{0:020d}"]


def test_extension_files_follow_their_queue(copy_store: Any) -> None:
    root, config = copy_store("cqext"), golden_data.broker_conf("cqext")
    age(root, 3)
    with MessageStore(root, config) as store:
        found = retention.plan(store, FOUR, percent=10)
        assert found.new_min_offset == 3 * 65536
        ext = [r for r in found.removals if r.structure == "consumequeue_ext"]
        for (topic, queue_id), bounds in found.queues.items():
            queue = store.consume_queue(topic, queue_id)
            assert queue is not None and queue.ext is not None
            gone = {r.path for r in ext}
            kept = [e for e in queue.ext.files.entries if e.path not in gone]
            if bounds.new_min_offset < bounds.max_offset:
                unit = queue.unit(bounds.new_min_offset)
                assert unit is not None
                address = unit.tags_code + 2**63
                assert kept[0].file_from_offset <= address < kept[0].file_from_offset + 2 * 4096


def test_records_that_are_in_no_queue_are_told(tmp_path: Path) -> None:
    root = store_of(tmp_path / "store", 13)
    with MessageStore(root, CONFIG) as store:
        assert retention.undispatched_before(store, 13 * 4096) is None
        assert retention.undispatched_before(store, store.max_offset) is None
    for path in root.glob("consumequeue/*/*/*"):
        if path.name != f"{0:020d}":
            path.unlink()
    with MessageStore(root, CONFIG) as store:
        offset = retention.undispatched_before(store, 13 * 4096)
        assert offset is not None and offset == store.dispatched_to


def test_links_are_not_followed(tmp_path: Path) -> None:
    root = store_of(tmp_path / "store", 2)
    first = sorted((root / "commitlog").iterdir())[0]
    elsewhere = tmp_path / "elsewhere"
    first.rename(elsewhere)
    first.symlink_to(elsewhere)
    os.utime(elsewhere, ns=(0, 0))
    os.utime(first, ns=(0, 0), follow_symlinks=False)
    removals = log_part(root, FOUR)[1]
    with pytest.raises(SymbolicLinkRefused):
        retention.remove(removals, lambda removal: None)
    assert elsewhere.exists() and first.is_symlink()


def test_an_operators_request_lasts_for_twenty_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``executeDeleteFilesManually``; with the default round of ten files that is 200."""
    root = store_of(tmp_path / "store", 25, messages=420)
    assert len(list((root / "commitlog").iterdir())) >= 24
    monkeypatch.setattr(retention, "DELETE_FILES_BATCH_MAX", 1)
    assert len(log_part(root, NOON, manual=True)[1]) == 20


def test_an_index_file_goes_when_it_ends_before_the_log(tmp_path: Path) -> None:
    """``IndexService#deleteExpiredFile``: one whose last record is the log's first stays."""
    root = store_of(tmp_path / "store", 13)
    for end, expected in ((13 * 4096, 0), (13 * 4096 - 1, 1)):
        first = sorted((root / "index").iterdir())[0]
        with first.open("r+b") as file:
            file.seek(24)
            file.write(struct.pack(">q", end))
        gone = [r.path for r in log_part(root, FOUR)[0].removals if r.structure == "index"]
        assert gone[:1] == [first] * expected


def test_records_that_belong_to_no_queue_wait_for_none(tmp_path: Path) -> None:
    """A log of prepared messages alone could never be cleaned else."""
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        for number in range(60):
            prepared = message(number)
            prepared.sys_flag = constants.TRANSACTION_PREPARED_TYPE
            assert store.put_message(prepared, flush=False).is_ok
    with MessageStore(root, CONFIG) as store:
        assert len(store.commit_log.files.entries) > 2
        assert retention.undispatched_before(store, 2 * 4096) is None
    with MessageStore(root, CONFIG, writable=True, clock=Clock()) as store:
        assert store.put_message(message(60), flush=False).is_ok
        end = store.max_offset
    for path in sorted(root.glob("consumequeue/*/*/*")):
        path.unlink()
    with MessageStore(root, CONFIG) as store:
        offset = retention.undispatched_before(store, end)
        assert offset is not None
        assert store.look_message_by_offset(offset).queue_offset == 0
        assert store.look_message_by_offset(offset).sys_flag == 0
