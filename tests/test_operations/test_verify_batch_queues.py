"""verify of batch queues: every field of a unit against its record, and the queue as a whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from struct import Struct

import pytest

from formats import layouts
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.paths import open_listed
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.errors import CannotRead
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place
from rmqctl.operations.verify import Finding, Summary, inparts, verify
from tests import golden_data

SAID = json.loads((golden_data.LATER / "batch-queues.json").read_text("utf-8"))
CONFIG = parse_broker_conf("".join(f"{name}={v}\n" for name, v in SAID["config"].items()))
TOPIC = "BatchTopic"
QUEUE = f"batchconsumequeue/{TOPIC}/0"
FIRST, SECOND, THIRD, LAST = (f"{QUEUE}/{n:020d}" for n in (0, 460, 920, 1380))
UNIT = Struct(layouts.BATCH_QUEUE_UNIT.format)
FIELDS = {field.name: field for field in layouts.BATCH_QUEUE_UNIT.fields}


@pytest.fixture
def root(golden_directory: Path, tmp_path: Path) -> Path:
    golden = golden_data.unpacked("batch-queues", golden_directory, golden_data.LATER)
    return golden_data.copy_tree(golden, tmp_path / "store")


def findings_of(
    root: Path, config: MessageStoreConfig = CONFIG, **named: object
) -> tuple[list[Finding], Summary]:
    *found, summary = verify(root, config, **named)  # type: ignore[arg-type]
    assert isinstance(summary, Summary)
    return [one for one in found if isinstance(one, Finding)], summary


def in_parts(root: Path) -> list[Finding]:
    """What the parts say that Spark gives to its tasks, of batch queues."""
    side = inparts.StoreSide(root, CONFIG, None)
    log = inparts.LogSide(side.snapshot, side.log)
    for entry in Scanner(side.log, check=True).scan():
        log.add(entry)
    found = [*side.before(), *side.join([log.finish()]), *side.together([])]
    side.log.close()
    return [one for one in found if one.topic == TOPIC or "batchconsume" in (one.path or "")]


def change(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def mended(root: Path) -> list[Finding]:
    """What is left behind a rebuild; the bytes of the queues are the engine's again."""
    rebuild_in_place(plan_rebuild(root, CONFIG, "queues"))
    return findings_of(root)[0]


def test_a_sound_store(root: Path) -> None:
    found, summary = findings_of(root)
    assert not found and summary.is_clean
    with MessageStore(root, CONFIG) as store:
        records = sum(isinstance(entry, Record) for entry in store.commit_log.walk())
    # Each record has one unit, in a queue of this kind or of the other one.
    assert (summary.queues, summary.units, summary.records) == (4, records, records)
    assert not in_parts(root)
    only, summary = findings_of(root, only=("index",))
    assert not only and summary.units == 0


@pytest.mark.parametrize("name", list(FIELDS))
@pytest.mark.parametrize("at", [0, 3, 9])
def test_a_flipped_bit_in_any_field(root: Path, name: str, at: int) -> None:
    """At the begin, in the middle and at the end of a file."""
    field, path = FIELDS[name], root / SECOND
    position = at * UNIT.size + field.offset + field.size - 1
    before = path.read_bytes()
    change(path, position, bytes([before[position] ^ 1]))
    (found,), summary = findings_of(root)
    unit = UNIT.unpack_from(before, at * UNIT.size)
    assert (found.code, found.path, found.position) == ("unit-mismatch", SECOND, at * UNIT.size)
    assert (found.physical_offset, found.queue_offset) == (unit[0], unit[4])
    assert found.queue == (TOPIC, 0) and found.expected != found.found
    assert summary.units == 66 and not summary.is_clean
    assert in_parts(root) == [found]
    assert not mended(root) and path.read_bytes() == before


def zero_one(root: Path) -> None:
    change(root / SECOND, 2 * UNIT.size, bytes(UNIT.size))


def zero_the_first(root: Path) -> None:
    change(root / FIRST, 0, bytes(UNIT.size))


def zero_the_last(root: Path) -> None:
    change(root / LAST, 9 * UNIT.size, bytes(UNIT.size))


def zero_some(root: Path) -> None:
    change(root / FIRST, 7 * UNIT.size, bytes(3 * UNIT.size))
    change(root / SECOND, 0, bytes(2 * UNIT.size))


def cut_one_out(root: Path) -> None:
    """Units move up, within their file."""
    content = (root / SECOND).read_bytes()
    size = UNIT.size
    (root / SECOND).write_bytes(content[: 4 * size] + content[5 * size :] + bytes(size))


