"""repair: plans that change nothing, are done whole, and are taken back to the byte."""

from __future__ import annotations

import errno
import functools
import itertools
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from formats.layouts import RECORD_QUEUE_ID
from rmqctl.engine.files import durable
from rmqctl.engine.files.lock import StoreLock
from rmqctl.engine.files.unfinished import is_amid_repair
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import UNIT_SIZE
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.errors import (
    CannotWrite,
    FileLengthContradiction,
    RmqctlError,
    StoreInUse,
    StoreReadOnly,
    SymbolicLinkRefused,
)
from rmqctl.operations.backup.create import Wanted, create
from rmqctl.operations.backup.restore import plan_restore, restore
from rmqctl.operations.doctor.corrupt import corrupt
from rmqctl.operations.doctor.faults import KINDS, NothingToDamage
from rmqctl.operations.repair import model, movable
from rmqctl.operations.repair.apply import apply, check_plan, resume, undo
from rmqctl.operations.repair.errors import (
    NoRepair,
    PlanDoesNotFit,
    PlanUnreadable,
    RepairCutOff,
    RepairOvertaken,
)
from rmqctl.operations.repair.journal import backup_name
from rmqctl.operations.repair.model import Plan
from rmqctl.operations.repair.plan import make_plan
from rmqctl.operations.repair.planfile import plan_text, read_plan, write_new
from rmqctl.operations.verify import INFO, Finding, verify
from rmqctl.operations.verify.findings import MULTI_DOUBTED, RECORD_DOUBTED
from tests.conftest import Golden
from tests.golden_data import (
    DAMAGE_CASES,
    apply_damage,
    broker_conf,
    copy_tree,
    damage_case,
    state,
    tree_content,
)
from tests.seeds import times
from tests.test_operations.broken_store import (
    ACTIONS,
    break_store,
    everything,
    make_sound_store,
    without_backups,
)
from tests.test_operations.small_store import CONFIG, fill_light_queue, findings_of
from tests.test_safety.test_disk_full import Disk


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sound_store(tmp_path_factory.mktemp("repair") / "sound")


@pytest.fixture
def broken(sound: Path, tmp_path: Path) -> Path:
    return break_store(Path(shutil.copytree(sound, tmp_path / "store")))


def planned(root: Path, tmp_path: Path) -> Plan:
    """The plan for a store, by way of its file."""
    path = tmp_path / "plan.json"
    path.write_text(plan_text(make_plan(root, CONFIG)))
    return read_plan(path)


def codes_of(root: Path, base: str) -> set[str]:
    found = verify(root, broker_conf(base))
    return {f.code for f in found if isinstance(f, Finding) and f.severity != INFO}


# --- damage cases ----------------------------------------------------------------------------

#: What each case's plan does; the others leave all to salvage, or to nobody.
PLANS = {
    "checkpoint-future": [model.SET_CHECKPOINT],
    "checkpoint-missing": [model.SET_CHECKPOINT],
    "cq-tail-lost": [model.REBUILD_QUEUE],
    "cq-wrong-unit": [model.REBUILD_QUEUE],
    "index-bad-slot": [model.REBUILD_INDEX],
    "no-consumequeue": [model.REBUILD_QUEUES],
    "no-consumequeue-no-index": [model.REBUILD_QUEUES, model.REBUILD_INDEX],
    "no-index": [model.REBUILD_INDEX],
    "no-one-queue": [model.REBUILD_QUEUE],
    "short-last-file": [
        *(model.EXTEND_FILE, model.CUT_TAIL),
        *[model.REBUILD_QUEUE] * 16,
        *(model.REBUILD_INDEX, model.SET_CHECKPOINT),
    ],
    "stale-record-after-end": [model.CUT_TAIL],
    "stray-file": [model.QUARANTINE],
    "torn-tail": [model.REBUILD_QUEUE, model.REBUILD_INDEX, model.SET_CHECKPOINT],
}


@pytest.mark.parametrize("case", DAMAGE_CASES)
def test_a_damaged_store_is_planned_repaired_and_undone(
    golden: Golden, case: str, tmp_path: Path
) -> None:
    damage = damage_case(case)
    config = broker_conf(damage["base"])
    root = copy_tree(golden(damage["base"]), tmp_path / "store")
    apply_damage(root, damage["ops"])
    before, content = state(root), tree_content(root)
    plan = make_plan(root, config)
    assert state(root) == before, "a plan changes nothing"
    assert [step.action for step in plan.steps] == PLANS.get(case, [])
    codes = codes_of(root, damage["base"])
    mended = {code for step in plan.steps for code in step.mends}
    left = {one.found.code for one in plan.left}
    assert codes <= mended | left
    if not plan.steps:
        return
    done = apply(root, config, plan)
    after = codes_of(root, damage["base"])
    assert after == codes - mended
    of_log = {model.QUARANTINE, model.EXTEND_FILE, model.CUT_TAIL}
    if not {step.action for step in plan.steps} & of_log:
        log = {name: one for name, one in tree_content(root).items() if "commitlog/" in name[:11]}
        assert log == {name: one for name, one in content.items() if "commitlog/" in name[:11]}
    assert done.backup is not None and done.backup.is_dir()
    assert undo(root, config).state == "undone"
    assert {name: one for name, one in tree_content(root).items() if name != "lock"} == {
        name: one for name, one in content.items() if name != "lock"
    }


# --- everything at once ----------------------------------------------------------------------


