"""What ``tiered verify`` says of damage: each its code, at its place, and nothing is changed."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from formats import layouts
from formats.constants import BLANK_MAGIC_CODE
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.tiered.files import hash_of
from rmqctl.engine.tiered.metadata import FILE, LOCAL_INDEX
from rmqctl.engine.tiered.store import TieredStore
from rmqctl.operations.look.tiered import tiered_rows
from rmqctl.operations.verify import Summary, verify
from rmqctl.operations.verify.findings import Finding
from rmqctl.operations.verify.tiered import TieredSummary, verify_tiered
from rmqctl.operations.verify.tieredcodes import TIERED_CODES
from tests import golden_data

BROKER = Path("tiered/212d6b50_DefaultCluster/interop")
ORDERS = BROKER / "orders/0"
UNIT = layouts.QUEUE_UNIT.size
INDEX_HEADER = layouts.TIERED_INDEX_HEADER.size
SLOTS = 20


def segment(kind: str, base: int, queue: Path = ORDERS) -> Path:
    return queue / kind / f"{hash_of(str(base))}{base:020d}"


LOG, SECOND_LOG, LAST_LOG = (segment("COMMIT_LOG", base) for base in (0, 3874, 11732))
QUEUE, LAST_QUEUE = segment("CONSUME_QUEUE", 0), segment("CONSUME_QUEUE", 800)
INDEX = segment("INDEX", 0, BROKER / "rmq_sys_INDEX/0")
METADATA = Path("config") / FILE


@pytest.fixture
def root(golden_directory: Path, tmp_path: Path) -> Path:
    """A copy of what tiered storage has of the store of a killed broker."""
    store = golden_data.unpacked("tiered-killed", golden_directory, golden_data.LATER)
    for name in ("config", "tiered", LOCAL_INDEX):
        shutil.copytree(store / name, tmp_path / "store" / name)
    return tmp_path / "store"


def verified(root: Path) -> tuple[list[Finding], TieredSummary]:
    *found, summary = verify_tiered(TieredStore(root, MessageStoreConfig()))
    assert isinstance(summary, TieredSummary)
    return [one for one in found if isinstance(one, Finding)], summary


def write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def local_index(root: Path) -> Path:
    (path,) = (root / LOCAL_INDEX).iterdir()
    return path


def no_metadata(root: Path) -> None:
    for path in root.glob(f"{METADATA}*"):
        path.unlink()


def broken_metadata(root: Path) -> None:
    for path in root.glob(f"{METADATA}*"):
        cut(path, 100)


def no_segment(root: Path) -> None:
    (root / SECOND_LOG).unlink()


def short_segment(root: Path) -> None:
    cut(root / SECOND_LOG, 3900)


def metadata_ahead_of_the_last_file(root: Path) -> None:
    cut(root / LAST_LOG, 1200)


def long_segment(root: Path) -> None:
    write(root / LOG, 3874, b"more")


def unknown_segment(root: Path) -> None:
    name = segment("COMMIT_LOG", 99_999).name
    (root / ORDERS / "COMMIT_LOG" / name).write_bytes(b"")


def unknown_segment_behind_a_gap(root: Path) -> None:
    name = segment("COMMIT_LOG", 99_999).name
    (root / ORDERS / "COMMIT_LOG" / name).write_bytes(b"x")


def stray_segment(root: Path) -> None:
    stray = root / BROKER / "late/0/INDEX" / INDEX.name
    stray.parent.mkdir()
    stray.write_bytes(b"")


def foreign_file(root: Path) -> None:
    (root / ORDERS / "COMMIT_LOG" / "notes").touch()


def torn_unit(root: Path) -> None:
    cut(root / LAST_QUEUE, 3 * UNIT + 7)


def unit_far_away(root: Path) -> None:
    write(root / QUEUE, 2 * UNIT, struct.pack(">q", 1 << 40))


def unit_before_zero(root: Path) -> None:
    write(root / QUEUE, 2 * UNIT, struct.pack(">q", -5))


def unit_of_another_size(root: Path) -> None:
    flip(root / QUEUE, 2 * UNIT + 11)


def unit_with_another_tag(root: Path) -> None:
    flip(root / QUEUE, 2 * UNIT + 19)


def record_of_another_place(root: Path) -> None:
    flip(root / LOG, layouts.RECORD_QUEUE_OFFSET.offset + 7)


def no_magic_code(root: Path) -> None:
    flip(root / LOG, layouts.RECORD_MAGIC_CODE.offset)


def other_body(root: Path) -> None:
    flip(root / LOG, layouts.RECORD_PREFIX[0].size)


def index_cut_short(root: Path) -> None:
    cut(root / INDEX, 2000)


def no_index_magic(root: Path) -> None:
    flip(root / INDEX, 0)


def slot_leads_astray(root: Path) -> None:
    flip(root / INDEX, INDEX_HEADER + 3 * 8 + 3, bit=2)


def item_in_another_slot(root: Path) -> None:
    flip(root / INDEX, INDEX_HEADER + SLOTS * 8 + 3)


def item_of_another_place(root: Path) -> None:
    flip(root / INDEX, INDEX_HEADER + SLOTS * 8 + 12 + 7)


def item_of_another_time(root: Path) -> None:
    flip(root / INDEX, INDEX_HEADER + SLOTS * 8 + 24 + 3, bit=4)


def index_of_another_time(root: Path) -> None:
    """The header's begin_timestamp, from which the times of all items are counted."""
    flip(root / INDEX, 4 + 5)