def put_one_in(root: Path) -> None:
    """A unit twice; the file loses its last one."""
    content, size = (root / SECOND).read_bytes(), UNIT.size
    (root / SECOND).write_bytes(content[: 4 * size] + content[3 * size : -size])


def put_a_hole_in(root: Path) -> None:
    content, size = (root / LAST).read_bytes(), UNIT.size
    (root / LAST).write_bytes(content[: 4 * size] + bytes(size) + content[4 * size : -size])


def of_the_other_queue(root: Path) -> None:
    other = (root / f"batchconsumequeue/{TOPIC}/1/{0:020d}").read_bytes()
    content, size = (root / SECOND).read_bytes(), UNIT.size
    (root / SECOND).write_bytes(content[: 4 * size] + other[:size] + content[4 * size : -size])


def truncate(root: Path) -> None:
    content = (root / SECOND).read_bytes()
    (root / SECOND).write_bytes(content[: 5 * UNIT.size + 7])


def remove_a_file(root: Path) -> None:
    (root / SECOND).unlink()


def remove_a_queue(root: Path) -> None:
    shutil.rmtree(root / QUEUE)


def garbage(root: Path) -> None:
    (root / SECOND).write_bytes(b"\x7f\x01" * 230)


def a_file_more(root: Path) -> None:
    unit = UNIT.pack(16384 + 9000, 100, 0, 1_700_000_000_000, 60, 3, -1, 0)
    (root / QUEUE / f"{1840:020d}").write_bytes(unit + bytes(460 - UNIT.size))


def a_foreign_file(root: Path) -> None:
    (root / QUEUE / "notes").write_bytes(b"x")


#: Code, file (of queue 0), position, queue offset of each finding.
CASES: dict[Callable[[Path], None], list[tuple[str, str, int | None, int | None]]] = {
    zero_one: [("record-without-unit", SECOND, 92, 18)],
    zero_the_first: [("record-without-unit", FIRST, 0, 0)],
    # Behind the newest unit of the other queues: it does not wait for dispatch.
    zero_the_last: [("record-without-unit", LAST, 414, 55)],
    zero_some: [("record-without-unit", FIRST, 322, 13)],
    cut_one_out: [("record-without-unit", SECOND, 184, 24), ("unit-hole", SECOND, 414, None)],
    put_one_in: [("unit-misplaced", SECOND, 184, 23), ("record-without-unit", THIRD, 0, 32)],
    put_a_hole_in: [("unit-hole", LAST, 184, None), ("record-without-unit", QUEUE, None, 55)],
    of_the_other_queue: [
        ("unit-of-other-queue", SECOND, 184, 0),
        ("record-without-unit", THIRD, 0, 32),
    ],
    truncate: [
        ("file-length-mismatch", SECOND, 0, None),
        ("record-without-unit", THIRD, 0, 25),
    ],
    remove_a_file: [("record-without-unit", THIRD, 0, 16)],
    remove_a_queue: [("queue-missing", QUEUE, None, None)],
    garbage: [("unit-mismatch", SECOND, 0, 16)],
    a_file_more: [("unit-points-past-log-end", f"{QUEUE}/{1840:020d}", 0, 60)],
    a_foreign_file: [("foreign-file", f"{QUEUE}/notes", None, None)],
}


@pytest.mark.parametrize("damage", CASES, ids=lambda damage: damage.__name__)
def test_damage(root: Path, damage: Callable[[Path], None]) -> None:
    whole = golden_data.tree_content(root / QUEUE)
    damage(root)
    damaged = golden_data.tree_content(root)
    found, summary = findings_of(root)
    assert [(one.code, one.path, one.position, one.queue_offset) for one in found] == CASES[damage]
    assert all(one.queue == (TOPIC, 0) for one in found) and not summary.is_clean
    assert in_parts(root) == found
    assert golden_data.tree_content(root) == damaged
    assert not mended(root)
    assert golden_data.tree_content(root / QUEUE) == whole


def test_in_stretches(root: Path) -> None:
    """A stretch tells of its own units, and the sum of all is what one pass tells."""
    zero_one(root)
    zero_the_last(root)
    whole, at, told, units = findings_of(root), 0, [], 0
    while True:
        found, summary = findings_of(root, resume_from=at or None, is_over=lambda: True)
        told += found
        units += summary.units
        if summary.next_offset is None:
            break
        at = summary.next_offset
    assert sorted(told) == sorted(whole[0]) and units == whole[1].units