def test_everything_is_mended_at_once_and_nothing_else_is_touched(
    sound: Path, broken: Path, tmp_path: Path
) -> None:
    before = everything(broken)
    plan = planned(broken, tmp_path)
    assert [step.action for step in plan.steps] == ACTIONS
    assert everything(broken) == before
    done = apply(broken, CONFIG, plan)
    assert findings_of(broken)[0] == []
    assert make_plan(broken, CONFIG).steps == ()
    after = everything(broken)
    # The index files are named by the time of their making.
    for name, one in everything(sound).items():
        if not name.startswith(("index/", "checkpoint", "config/")):
            assert after[name] == one, name
    assert done.backup is not None
    kept = everything(done.backup / "old")
    assert kept["1/commitlog/notes.txt"] == b"foreign" and kept["11/checkpoint"] == b"short"
    undo(broken, CONFIG)
    assert everything(broken) == before
    with pytest.raises(NoRepair):
        undo(broken, CONFIG)
    with pytest.raises(NoRepair):
        resume(broken, CONFIG)


@pytest.mark.parametrize("offset", [123, 1 << 40 | 7])
def test_a_file_that_fits_no_size_is_none_of_the_log(
    sound: Path, tmp_path: Path, offset: int
) -> None:
    """Its name is a number, its length is that of none: nothing else is judged by it."""
    root = Path(shutil.copytree(sound, tmp_path / "store"))
    before = everything(root)
    (root / f"commitlog/{offset:020d}").write_bytes(b"a stranger")
    with MessageStore(root, CONFIG) as store, MessageStore(sound, CONFIG) as other:
        assert store.max_offset == other.max_offset
        assert store.obstacle == other.obstacle
    with pytest.raises(FileLengthContradiction):
        put_one(root)
    codes = {one.code for one in verify(root, CONFIG) if isinstance(one, Finding)}
    assert codes == {"foreign-file"}
    plan = planned(root, tmp_path)
    assert [step.action for step in plan.steps] == [model.QUARANTINE] and not plan.left
    apply(root, CONFIG, plan)
    assert without_backups(everything(root)) == before
    put_one(root)


def test_steps_may_be_left_out(broken: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan_text(make_plan(broken, CONFIG)))
    value = json.loads(path.read_text())
    value["steps"] = [one for one in value["steps"] if one["action"] == model.QUARANTINE]
    path.write_text(json.dumps(value))
    before = everything(broken)
    apply(broken, CONFIG, read_plan(path))
    after = without_backups(everything(broken))
    gone = {"commitlog/notes.txt", "consumequeue/TopicA/x", "consumequeue/TopicA/x/y"}
    assert after == {name: one for name, one in before.items() if name not in gone}


@pytest.mark.parametrize("number", range(12))
def test_random_faults(sound: Path, chance: random.Random, tmp_path: Path, number: int) -> None:
    """What a plan says that it mends is mended, nothing else is found then, and all of it can be
    taken back."""
    kinds, root = [chance.choice(list(KINDS)) for _ in range(chance.randint(1, 3))], tmp_path / "s"
    try:
        corrupt(sound, CONFIG, root, kinds, chance.randrange(1 << 30))
    except (NothingToDamage, CannotWrite):
        return  # One fault has taken what the next one is about.
    before = everything(root)
    found = {one.code for one in findings_of(root)[0] if one.severity != INFO}
    plan = planned(root, tmp_path)
    mended = {code for step in plan.steps for code in step.mends}
    left = {one.found.code for one in make_plan(root, CONFIG).left}
    assert found <= mended | left and everything(root) == before
    if plan.steps:
        apply(root, CONFIG, plan)
        after = {one.code for one in findings_of(root)[0] if one.severity != INFO}
        # A last record with another body may be an append that was cut off; with a unit it is not.
        assert after - {"body-crc-mismatch"} <= left & found, kinds
        assert "body-crc-mismatch" not in after or {"torn-tail", "body-crc-mismatch"} & left, kinds
        undo(root, CONFIG)
        assert everything(root) == before


def in_place_of(name: str) -> Callable[[Path], None]:
    """A file stands where a directory must."""

    def breaks(root: Path) -> None:
        if (root / name).exists():
            shutil.rmtree(root / name)
        (root / name).write_text("no directory")

    return breaks


def empty_last_file(root: Path) -> None:
    last = max((root / "commitlog").iterdir())
    (root / "commitlog" / f"{int(last.name) + last.stat().st_size:020d}").touch()


def cut_behind_the_end(root: Path) -> None:
    """Only zeros are gone."""
    with MessageStore(root, CONFIG) as store:
        mapped, position = store.commit_log.locate(store.max_offset)
    os.truncate(mapped.path, position)


def empty_queue_file(root: Path) -> None:
    os.truncate(max((root / "consumequeue/TopicA/0").iterdir()), 0)


def strangers_in_what_goes(root: Path) -> None:
    """In a queue and an index that are made anew, and beside them."""
    empty_queue_file(root)
    (root / "consumequeue/TopicA/0/notes.txt").touch()
    (root / "consumequeue/TopicA/1/notes.txt").touch()
    (root / "index/notes").touch()
    (root / "index" / ("1" * 20)).touch()
    with min(root.glob("index/2*")).open("r+b") as index:
        index.seek(44)
        index.write(b"\x00\x00\x00\x11")


def strangers_beside_all_queues(root: Path) -> None:
    """Nothing else is below ``consumequeue/``: all queues are made anew."""
    shutil.rmtree(root / "consumequeue")
    (root / "consumequeue/Other").mkdir(parents=True)
    (root / "consumequeue/Other/notes.txt").touch()


def number_among_index_files(root: Path) -> None:
    """Of as many digits as no index file has."""
    index = min((root / "index").iterdir())
    shutil.copyfile(index, root / "index" / ("1" * 20))


def link_of_a_stranger(root: Path) -> None:
    (root / "commitlog/link").symlink_to("/nowhere")