def local_item_of_another_time(root: Path) -> None:
    flip(local_index(root), INDEX_HEADER + SLOTS * 8 + 32 + 24 + 3, bit=4)


def local_slot_leads_astray(root: Path) -> None:
    path = local_index(root)
    data = path.read_bytes()
    used = next(
        at
        for at in range(INDEX_HEADER, INDEX_HEADER + SLOTS * 8, 8)
        if data[at : at + 4].strip(b"\0")
    )
    write(path, used, struct.pack(">i", 79))


def local_chain_goes_round(root: Path) -> None:
    """An item follows itself."""
    path = local_index(root)
    write(path, INDEX_HEADER + SLOTS * 8 + 5 * 32 + 28, struct.pack(">i", 5))


def local_header_counts_more(root: Path) -> None:
    write(local_index(root), INDEX_HEADER - 4, struct.pack(">i", 1 << 30))


def local_index_is_cut(root: Path) -> None:
    cut(local_index(root), 20)


def one_slot_more(root: Path) -> None:
    """Of a broker whose settings nobody tells."""
    path = local_index(root)
    path.write_bytes(path.read_bytes() + bytes(8))
    for index in (root / BROKER / "rmq_sys_INDEX/0/INDEX").iterdir():
        index.unlink()


#: By damage the findings that must be there, with the files that they name.
CASES: dict[Callable[[Path], None], tuple[str, Path | None]] = {
    no_metadata: ("tiered-metadata-missing", METADATA),
    broken_metadata: ("tiered-metadata-unreadable", METADATA),
    no_segment: ("tiered-segment-missing", None),
    short_segment: ("tiered-segment-short", SECOND_LOG),
    metadata_ahead_of_the_last_file: ("tiered-segment-short", LAST_LOG),
    long_segment: ("tiered-segment-long", LOG),
    unknown_segment: ("tiered-segment-unknown", segment("COMMIT_LOG", 99_999)),
    unknown_segment_behind_a_gap: ("tiered-segment-gap", segment("COMMIT_LOG", 99_999)),
    stray_segment: ("tiered-segment-stray", BROKER / "late/0/INDEX" / INDEX.name),
    foreign_file: ("tiered-foreign-file", ORDERS / "COMMIT_LOG" / "notes"),
    torn_unit: ("tiered-queue-cut", LAST_QUEUE),
    unit_far_away: ("tiered-unit-past-end", None),
    unit_before_zero: ("tiered-unit-mismatch", None),
    unit_of_another_size: ("tiered-unit-mismatch", LOG),
    unit_with_another_tag: ("tiered-unit-mismatch", LOG),
    record_of_another_place: ("tiered-unit-mismatch", LOG),
    no_magic_code: ("tiered-unit-mismatch", LOG),
    other_body: ("tiered-body-crc-mismatch", LOG),
    index_cut_short: ("tiered-index-unreadable", INDEX),
    no_index_magic: ("tiered-index-unreadable", INDEX),
    slot_leads_astray: ("tiered-index-broken", INDEX),
    item_in_another_slot: ("tiered-index-broken", INDEX),
    item_of_another_place: ("tiered-index-item-mismatch", INDEX),
    item_of_another_time: ("tiered-index-item-mismatch", INDEX),
    index_of_another_time: ("tiered-index-item-mismatch", INDEX),
    local_item_of_another_time: ("tiered-index-item-mismatch", Path(LOCAL_INDEX)),
    local_slot_leads_astray: ("tiered-index-broken", Path(LOCAL_INDEX)),
    local_chain_goes_round: ("tiered-index-broken", Path(LOCAL_INDEX)),
    local_header_counts_more: ("tiered-index-unreadable", Path(LOCAL_INDEX)),
    one_slot_more: ("tiered-index-slots-unknown", Path(LOCAL_INDEX)),
    local_index_is_cut: ("tiered-index-unreadable", Path(LOCAL_INDEX)),
}


