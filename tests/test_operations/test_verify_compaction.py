"""verify of compacted topics: units, records, keys, each kind of damage, and bytes of anybody."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct

import pytest

from formats import layouts
from rmqctl.engine.files.filequeue import FileEntry
from rmqctl.engine.queue.compactedqueue import CompactedQueue
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from rmqctl.operations.verify import Finding, Summary, verify
from rmqctl.operations.verify.compaction import check_compaction
from rmqctl.operations.verify.compactioncodes import COMPACTION_CODES
from tests import golden_data

SAID = json.loads((golden_data.LATER / "compaction.json").read_text("utf-8"))
CONFIG = parse_broker_conf("".join(f"{name}={v}\n" for name, v in SAID["config"].items()))
TOPIC = "CompactTopic"
LOG, UNITS = (f"compaction/{name}/{TOPIC}/0" for name in ("compactionLog", "compactionCq"))
#: Names of queue 0's files: two that were compacted, two that will be, and the last one.
COMPACTED, REST, FULL, _, LAST = (f"{n:020d}" for n in (0, 2300, 13800, 16100, 18400))
POSITION = "compaction/position-checkpoint"
UNIT = Struct(layouts.BATCH_QUEUE_UNIT.format)
FIELDS = {field.name: field for field in layouts.BATCH_QUEUE_UNIT.fields}
SIZE = UNIT.size


@pytest.fixture
def root(golden_directory: Path, tmp_path: Path) -> Path:
    golden = golden_data.unpacked("compaction", golden_directory, golden_data.LATER)
    return golden_data.copy_tree(golden, tmp_path / "store")


def change(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def flip(path: Path, position: int) -> None:
    change(path, position, bytes([path.read_bytes()[position] ^ 1]))


def units(root: Path, name: str) -> list[tuple[int, ...]]:
    return [one for one in UNIT.iter_unpack((root / UNITS / name).read_bytes()) if one[1] > 0]


def findings_of(root: Path) -> list[Finding]:
    return list(check_compaction(root, CONFIG))


def verified(root: Path) -> tuple[list[Finding], Summary]:
    *found, summary = verify(root, CONFIG)
    assert isinstance(summary, Summary)
    return [one for one in found if isinstance(one, Finding)], summary


def test_a_sound_store(root: Path) -> None:
    before = golden_data.tree_content(root)
    found, summary = verified(root)
    assert not found and summary.is_clean
    assert golden_data.tree_content(root) == before
    # It was compacted: queue offsets are left out, and a key is there once.
    assert SAID["positions"][-1] == units(root, REST)[-1][4] > len(units(root, COMPACTED)) * 2


@pytest.mark.parametrize("name", list(FIELDS))
@pytest.mark.parametrize(("file", "at"), [(COMPACTED, 0), (FULL, 4), (FULL, 8), (LAST, 4)])
def test_a_flipped_bit_in_any_field_of_a_unit(root: Path, name: str, file: str, at: int) -> None:
    """At the begin, in the middle and at the end of a file."""
    field, path = FIELDS[name], root / UNITS / file
    queue_offset = units(root, file)[at][4]
    flip(path, at * SIZE + field.offset + field.size - 1)
    (found,), summary = verified(root)
    assert (found.code, found.path) == ("compaction-unit-mismatch", f"{UNITS}/{file}")
    assert (found.position, found.queue_offset) == (at * SIZE, queue_offset)
    assert found.queue == (TOPIC, 0) and found.expected != found.found
    assert not summary.is_clean


@pytest.mark.parametrize("file", [COMPACTED, LAST])
def test_a_flipped_bit_anywhere_in_a_record(root: Path, file: str) -> None:
    """Also where no checksum is over it: the commit log has the same record."""
    path, (first, size, *_) = root / LOG / file, units(root, file)[1]
    whole, start = path.read_bytes(), first - int(file)
    for position in range(start, start + size, 3):
        flip(path, position)
        found = findings_of(root)
        # The record, or its unit, which then says something else.
        assert found and found[0].position in (start, SIZE), position
        assert all(one.severity == "error" and one.code in COMPACTION_CODES for one in found)
        path.write_bytes(whole)


def test_each_kind_of_flip_has_its_code(root: Path) -> None:
    path, (first, size, *_) = root / LOG / FULL, units(root, FULL)[1]
    whole, start = path.read_bytes(), first - int(FULL)
    keys = whole.index(b"KEYS", start, start + size)
    cases = {
        4: "compaction-record-damaged",  # the magic code
        20: "compaction-unit-mismatch",  # the queue offset
        28: "compaction-record-damaged",  # PHYSICALOFFSET
        90: "compaction-body-crc-mismatch",
        keys - start: "compaction-record-without-key",
        keys - start + 5: "compaction-record-differs",  # the key
    }
    for position, code in cases.items():
        flip(path, start + position + 7 * (position in (20, 28)))
        assert code in {one.code for one in findings_of(root)}, position
        path.write_bytes(whole)


def cut_units(root: Path) -> None:
    """As much as a whole number of units."""
    path = root / UNITS / FULL
    path.write_bytes(path.read_bytes()[: 5 * SIZE])


def cut_log(root: Path) -> None:
    path = root / LOG / FULL
    path.write_bytes(path.read_bytes()[:1000])


def drop_units(root: Path) -> None:
    (root / UNITS / FULL).unlink()


def drop_log(root: Path) -> None:
    (root / LOG / FULL).unlink()


def zero_units(root: Path) -> None:
    change(root / UNITS / FULL, 3 * SIZE, bytes(2 * SIZE))


def zero_last_units(root: Path) -> None:
    change(root / UNITS / FULL, 7 * SIZE, bytes(3 * SIZE))


def cut_a_unit_out(root: Path) -> None:
    content = (root / UNITS / FULL).read_bytes()
    content = content[: 3 * SIZE] + content[4 * SIZE :] + bytes(SIZE)
    (root / UNITS / FULL).write_bytes(content)


def zero_records(root: Path) -> None:
    (first, size, *_) = units(root, FULL)[3]
    change(root / LOG / FULL, first - int(FULL), bytes(size))


def old_file_again(root: Path) -> None:
    """Behind the last file one of queue offsets that were before: they do not rise."""
    base = 20_700
    whole, moved = bytearray((root / LOG / COMPACTED).read_bytes()), bytearray()
    for unit in units(root, COMPACTED):
        moved += UNIT.pack(unit[0] + base, *unit[1:])
        whole[unit[0] + 28 : unit[0] + 36] = (unit[0] + base).to_bytes(8, "big")
    (root / LOG / f"{base:020d}").write_bytes(whole)
    (root / UNITS / f"{base:020d}").write_bytes(moved.ljust(460, b"\0"))


def not_compacted(root: Path) -> None:
    (root / POSITION).write_text('{"queueOffsetMap":{"CompactTopic_0":77}}')


def ahead(root: Path) -> None:
    (root / POSITION).write_text('{"queueOffsetMap":{"CompactTopic_1":900}}')


def broken_position(root: Path) -> None:
    for path in (root / POSITION, root / f"{POSITION}.bak"):
        path.write_text('{"queueOffsetMap":')


def left_over(root: Path) -> None:
    (root / LOG / "compacting").mkdir(exist_ok=True)
    (root / LOG / "compacting" / COMPACTED).write_bytes(bytes(2300))


def left_to_be_deleted(root: Path) -> None:
    (root / UNITS / f"{COMPACTED}.delete").write_bytes(bytes(460))


def drop_a_pair(root: Path) -> None:
    """No other file says that these were there."""
    drop_units(root)
    drop_log(root)


def drop_what_was_compacted(root: Path) -> None:
    for base in (LOG, UNITS):
        (root / base / COMPACTED).unlink()


def other_queue(root: Path) -> None:
    """Queue 1's first file where queue 0's was."""
    for base in (LOG, UNITS):
        content = (root / base).with_name("1").joinpath(COMPACTED).read_bytes()
        (root / base / COMPACTED).write_bytes(content)


CASES: dict[Callable[[Path], None], tuple[str, str]] = {
    cut_units: ("compaction-file-length", f"{UNITS}/{FULL}"),
    cut_log: ("compaction-file-length", f"{LOG}/{FULL}"),
    drop_units: ("compaction-file-unpaired", f"{LOG}/{FULL}"),
    drop_log: ("compaction-file-unpaired", f"{UNITS}/{FULL}"),
    zero_units: ("compaction-unit-mismatch", f"{UNITS}/{FULL}"),
    zero_last_units: ("compaction-record-without-unit", f"{LOG}/{FULL}"),
    cut_a_unit_out: ("compaction-record-without-unit", f"{LOG}/{FULL}"),
    zero_records: ("compaction-record-damaged", f"{LOG}/{FULL}"),
    old_file_again: ("compaction-offsets-disordered", f"{LOG}/{20_700:020d}"),
    not_compacted: ("compaction-not-compacted", LOG),
    ahead: ("compaction-position-ahead", POSITION),
    broken_position: ("compaction-position-unreadable", POSITION),
    left_over: ("compaction-left-over", f"{LOG}/compacting"),
    left_to_be_deleted: ("compaction-foreign-file", f"{UNITS}/{COMPACTED}.delete"),
    drop_a_pair: ("compaction-message-missing", LOG),
    drop_what_was_compacted: ("compaction-message-missing", LOG),
    other_queue: ("compaction-record-damaged", f"{LOG}/{COMPACTED}"),
}


@pytest.mark.parametrize("damage", CASES, ids=lambda one: one.__name__)
def test_damage_is_named(root: Path, damage: Callable[[Path], None]) -> None:
    code, path = CASES[damage]
    damage(root)
    before = golden_data.tree_content(root)
    found, summary = verified(root)
    assert any(one.code == code and (one.path or "").startswith(path) for one in found), found
    assert not summary.is_clean
    # Nothing of another structure, and no finding for each unit.
    assert all((one.path or "").startswith("compaction/") for one in found) and len(found) < 8
    assert golden_data.tree_content(root) == before


def test_the_messages_that_lack_are_told(root: Path) -> None:
    """The latest ones of a key alone: of the others nothing should be there."""
    drop_what_was_compacted(root)
    (found,) = findings_of(root)
    assert found.severity == "warning" and found.queue == (TOPIC, 0)
    # Queue offset 8 is the first one that was kept; eight more were in that file.
    assert (found.queue_offset, found.found) == (8, "no copy of it, and 8 more")


def test_what_a_kill_leaves_is_no_error(root: Path) -> None:
    """A record without its unit, and a file that is just made."""
    last = len(units(root, LAST)) - 1
    change(root / UNITS / LAST, last * SIZE, bytes(SIZE))
    (root / LOG / f"{20_700:020d}").touch()
    found, summary = verified(root)
    assert [(one.code, one.severity) for one in found] == [
        ("compaction-record-without-unit", "info")
    ]
    assert summary.is_clean
    # Of two of them the power has taken the units.
    change(root / UNITS / LAST, (last - 1) * SIZE, bytes(SIZE))
    ((code, severity),) = [(one.code, one.severity) for one in findings_of(root)]
    assert (code, severity) == ("compaction-record-without-unit", "warning")


def test_units_are_checked_alone_where_the_log_has_expired(root: Path) -> None:
    """What there is nothing to compare with is no finding."""
    (root / "commitlog" / f"{0:020d}").unlink()
    (root / "commitlog" / f"{32_768:020d}").write_bytes(bytes(32_768))
    assert not findings_of(root)
    change(root / UNITS / LAST, SIZE + 11, b"\xff")
    assert [one.code for one in findings_of(root)] == ["compaction-unit-mismatch"]


def test_files_that_a_running_compaction_removes_are_no_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at a directory and that at its files."""
    pairs = CompactedQueue.pairs

    def gone(queue: CompactedQueue) -> Iterator[tuple[FileEntry, int, int]]:
        for base in (LOG, UNITS):
            (root / base / COMPACTED).unlink(missing_ok=True)
        return pairs(queue)

    monkeypatch.setattr(CompactedQueue, "pairs", gone)
    assert {one.code for one in findings_of(root)} == {"file-removed-meanwhile"}


def test_links_are_followed_and_no_files_are_told(root: Path) -> None:
    path = root / UNITS / FULL
    path.rename(root / "elsewhere")
    path.symlink_to(root / "elsewhere")
    assert not findings_of(root)
    (root / "elsewhere").unlink()
    os.mkfifo(root / "elsewhere")
    assert "compaction-file-length" in {one.code for one in findings_of(root)}


def test_bytes_of_anybody_are_findings(root: Path) -> None:
    lots = random.Random(15)
    files = sorted(path for path in (root / "compaction").rglob("0*") if path.is_file())
    for path in files:
        whole = path.read_bytes()
        for data in (
            lots.randbytes(len(whole)),
            b"\xff" * len(whole),
            b"\x7f" * len(whole),
            bytes(len(whole)),
            lots.randbytes(lots.randrange(1, 900)),
        ):
            path.write_bytes(data)
            assert len(findings_of(root)) < 40
        path.write_bytes(whole)
        for _ in range(6):
            flip(path, lots.randrange(len(whole)))
            findings_of(root)
        path.write_bytes(whole)
    (root / POSITION).write_bytes(b"[" * 100_000)
    assert {one.code for one in findings_of(root)} <= COMPACTION_CODES.keys()