def checkpoint_of_other_length(root: Path) -> None:
    (root / "checkpoint").write_bytes((root / "checkpoint").read_bytes() + bytes(10))


def lost_config(root: Path) -> None:
    (root / "config/topics.json").unlink()


SINGLE: list[tuple[Callable[[Path], None], str]] = [
    (in_place_of("index"), model.REBUILD_INDEX),
    (in_place_of("consumequeue"), model.REBUILD_QUEUES),
    (in_place_of("consumequeue/TopicA"), model.QUARANTINE),
    (empty_last_file, model.QUARANTINE),
    (cut_behind_the_end, model.EXTEND_FILE),
    (empty_queue_file, model.REBUILD_QUEUE),
    (strangers_in_what_goes, model.QUARANTINE),
    (strangers_beside_all_queues, model.REBUILD_QUEUES),
    (link_of_a_stranger, model.QUARANTINE),
    (number_among_index_files, model.QUARANTINE),
    (checkpoint_of_other_length, model.SET_CHECKPOINT),
    (lost_config, model.RESTORE_CONFIG),
]


@pytest.mark.parametrize(("breaks", "action"), SINGLE)
def test_other_things_that_may_be_wrong(
    sound: Path, tmp_path: Path, breaks: Callable[[Path], None], action: str
) -> None:
    root = Path(shutil.copytree(sound, tmp_path / "store"))
    breaks(root)
    before = everything(root)
    plan = planned(root, tmp_path)
    assert action in [step.action for step in plan.steps]
    apply(root, CONFIG, plan)
    assert findings_of(root)[0] == []
    assert make_plan(root, CONFIG).steps == ()
    # What is checked before something is taken back are the journal's fingerprints.
    undo(root, CONFIG)
    assert everything(root) == before