@pytest.mark.parametrize("damage", CASES, ids=lambda damage: damage.__name__)
def test_damage_is_named(damage: Callable[[Path], None], root: Path) -> None:
    code, path = CASES[damage]
    damage(root)
    before = golden_data.tree_content(root)
    found, summary = verified(root)
    named = [one for one in found if one.code == code]
    assert named and not summary.is_clean
    assert path is None or any((one.path or "").startswith(str(path)) for one in named)
    assert golden_data.tree_content(root) == before
    # Nothing of another kind than what must follow from it.
    assert len(found) < 20
    assert list(tiered_rows(TieredStore(root, MessageStoreConfig())))[-1]["type"] == "summary"


def test_every_code_has_a_case() -> None:
    shown = {code for code, _ in CASES.values()}
    assert shown | {"tiered-log-unreferenced", "tiered-storage"} == set(TIERED_CODES)


@pytest.mark.parametrize("name", ["tiered", "tiered-killed"])
def test_verify_names_what_is_uploaded(name: str, golden_directory: Path) -> None:
    """And finds no file that it does not know."""
    store = golden_data.unpacked(name, golden_directory, golden_data.LATER)
    *found, summary = verify(store, MessageStoreConfig())
    assert isinstance(summary, Summary) and summary.is_clean
    codes = {one.code for one in found if isinstance(one, Finding)}
    assert "tiered-storage" in codes
    assert not codes & {"not-understood", "foreign-file"}


def test_what_a_kill_leaves_is_no_error(root: Path) -> None:
    """Records whose units were not written any more, and a file that the metadata is behind."""
    whole = (root / LAST_QUEUE).read_bytes()
    cut(root / LAST_QUEUE, len(whole) - UNIT)
    metadata = (root / METADATA).read_text().replace('"size":80', '"size":40')
    (root / METADATA).write_text(metadata)
    found, summary = verified(root)
    assert summary.is_clean
    assert {one.code for one in found} == {"tiered-segment-long", "tiered-log-unreferenced"}
    (last,) = (one for one in found if one.code == "tiered-log-unreferenced")
    assert last.physical_offset == struct.unpack(">q", whole[-UNIT:][:8])[0]


def test_segments_whose_time_is_over_are_no_error(root: Path) -> None:
    """``FlatAppendFile#destroyExpiredFile``: the file goes, and what the metadata says of it; units
    and items that point there stay."""
    (root / LOG).unlink()
    text = (root / METADATA).read_text()
    start = text.index("0:{", text.index('"interop/orders/0"'))
    end = text.index("3874:{", start)
    (root / METADATA).write_text(text[:start] + text[end:])
    found, summary = verified(root)
    assert (found, summary.is_clean) == ([], True)
    assert summary.units == 68


def test_a_coda_of_earlier_versions_is_passed_over(root: Path) -> None:
    """They closed a segment of a log with 16 bytes, which the next one's base counts."""
    size = (root / LAST_LOG).stat().st_size
    base = 11732 + size
    coda = struct.pack(">iIq", 16, BLANK_MAGIC_CODE, 0)
    with (root / LAST_LOG).open("ab") as file:
        file.write(coda)
    text = (root / METADATA).read_text().replace(f'"size":{size},', f'"size":{size + 16},')
    (root / METADATA).write_text(text)
    (queue,) = TieredStore(root, MessageStoreConfig()).open_queues("orders", 0)
    *_, blank, end = queue.log.walk()
    queue.close()
    assert (blank.physical_offset, end.physical_offset) == (base, base + 16)
    assert verified(root)[0] == []


def test_what_is_lost_is_told_once(root: Path) -> None:
    """Of a segment that is missing: that it is, and from which unit on. The index is not to
    blame."""
    no_segment(root)
    found, _ = verified(root)
    assert [one.code for one in found] == ["tiered-segment-missing", "tiered-unit-mismatch"]
    units = found[1]
    assert (units.topic, units.queue_id, units.queue_offset) == ("orders", 0, 13)
    assert (units.physical_offset, units.found) == (
        3874,
        "no file that has this place, and 12 units behind it",
    )


def test_of_a_segment_that_is_cut_the_index_is_not_to_blame(root: Path) -> None:
    cut(root / LAST_LOG, 1200)
    codes = [one.code for one in verified(root)[0]]
    assert codes == ["tiered-segment-short", "tiered-unit-past-end"]


def test_of_a_file_of_the_index_items_are_counted(root: Path) -> None:
    """The record of the first message has another key now."""
    data = (root / LOG).read_bytes()
    (root / LOG).write_bytes(data.replace(b"k0-1\x02", b"k0-?\x02", 1))
    (found,) = verified(root)[0]
    assert found.code == "tiered-index-item-mismatch"
    assert found.found == "none (1 of 79 items)"