def test_what_a_retention_leaves(root: Path) -> None:
    """Units of the log's lost first file are passed over."""
    (root / f"commitlog/{0:020d}").unlink()
    found, summary = findings_of(root)
    assert [one.code for one in found] == ["log-starts-late"]
    assert summary.units == 2
    assert not in_parts(root)


def test_damage_in_the_log(root: Path) -> None:
    """The units of records that cannot be read say so; no queue offsets are missed."""
    change(root / f"commitlog/{0:020d}", 3149, bytes(60))
    found, _ = findings_of(root)
    of_queue = [(one.code, one.queue_offset) for one in found if one.topic == TOPIC]
    assert of_queue == [("unit-points-into-damage", 17)]
    rebuild_in_place(plan_rebuild(root, CONFIG, "queues"))
    found, _ = findings_of(root)
    assert [one.code for one in found if one.topic == TOPIC] == []


def test_a_crash(root: Path) -> None:
    """Records that are not dispatched yet, and a unit that was torn: the next start mends both."""
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    content = (root / LAST).read_bytes()
    torn = content[: 8 * UNIT.size + 20]
    (root / LAST).write_bytes(torn + bytes(460 - len(torn)))
    found, _ = findings_of(root)
    assert [one.code for one in found] == [
        "unclean-shutdown",
        "dispatch-behind",
        "checkpoint-missing",
    ]
    assert found[1].found == "2 records" and found[1].physical_offset == 15553
    # Of a store that was closed cleanly they are damage.
    (root / "abort").unlink()
    codes = [one.code for one in findings_of(root)[0]]
    assert codes == ["unit-mismatch", "record-without-unit", "checkpoint-missing"]


def test_a_topic_that_was_made_anew(root: Path) -> None:
    """The log has its older messages too."""
    content = (root / SECOND).read_bytes()
    shutil.rmtree(root / QUEUE)
    (root / QUEUE).mkdir()
    with MessageStore(root, CONFIG) as store:
        again = store.commit_log.record_at(UNIT.unpack_from(content)[0])
    assert again.queue_offset == 16
    # A queue whose numbers begin anew at its 17th record, which says so.
    path = root / f"commitlog/{0:020d}"
    change(path, again.physical_offset + 20, bytes(8))
    unit = list(UNIT.unpack_from(content))
    unit[4] = 0
    (root / QUEUE / f"{0:020d}").write_bytes(UNIT.pack(*unit) + bytes(460 - UNIT.size))
    found, _ = findings_of(root)
    (first, *rest) = [one for one in found if one.topic == TOPIC]
    assert (first.code, first.queue_offset) == ("queue-begun-again", 0)
    assert first.expected == "units of 10 records"
    assert [one.code for one in rest] == ["record-without-unit"]


def test_queue_offsets_that_are_left_out_or_repeated(root: Path) -> None:
    """Records and units agree, and yet the numbers are not dense."""
    for name, wanted in ((30, "queue-offsets-skipped"), (2, "queue-offset-repeated")):
        log, queue = root / f"commitlog/{0:020d}", root / SECOND
        before = log.read_bytes(), queue.read_bytes()
        offset = UNIT.unpack_from(before[1])[0]
        change(log, offset + 20, name.to_bytes(8, "big"))
        change(queue, FIELDS["base_offset"].offset, name.to_bytes(8, "big"))
        found = [one for one in findings_of(root)[0] if one.topic == TOPIC]
        assert [one.code for one in found if one.code == wanted]
        assert (found[0].queue_offset, found[0].expected, found[0].found) == (
            name, "16", str(name),
        )  # fmt: skip
        log.write_bytes(before[0])
        queue.write_bytes(before[1])


def test_without_a_configuration(root: Path) -> None:
    """The files say their size."""
    unsaid = replace(CONFIG, explicit=CONFIG.explicit - {"mapper_file_size_batch_consume_queue"})
    other = replace(unsaid, mapper_file_size_batch_consume_queue=13_800_000)
    assert not findings_of(root, other)[0]


def test_a_queue_that_the_disk_does_not_read_is_told_and_not_said_to_be_missing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = root / LAST

    def opened(path: Path, file_from_offset: int = 0) -> MappedFile:
        if path == refused:
            raise CannotRead(path=str(path), reason="Input/output error")
        return MappedFile(path, open_listed(path), file_from_offset, False)

    monkeypatch.setattr(MappedFile, "open", opened)
    found = [one for one in findings_of(root)[0] if one.severity == "error"]
    assert [(one.code, one.path) for one in found] == [("unreadable-file", LAST)]