def test_messages_that_went_with_the_end_of_the_log(sound: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(sound, tmp_path / "store"))
    with MessageStore(root, CONFIG) as store:
        mapped, position = store.commit_log.locate(store.max_offset)
    os.truncate(mapped.path, position // 2)
    before = everything(root)
    plan = planned(root, tmp_path)
    actions = [step.action for step in plan.steps]
    assert actions[:2] == [model.EXTEND_FILE, model.CUT_TAIL] and model.REBUILD_QUEUE in actions
    assert "bring that back instead" in plan.steps[0].sacrifices
    assert "a message whose end is gone" in plan.steps[1].changes
    apply(root, CONFIG, plan)
    assert findings_of(root)[0] == []
    undo(root, CONFIG)
    assert everything(root) == before


def test_the_beginning_of_a_message_never_passes_for_a_whole_one(
    sound: Path, tmp_path: Path
) -> None:
    """With zeros for its properties it would: the step that takes it away cannot be left out."""
    root = Path(shutil.copytree(sound, tmp_path / "store"))
    with MessageStore(root, CONFIG) as store:
        *_, last = (one for one in store.commit_log.walk() if isinstance(one, Record))
        mapped, position = store.commit_log.locate(last.physical_offset)
        path, end = mapped.path, position + last.total_size
    os.truncate(path, end - 1)
    plan = make_plan(root, CONFIG)
    first, second, *_ = plan.steps
    assert (first.action, second.action) == (model.EXTEND_FILE, model.CUT_TAIL)
    assert first.needs == (second.number,)
    apply(root, CONFIG, plan)
    assert findings_of(root)[0] == []
    with MessageStore(root, CONFIG) as store:
        assert store.max_offset == last.physical_offset


def test_a_stranger_in_the_extension_is_moved_away(golden: Golden, tmp_path: Path) -> None:
    root, config = copy_tree(golden("cqext"), tmp_path / "store"), broker_conf("cqext")
    queue = min((root / "consumequeue_ext").glob("*/*"))
    (queue / "notes.txt").touch()
    plan = make_plan(root, config)
    assert [step.action for step in plan.steps] == [model.QUARANTINE]
    apply(root, config, plan)
    assert not (queue / "notes.txt").exists() and make_plan(root, config).steps == ()


def test_a_record_whose_queue_has_changed_is_for_salvage(sound: Path, tmp_path: Path) -> None:
    """Its unit says where it was: a queue made anew would lack the message."""
    root = Path(shutil.copytree(sound, tmp_path / "store"))
    with MessageStore(root, CONFIG) as store:
        records = [one for one in store.commit_log.walk() if isinstance(one, Record)]
        record = next(one for one in records if one.topic == "TopicA" and one.queue_offset == 2)
        mapped, position = store.commit_log.locate(record.physical_offset)
    with mapped.path.open("r+b") as log:
        log.seek(position + RECORD_QUEUE_ID.offset)
        log.write(b"\x00\x00\x00\x77")
    plan = make_plan(root, CONFIG)
    assert plan.steps == ()
    left = {one.found.code: one for one in plan.left}
    assert left["unit-of-other-queue"].found.advice == RECORD_DOUBTED
    assert "`rmqctl salvage`" in left["queue-missing"].why


def test_a_light_queue_whose_record_has_changed_is_left_alone(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill_light_queue(root)
    log = min((root / "commitlog").iterdir())
    log.write_bytes(log.read_bytes().replace(b"QUEUE_OFFSET\0014", b"QUEUE_OFFSET\0016"))
    plan = make_plan(root, CONFIG)
    assert plan.steps == () and {one.found.advice for one in plan.left} == {MULTI_DOUBTED}
    # Neither is it made anew for another unit.
    queue = min((root / "consumequeue/%LMQ%one/0").iterdir())
    units = bytearray(queue.read_bytes())
    units[2 * UNIT_SIZE - 5] ^= 1
    queue.write_bytes(units)
    plan = make_plan(root, CONFIG)
    assert plan.steps == ()
    left = {one.found.code: one.why for one in plan.left}
    assert "lack messages" in left["unit-mismatch"]


def test_what_a_plan_leaves_is_only_there_to_be_read(sound: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(sound, tmp_path / "store"))
    (root / "commitlog/notes.txt").touch()
    value = json.loads(plan_text(make_plan(root, CONFIG)))
    value["left"] = [{"why": "a\0b \ud800"}]
    (tmp_path / "plan.json").write_text(json.dumps(value))
    plan = read_plan(tmp_path / "plan.json")
    assert [step.action for step in plan.steps] == [model.QUARANTINE]
    apply(root, CONFIG, plan)


@pytest.mark.parametrize("change", ["grown", "stored", "cut"])
def test_a_file_that_changed_after_it_got_its_length_is_left_alone(
    sound: Path, tmp_path: Path, change: str
) -> None:
    root = Path(shutil.copytree(sound, tmp_path / "store"))
    cut_behind_the_end(root)
    last = max((root / "commitlog").iterdir())
    size = last.stat().st_size
    apply(root, CONFIG, planned(root, tmp_path))
    whole = last.stat().st_size
    if change == "stored":
        with last.open("r+b") as file:
            file.seek(whole - 1)
            file.write(b"x")
    else:
        os.truncate(last, whole + 1 if change == "grown" else size + 1)
    before = everything(root)
    with pytest.raises(RmqctlError):
        undo(root, CONFIG)
    assert everything(root) == before


def test_no_file_is_extended_whose_length_is_in_doubt(sound: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(sound, tmp_path / "store"))
    cut_behind_the_end(root)
    last = max((root / "commitlog").iterdir())
    path = tmp_path / "plan.json"
    path.write_text(plan_text(make_plan(root, CONFIG)))
    os.truncate(last, last.stat().st_size + 1)
    before = everything(root)
    with pytest.raises(PlanDoesNotFit):
        apply(root, CONFIG, read_plan(path))
    assert everything(root) == before
    last.rename(tmp_path / "elsewhere")
    last.symlink_to(tmp_path / "elsewhere")
    assert model.EXTEND_FILE not in [step.action for step in make_plan(root, CONFIG).steps]


@pytest.mark.parametrize("has_queues", [True, False])
def test_an_only_file_of_the_log_that_is_empty_stays_where_queues_are(
    sound: Path, tmp_path: Path, has_queues: bool
) -> None:
    """4.9.3 does not start on it; without it, it would, and destroy all queues."""
    root = Path(shutil.copytree(sound, tmp_path / "store"))
    first, *others = sorted((root / "commitlog").iterdir())
    os.truncate(first, 0)
    for path in others:
        path.unlink()
    if not has_queues:
        shutil.rmtree(root / "consumequeue")
    plan = make_plan(root, CONFIG)
    actions = {step.action for step in plan.steps}
    assert (model.QUARANTINE in actions) != has_queues
    if has_queues:
        assert not actions & {model.REBUILD_INDEX, model.REBUILD_QUEUE, model.SET_CHECKPOINT}
        (left,) = [one for one in plan.left if one.found.code == "file-length-mismatch"]
        assert "from a replica or a backup" in left.why


def test_what_is_built_belongs_to_whom_the_store_does(broken: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    for path in (broken, *broken.rglob("*")):
        os.chown(path, 1234, 1234)
    (broken / "config/topics.json").chmod(0o600)
    apply(broken, CONFIG, planned(broken, tmp_path))
    others = [
        path
        for path in broken.rglob("*")
        if path.lstat().st_uid != 1234 and "rmqctl-backup" not in str(path) and path.name != "lock"
    ]
    assert others == []
    assert (broken / "config/topics.json").stat().st_mode & 0o777 == 0o600


def test_a_last_record_whose_body_has_changed_is_not_cut_off(sound: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(sound, tmp_path / "store"))
    with MessageStore(root, CONFIG) as store:
        *_, record = (one for one in store.commit_log.walk() if isinstance(one, Record))
        mapped, _ = store.commit_log.locate(record.physical_offset)
        path = mapped.path
    with path.open("r+b") as log:
        log.seek(record.body_position)
        log.write(b"changed"[: record.body_length])
    shutil.rmtree(root / "consumequeue")
    plan = make_plan(root, CONFIG)
    assert model.CUT_TAIL not in [step.action for step in plan.steps]
    (why,) = (one.why for one in plan.left if one.found.code == "torn-tail")
    assert "A record with a whole header stands there" in why


def test_a_queue_that_nothing_tells_the_numbers_of_is_kept(sound: Path, tmp_path: Path) -> None:
    """Its messages are gone with the log's first files; made anew it would begin at 0 again."""
    root = Path(shutil.copytree(sound, tmp_path / "store"))
    directory = root / "consumequeue/Gone/0"
    shutil.copytree(root / "consumequeue/TopicA/0", directory)
    for path in directory.iterdir():
        data = bytearray(path.read_bytes())
        for at in range(0, len(data), 20):
            if any(data[at : at + 20]):
                data[at : at + 8] = (1 << 40).to_bytes(8, "big")
        path.write_bytes(data)
    plan = make_plan(root, CONFIG)
    assert [step.what for step in plan.steps if step.action == model.REBUILD_QUEUE] == []
    (why,) = {one.why for one in plan.left if one.found.code == "unit-points-past-log-end"}
    assert "would begin at offset 0 again" in why


def test_a_copy_of_a_queue_under_another_name_is_no_step(sound: Path, tmp_path: Path) -> None:
    """Its units lead to messages, and none of them is of this queue: such a step is refused by
    ``--apply``, and with it the whole plan."""
    root = Path(shutil.copytree(sound, tmp_path / "store"))
    shutil.copytree(root / "consumequeue/TopicA/0", root / "consumequeue/Gone/0")
    plan = make_plan(root, CONFIG)
    assert not plan.steps
    (why,) = (one.why for one in plan.left if one.found.code == "unit-of-other-queue")
    assert "would begin at offset 0 again" in why


def test_a_log_that_is_damaged_keeps_its_queues(broken: Path) -> None:
    log = min(path for path in (broken / "commitlog").iterdir() if path.name.isdigit())
    with log.open("r+b") as file:
        file.seek(4)
        file.write(b"\xff\xff")
    plan = make_plan(broken, CONFIG)
    assert {step.action for step in plan.steps} == {model.QUARANTINE, model.RESTORE_CONFIG}
    why = {one.found.code: one.why for one in plan.left}
    for code in ("queue-missing", "torn-tail", "checkpoint-unreadable"):
        assert "`rmqctl salvage`" in why[code]
    assert "lost its end" in why["consumer-offset-past-queue"]


# --- plans that do not fit -------------------------------------------------------------------


def put_one(root: Path) -> None:
    with MessageStore(root, CONFIG, writable=True) as store:
        assert store.put_message(MessageExtBrokerInner("TopicA", b"", properties={"a": "b"})).is_ok


def test_a_put_between_plan_and_apply_is_noticed(sound: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(sound, tmp_path / "store"))
    (root / "commitlog/notes.txt").write_text("foreign")
    plan = planned(root, tmp_path)
    (root / "commitlog/notes.txt").rename(tmp_path / "notes")
    put_one(root)
    (tmp_path / "notes").rename(root / "commitlog/notes.txt")
    before = everything(root)
    with pytest.raises(PlanDoesNotFit, match="its log ends at"):
        apply(root, CONFIG, plan)
    assert everything(root) == before


TOUCHED = [
    ("config/topics.json", "config/topics.json is not what it was"),
    ("consumequeue/TopicA/0/00000000000000000000", "consumequeue/TopicA/0 is not"),
    ("commitlog/notes.txt", "commitlog/notes.txt is not"),
    ("checkpoint", "checkpoint is not"),
]


@pytest.mark.parametrize(("name", "said"), TOUCHED)
def test_what_a_step_touches_must_be_what_it_was(
    broken: Path, tmp_path: Path, name: str, said: str
) -> None:
    plan = planned(broken, tmp_path)
    path = broken / name
    status = path.stat()
    path.write_bytes(b"\x01" + path.read_bytes()[1:])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    before = everything(broken)
    with pytest.raises(PlanDoesNotFit, match=said):
        apply(broken, CONFIG, plan)
    assert everything(broken) == before


def test_other_stores_sizes_and_aborts_are_noticed(
    sound: Path, broken: Path, tmp_path: Path
) -> None:
    plan = planned(broken, tmp_path)
    with pytest.raises(PlanDoesNotFit, match=f"it was made for {re.escape(str(broken))}"):
        check_plan(sound, CONFIG, plan)
    with pytest.raises(PlanDoesNotFit, match="max_index_num was 24, and is 25"):
        check_plan(broken, replace(CONFIG, max_index_num=25), plan)
    (broken / "abort").touch()
    with pytest.raises(PlanDoesNotFit, match="abort came or went"):
        check_plan(broken, CONFIG, plan)
    (broken / "abort").unlink()
    check_plan(broken, CONFIG, plan)
    copied = Path(shutil.copytree(broken, tmp_path / "copied"))
    check_plan(copied, CONFIG, plan)  # To rehearse on.


def test_a_store_in_use_is_left_alone(broken: Path, tmp_path: Path) -> None:
    plan = planned(broken, tmp_path)
    lock = StoreLock(broken)
    try:
        before = everything(broken)
        with pytest.raises(StoreInUse):
            apply(broken, CONFIG, plan)
        assert everything(broken) == before
    finally:
        lock.release()


# --- hostile plans ---------------------------------------------------------------------------


def _first(value: dict[str, Any]) -> dict[str, Any]:
    step: dict[str, Any] = value["steps"][0]
    return step


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "not as it was made": lambda v: _first(v).update(path="commitlog/00000000000000000000"),
    "step 3 is not as": lambda v: v["steps"][2].update(changes="Nothing at all."),
    "no path below": lambda v: _first(v).update(path="../../etc/passwd"),
    "'/etc/passwd' is no path below": lambda v: _first(v).update(path="/etc/passwd"),
    "the path is not in": lambda v: _first(v).update(path="checkpoint"),
    "unknown action 'delete'": lambda v: _first(v).update(action="delete"),
    "unknown field 'also'": lambda v: _first(v).update(also=1),
    "the plan has the unknown field 'more'": lambda v: v.update(more=1),
    "two steps have one number": lambda v: v["steps"].append(v["steps"][0]),
    "needs step": lambda v: v["steps"].pop(4),
    "of version 2": lambda v: v.update(version=2),
    "of version null": lambda v: v.pop("version"),
    "does not say that it is one": lambda v: v.pop("format"),
    "steps is missing": lambda v: v.update(steps={}),
    "a step is no object": lambda v: v["steps"].append(7),
    "premises is missing": lambda v: v.pop("premises"),
    "the topic cannot be a directory": lambda v: v["steps"][4].update(topic="../x"),
    "queue_id is -1": lambda v: v["steps"][4].update(queue_id=-1),
    "queue_id is missing": lambda v: v["steps"][4].update(queue_id=True),
    "sha256 is missing": lambda v: v["premises"]["log"].pop("sha256"),
    "text that no name can be": lambda v: v.update(store="\ud800"),
    "text that no name": lambda v: v["steps"][4].update(topic="a\0b"),
    "mends holds something else": lambda v: _first(v).update(mends=[1]),
    "needs holds something else": lambda v: _first(v).update(needs=["1"]),
}


@pytest.mark.parametrize("said", EDITS)
def test_a_changed_plan_is_refused(broken: Path, tmp_path: Path, said: str) -> None:
    path = tmp_path / "plan.json"
    value = json.loads(plan_text(make_plan(broken, CONFIG)))
    EDITS[said](value)
    path.write_text(json.dumps(value))
    with pytest.raises(PlanUnreadable, match=said):
        read_plan(path)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "[" * 10_000, '{"a":1,"a":2}', "1" * 5000, "\udcff", '{"format":1}'],
)
def test_no_plan_is_an_error_of_ours(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(PlanUnreadable):
        read_plan(path)
    with pytest.raises(RmqctlError):
        read_plan(tmp_path / "none")
    with pytest.raises(RmqctlError):
        read_plan(tmp_path)


VALUES: list[Any] = [None, -1, 1 << 63, True, "", "..", "/", "a/../b", "\0", "\ud800", "x" * 5000]
VALUES += [[], {}, ["a"], {"a": 1}, 1.5, "commitlog", "commitlog/00000000000000000000", "config"]
VALUES += ["checkpoint", "consumequeue/TopicA/0", "config/topics.json", "lock"]


def places_in(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Keys that lead to everything in a value of JSON."""
    if place:
        yield place
    keys = range(len(value)) if isinstance(value, list) else value
    for key in keys if isinstance(value, dict | list) else ():
        yield from places_in(value[key], (*place, key))


def with_anything_in_it(text: str, chance: random.Random) -> str:
    value = json.loads(text)
    *way, last = chance.choice(list(places_in(value)))
    functools.reduce(lambda inner, key: inner[key], way, value)[last] = chance.choice(VALUES)
    return json.dumps(value)


def test_a_journal_with_anything_in_it_loses_nothing(
    broken: Path, tmp_path: Path, chance: random.Random
) -> None:
    """Neither of what stands in the store nor of what was replaced."""
    before = everything(broken)
    done = apply(broken, CONFIG, planned(broken, tmp_path))
    assert done.backup is not None
    journal, after = done.backup / "journal.json", everything(broken)
    text, name = journal.read_text(), str(journal.relative_to(broken))
    for number in range(times(40)):
        root = Path(shutil.copytree(broken, tmp_path / f"{number}"))
        (root / name).write_text(with_anything_in_it(text, chance))
        try:
            undo(root, CONFIG)
        except RmqctlError as error:
            assert not isinstance(error, RepairCutOff)
            assert everything(root) | {name: text.encode()} == after
        else:
            assert set(before.values()) <= set(everything(root).values())
        shutil.rmtree(root)


def test_a_plan_with_anything_in_it_loses_nothing(
    broken: Path, tmp_path: Path, chance: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By who forges digests, too: it is refused, or what it does can be taken back."""
    sound_plan = plan_text(make_plan(broken, CONFIG))
    digests = {step["step"]: step["digest"] for step in json.loads(sound_plan)["steps"]}
    monkeypatch.setattr(Plan, "digest", lambda _, step: digests.get(step.number))
    before, path = everything(broken), tmp_path / "plan.json"
    for _ in range(times(60)):
        path.write_text(with_anything_in_it(sound_plan, chance))
        try:
            if apply(broken, CONFIG, read_plan(path)).backup is not None:
                undo(broken, CONFIG)
        except RmqctlError as error:
            assert not isinstance(error, RepairCutOff)
        assert everything(broken) == before, path.read_text()


# --- a full disk -----------------------------------------------------------------------------


def test_every_allocation_may_fail(sound: Path, tmp_path: Path) -> None:
    """Before the journal is there nothing is changed; later it is ended, or taken back."""
    kinds = set()
    for at in range(1, 400, 4):
        root = break_store(Path(shutil.copytree(sound, tmp_path / f"{at}")))
        plan = make_plan(root, CONFIG)
        before = everything(root)
        with pytest.MonkeyPatch.context() as patched:
            Disk(patched, at, errno.ENOSPC)
            try:
                apply(root, CONFIG, plan)
                break
            except CannotWrite:
                kinds.add("nothing")
                assert everything(root) == before
            except RepairCutOff:
                kinds.add("cut off")
        if (root / "rmqctl-repair").exists():
            if at % 8 == 1:
                undo(root, CONFIG)
                assert everything(root) == before
            else:
                resume(root, CONFIG)
                assert findings_of(root)[0] == []
        shutil.rmtree(root)
    else:
        raise AssertionError("the run never ends")
    assert "nothing" in kinds


def test_a_disk_that_fails_between_the_moves(sound: Path, tmp_path: Path) -> None:
    rename = os.rename
    for at in range(100):
        root = break_store(Path(shutil.copytree(sound, tmp_path / f"{at}")))
        plan, before = make_plan(root, CONFIG), everything(root)
        calls = 0

        def fails(*names: Any, root: Path = root, at: int = at, **more: Any) -> None:
            nonlocal calls
            calls += is_amid_repair(root)
            if calls > at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(names[0]))
            rename(*names, **more)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(os, "rename", fails)
            try:
                apply(root, CONFIG, plan)
                break
            except RepairCutOff as error:
                assert "No space left" in str(error) and "`rmqctl repair --resume`" in str(error)
        if at % 2:
            undo(root, CONFIG)
            assert everything(root) == before
        else:
            resume(root, CONFIG)
            assert findings_of(root)[0] == []
    assert 10 < at < 100


def test_a_repair_that_was_taken_back_is_not_done_again(sound: Path, tmp_path: Path) -> None:
    """Whatever the disk does to the files that are left of it."""
    unlink = os.unlink
    for at in range(100):
        root = break_store(Path(shutil.copytree(sound, tmp_path / f"{at}")))
        before = everything(root)
        apply(root, CONFIG, make_plan(root, CONFIG))
        calls = 0

        def fails(path: Any, *names: Any, at: int = at, **more: Any) -> None:
            nonlocal calls
            calls += 1
            if calls > at:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            unlink(path, *names, **more)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(os, "unlink", fails)
            try:
                undo(root, CONFIG)
            except RepairCutOff:
                pass
            else:
                after = everything(root)
                left = [name for name in after if name.startswith("rmqctl-")]
                assert {name: after[name] for name in after if name not in left} == before
                with pytest.raises(NoRepair):
                    resume(root, CONFIG)
                if not left:
                    break
                continue
        resume(root, CONFIG)
        assert findings_of(root)[0] == []
    else:
        raise AssertionError("the run never ends")


def test_what_is_taken_back_comes_back_in_pieces(
    broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is nearly full stores less than it was given, and says so by a number alone."""
    before = everything(broken)
    apply(broken, CONFIG, planned(broken, tmp_path))
    pwrite = os.pwrite

    def some(descriptor: int, data: Any, position: int) -> int:
        return pwrite(descriptor, bytes(data)[: -(-len(data) // 2)], position)

    monkeypatch.setattr(os, "pwrite", some)
    undo(broken, CONFIG)
    assert everything(broken) == before


def test_what_cannot_be_moved_is_told_before_anything_is(
    broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, before = planned(broken, tmp_path), everything(broken)
    mounts = tmp_path / "mountinfo"
    for name in ("index", "config", "consumequeue/主题"):
        place = os.fsencode((broken / name).resolve()).replace(b" ", rb"\040")
        mounts.write_bytes(
            b"36 35 98:0 / / rw - x x rw\n37 36 98:0 /s " + place + b" rw - x x rw\n"
        )
        monkeypatch.setattr(movable, "_MOUNTS", mounts)
        for work in (check_plan, apply):
            with pytest.raises(CannotWrite, match=f"{name}.*mounted there"):
                work(broken, CONFIG, plan)
    mounts.write_bytes(b"37 36 98:0 /s " + os.fsencode(broken.resolve()) + b" rw - x x rw\n")
    access = os.access
    for name in ("index", "config", "consumequeue/主题", "commitlog"):
        monkeypatch.setattr(
            os, "access", lambda p, m, n=name: Path(p) != broken / n and access(p, m)
        )
        with pytest.raises(StoreReadOnly, match=name):
            apply(broken, CONFIG, plan)
    assert everything(broken) == before
    monkeypatch.setattr(os, "access", access)
    check_plan(broken, CONFIG, plan)
    (broken / "config").rename(tmp_path / "config")
    (broken / "config").symlink_to(tmp_path / "config")
    with pytest.raises(SymbolicLinkRefused, match="config"):
        check_plan(broken, CONFIG, plan)


def test_a_restored_store_is_repaired_on(broken: Path, tmp_path: Path) -> None:
    """A backup has a repair along that was cut off, or done: it is ended, or taken back."""
    plan, before = planned(broken, tmp_path), everything(broken)
    (broken / "commitlog/notes.txt").chmod(0o640)
    rename = os.rename

    def fails(*names: Any, **more: Any) -> None:
        if str(names[0]).endswith("rmqctl-repair/new/checkpoint"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(names[0]))
        rename(*names, **more)

    def copied(name: str) -> Path:
        create(Wanted(broken, CONFIG, str(tmp_path / f"{name}.tar.zst")))
        new = tmp_path / name
        restore(plan_restore([str(tmp_path / f"{name}.tar.zst")], new))
        return new

    with pytest.MonkeyPatch.context() as patched, pytest.raises(RepairCutOff):
        patched.setattr(os, "rename", fails)
        apply(broken, CONFIG, plan)
    resumed, undone = copied("resumed"), copied("undone")
    assert is_amid_repair(resumed)
    resume(resumed, CONFIG)
    assert findings_of(resumed)[0] == []
    undo(undone, CONFIG)
    assert everything(undone) == before
    resume(broken, CONFIG)
    done = copied("done")
    undo(done, CONFIG)
    assert everything(done) == before


def test_a_link_in_what_was_kept_is_not_followed(broken: Path, tmp_path: Path) -> None:
    done = apply(broken, CONFIG, planned(broken, tmp_path))
    assert done.backup is not None
    kept = done.backup / "old/11"
    kept.rename(tmp_path / "elsewhere")
    kept.symlink_to(tmp_path / "elsewhere")
    before = everything(broken)
    with pytest.raises(SymbolicLinkRefused):
        undo(broken, CONFIG)
    assert everything(broken) == before
    assert (tmp_path / "elsewhere/checkpoint").read_bytes() == b"short"


def test_what_was_moved_outlives_its_journal(
    broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wants to write to a store amid a repair may take the journal away."""
    plan, rename = planned(broken, tmp_path), os.rename

    def fails(*names: Any, **more: Any) -> None:
        if str(names[0]).endswith("rmqctl-repair/new/checkpoint"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(names[0]))
        rename(*names, **more)

    with monkeypatch.context() as patched, pytest.raises(RepairCutOff):
        patched.setattr(os, "rename", fails)
        apply(broken, CONFIG, plan)
    kept = everything(broken / "rmqctl-repair/old")
    (broken / "rmqctl-repair/journal.json").unlink()
    apply(broken, CONFIG, planned(broken, tmp_path))
    (first, _) = sorted(broken.glob("rmqctl-backup-*"))
    assert everything(first / "old") == kept and kept["11/checkpoint"] == b"short"
    undo(broken, CONFIG)
    assert everything(first / "old") == kept


def test_the_last_repair_is_the_last_whatever_the_clock_says(tmp_path: Path) -> None:
    now = datetime(2026, 3, 4, 5, 6, 7, 8)
    assert backup_name(tmp_path, now) == "rmqctl-backup-20260304050607000008"
    for name in ("20270101000000000000", "20260101000000000000", "of-mine"):
        (tmp_path / f"rmqctl-backup-{name}").mkdir()
    assert backup_name(tmp_path, now) == "rmqctl-backup-20270101000000000001"
    (tmp_path / ("rmqctl-backup-" + "9" * 20)).mkdir()
    assert backup_name(tmp_path, now) == "rmqctl-backup-20260304050607000008"


def test_what_lies_beside_a_plan_stays(broken: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.json.tmp").write_text("mine")
    write_new(tmp_path / "plan.json", "{}")
    assert (tmp_path / "plan.json.tmp").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.glob("plan*")) == ["plan.json", "plan.json.tmp"]


# --- somebody wrote to it --------------------------------------------------------------------


def test_who_has_written_since_is_told(broken: Path, tmp_path: Path) -> None:
    apply(broken, CONFIG, planned(broken, tmp_path))
    put_one(broken)
    before = everything(broken)
    with pytest.raises(RepairOvertaken, match="cannot be undone"):
        undo(broken, CONFIG)
    assert everything(broken) == before


def test_a_log_that_lies_elsewhere_is_asked_for(broken: Path, tmp_path: Path) -> None:
    apply(broken, CONFIG, planned(broken, tmp_path))
    (broken / "commitlog").rename(tmp_path / "log")
    with pytest.raises(RepairOvertaken, match="no file of its log is there"):
        undo(broken, CONFIG)


def test_a_backup_that_was_changed_is_told(broken: Path, tmp_path: Path) -> None:
    done = apply(broken, CONFIG, planned(broken, tmp_path))
    assert done.backup is not None
    (done.backup / "old/11/checkpoint").write_bytes(b"other")
    with pytest.raises(RepairOvertaken, match="what it has kept of checkpoint"):
        undo(broken, CONFIG)


@pytest.mark.parametrize("size", [1, 100])
def test_a_kept_tail_of_another_length_is_told(broken: Path, tmp_path: Path, size: int) -> None:
    """Taken back, it would leave zeros where bytes of the log were."""
    done = apply(broken, CONFIG, planned(broken, tmp_path))
    assert done.backup is not None
    (kept,) = (done.backup / "old").rglob("*.from-*")
    os.truncate(kept, size)
    before = everything(broken)
    with pytest.raises(RepairOvertaken, match="what it has kept of commitlog"):
        undo(broken, CONFIG)
    assert everything(broken) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"commitlog/notes.txt"', '"../../notes.txt"'),
        ('"version": 1', '"version": 2'),
        ('"moves"', '"more"'),
        ('"backup": "rmqctl-backup-', '"backup": "../'),
        ('"path": "', '"path": "\\ud800'),
        ('"end_offset": ', '"end_offset": -'),
    ],
)
def test_a_journal_of_others_is_refused(broken: Path, tmp_path: Path, old: str, new: str) -> None:
    done = apply(broken, CONFIG, planned(broken, tmp_path))
    assert done.backup is not None
    journal = done.backup / "journal.json"
    text = journal.read_text()
    assert old in text
    journal.write_text(text.replace(old, new))
    before = everything(broken)
    with pytest.raises(RepairOvertaken, match="its journal"):
        undo(broken, CONFIG)
    assert everything(broken) == before


