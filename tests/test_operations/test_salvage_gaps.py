"""What salvage says of its gaps: why they are there, and how much of them is again what it was."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from formats.constants import END_FILE_MIN_BLANK_LENGTH
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.filler import LEAST_FILLER
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Blank, Record
from rmqctl.operations.mend.salvage import Salvage, plan_salvage
from rmqctl.operations.mend.salvagerows import Report
from tests.test_cli.conftest import CONFIG
from tests.test_operations.test_salvage import FILE, errors, patched, records_of, salvage


class Told(NamedTuple):
    reason: str
    length: int
    restored_bytes: int


def told(root: Path, *, placeholders: bool = False) -> tuple[list[Told], bool]:
    """The gaps, and whether nothing is lost."""
    wanted = Salvage(root, CONFIG, root.with_name("new"), placeholders=placeholders)
    with closing(plan_salvage(wanted)) as plan:
        report = Report(plan)
        rows = [row for row in report.planned() if row["type"] == "gap"]
        gaps = [Told(row["reason"], row["length"], row["restored_bytes"]) for row in rows]
        return gaps, report.is_complete


def made(root: Path, last: int, **properties: str) -> tuple[Record, Blank]:
    """A store of three log files, with its last record in the first one and the blank behind that.

    :param last: bytes of that record's body; it decides how long the blank is.
    """
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        while store.max_offset < FILE - 700:
            assert store.put_message(MessageExtBrokerInner("orders", b"x" * 100, 0)).is_ok
        one = MessageExtBrokerInner("orders", b"x" * last, 0, properties=properties)
        assert store.put_message(one).is_ok
        while store.max_offset < 2 * FILE + 1000:
            assert store.put_message(MessageExtBrokerInner("orders", b"x" * 600, 0)).is_ok
        entries = list(store.commit_log.walk(0, FILE))
    at = next(number for number, one in enumerate(entries) if isinstance(one, Blank))
    record, blank = entries[at - 1 : at + 1]
    assert isinstance(record, Record) and isinstance(blank, Blank)
    return record, blank


def test_a_record_that_leaves_no_room_for_a_blank(tmp_path: Path) -> None:
    """It is no delayed message, and nothing of it comes back."""
    root = tmp_path / "store"
    record, blank = made(root, 300, note="n" * 50)
    longer = blank.total_size - 3
    at, size, length = record.physical_offset, record.total_size, len(record.properties_bytes)
    patched(root, at, (size + longer).to_bytes(4, "big"))
    patched(root, at + size - length - 2, (length + longer).to_bytes(2, "big"))
    patched(root, at + size, b"n" * longer)
    (gap,), is_complete = told(root)
    assert (gap.reason, gap.restored_bytes) == ("total-size-out-of-range", 0)
    assert gap.length >= size + longer and not is_complete
    salvage(root, CONFIG, tmp_path / "new")
    assert at not in records_of(tmp_path / "new", CONFIG) and not errors(tmp_path / "new", CONFIG)


@pytest.mark.parametrize(
    ("level", "body", "reason"),
    [(b"x", b"x", "delay-not-a-number"), (b"x", b"y", "body-crc-mismatch"), (b"5", b"x", None)],
)
def test_a_delayed_message(tmp_path: Path, level: bytes, body: bytes, reason: str | None) -> None:
    root = tmp_path / "store"
    record, _ = made(root, 300, DELAY="3")
    assert record.topic == "SCHEDULE_TOPIC_XXXX"
    start = record.physical_offset + record.total_size - len(record.properties_bytes)
    patched(root, start + record.properties_bytes.index(b"DELAY\x013") + 6, level)
    patched(root, record.physical_offset + 90, body)
    gaps, _ = told(root)
    assert [(gap.reason, gap.restored_bytes) for gap in gaps] == [(reason, 0)] * bool(reason)


def break_body(root: Path, record: Record, blank: Blank) -> None:
    patched(root, record.physical_offset + 90, b"y")


def break_head(root: Path, record: Record, blank: Blank) -> None:
    patched(root, record.physical_offset + 4, b"\x7f" * 4)


def break_blank(root: Path, record: Record, blank: Blank) -> None:
    patched(root, blank.physical_offset + 4, b"\x7f" * 4)


def lose_file(root: Path, record: Record, blank: Blank) -> None:
    (root / "commitlog" / f"{FILE:020d}").unlink()


@pytest.mark.parametrize(
    ("damage", "last", "placeholders", "restored"),
    [
        (break_body, 300, False, "nothing"),
        (break_body, 300, True, "blank"),
        (break_head, 300, False, "all"),
        (break_head, 500, False, "all"),
        (break_blank, 300, False, "nothing"),
        (break_blank, 500, False, "all"),
        (lose_file, 300, False, "nothing"),
        (lose_file, 300, True, "nothing"),
    ],
)
def test_a_blank_that_was_not_there_is_not_restored(
    tmp_path: Path,
    damage: Callable[[Path, Record, Blank], None],
    last: int,
    placeholders: bool,
    restored: str,
) -> None:
    """One that the broker wrote is; and one where nothing else had room."""
    root = tmp_path / "store"
    record, blank = made(root, last)
    assert (blank.total_size < LEAST_FILLER + END_FILE_MIN_BLANK_LENGTH) == (last == 500)
    damage(root, record, blank)
    (gap,), is_complete = told(root, placeholders=placeholders)
    expected = {"nothing": 0, "blank": blank.total_size, "all": gap.length}
    assert gap.restored_bytes == expected[restored]
    assert is_complete == (restored == "all")