def test_a_journal_that_was_cut_off_is_told_in_our_words(broken: Path, tmp_path: Path) -> None:
    done = apply(broken, CONFIG, planned(broken, tmp_path))
    assert done.backup is not None
    journal = done.backup / "journal.json"
    whole = journal.read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 2):
        journal.write_bytes(whole[:length])
        with pytest.raises(RepairOvertaken, match="undone: its journal was cut off, or changed"):
            undo(broken, CONFIG)


def test_an_error_says_truly_whether_there_is_a_repair_to_be_ended(
    broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails at each name that is forced to it, once: what is advised then can be done."""
    plan = make_plan(broken, CONFIG)
    before, done = everything(broken), copy_tree(broken, tmp_path / "done")
    apply(done, CONFIG, plan)
    sync, left = durable.sync_directory, 0

    def failing(directory: Path | str) -> None:
        nonlocal left
        left -= 1
        if left == -1:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(directory))
        sync(directory)

    monkeypatch.setattr(durable, "sync_directory", failing)
    root, has_ended = tmp_path / "tried", []
    for is_undo, number in itertools.product((False, True), range(100)):
        if is_undo in has_ended:
            continue
        copy_tree(done if is_undo else broken, root)
        work: Callable[..., Any] = undo if is_undo else functools.partial(apply, plan=plan)
        left = number
        try:
            work(root, CONFIG)
        except RepairCutOff:
            assert is_amid_repair(root)
            work, is_undone = resume, False
        except CannotWrite:
            assert not is_amid_repair(root)
            is_undone = is_undo
        else:
            has_ended.append(is_undo)
            is_undone = is_undo
        if is_undo not in has_ended:
            work(root, CONFIG)
        assert everything(root) == before if is_undone else findings_of(root)[0] == []
        shutil.rmtree(root)
    assert has_ended == [False, True]
