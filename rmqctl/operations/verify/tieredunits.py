"""Checks the units that a broker of 5.x has uploaded, each against the record to which it leads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqctl.engine.queue.consumequeue import is_ext_addr
from rmqctl.engine.record.record import Blank, Record, body_seen, crc_matches
from rmqctl.engine.tiered.store import TieredLog, TieredQueue, TieredUnit
from rmqctl.errors import NoRecordAt
from rmqctl.operations.verify.findings import Finding, finding


class _Wrong(NamedTuple):
    """What is wrong with a unit, or with the record that it leads to."""

    code: str
    expected: str
    found: str


def check_units(queue: TieredQueue) -> Iterator[Finding]:
    """The findings of one queue, in order. Consecutive units with the same code are one finding.

    :raises CannotRead: the system refuses to read a file.
    """
    log = queue.log
    run: _Run | None = None
    # The physical offset up to which the units cover the log; None behind a unit that is wrong.
    reached: int | None = log.min_offset
    for unit in queue.units():
        if 0 <= unit.physical_offset < log.min_offset:
            continue  # Its record has expired, and was deleted.
        wrong = _problem(queue, log, unit)
        if run is not None and (wrong is None or wrong.code != run.wrong.code):
            yield run.told(queue)
            run = None
        if wrong is not None:
            run = _Run(unit, wrong, 1) if run is None else run._replace(units=run.units + 1)
        if wrong is not None and wrong.code != _BODY:
            reached = None
            continue
        if reached is not None and unit.physical_offset > reached:
            yield from _unreferenced(queue, reached, unit.physical_offset)
        reached = max(reached or 0, unit.physical_offset + unit.size)
    if run is not None:
        yield run.told(queue)
    if reached is not None and log.files.end_offset > reached:
        yield from _unreferenced(queue, reached, log.files.end_offset)


_BODY = "tiered-body-crc-mismatch"


class _Run(NamedTuple):
    """Consecutive units with the same code: the first one, and how many."""

    first: TieredUnit
    wrong: _Wrong
    units: int

    def told(self, queue: TieredQueue) -> Finding:
        wrong, more = self.wrong, self.units - 1
        mapped = queue.log.files.find(self.first.physical_offset)
        return finding(
            wrong.code,
            path=None if mapped is None else mapped.path,
            physical_offset=self.first.physical_offset,
            topic=queue.owner.topic,
            queue_id=queue.owner.queue_id,
            queue_offset=self.first.queue_offset,
            expected=wrong.expected,
            found=wrong.found + (f", and {more} units behind it" if more else ""),
        )


def _problem(queue: TieredQueue, log: TieredLog, unit: TieredUnit) -> _Wrong | None:
    end = log.files.end_offset
    if unit.physical_offset + unit.size > end:
        return _Wrong("tiered-unit-past-end", f"at most {end}, where the log ends", _place(unit))
    record = log.find_record(unit.physical_offset)
    if record is None:
        return _Wrong("tiered-unit-mismatch", "a record", _what_stands_there(log, unit))
    owner = queue.owner
    said = {
        "size": (unit.size, record.total_size),
        "queue offset": (unit.queue_offset, record.queue_offset),
        "topic": (owner.topic, record.topic),
        "queue": (owner.queue_id, record.queue_id),
    }
    if not is_ext_addr(unit.tags_code):
        said["tags code"] = (unit.tags_code, record.tags_code)
    for name, (expected, found) in said.items():
        if expected != found:
            return _Wrong("tiered-unit-mismatch", f"{name} {expected}", f"{name} {found}")
    return None if _has_its_body(log, record) else _Wrong(_BODY, "the body's CRC", "another one")


def _what_stands_there(log: TieredLog, unit: TieredUnit) -> str:
    if log.files.find(unit.physical_offset) is None:
        return "no file that has this place"
    try:
        log.record_at(unit.physical_offset)
    except NoRecordAt as error:
        return str(error.reason)
    return "none a moment ago"  # A broker has written it since.


def _place(unit: TieredUnit) -> str:
    return f"{unit.size} bytes at {unit.physical_offset}"


def _has_its_body(log: TieredLog, record: Record) -> bool:
    mapped, _ = log.locate(record.physical_offset)
    return crc_matches(body_seen(mapped, record), record)


def _unreferenced(queue: TieredQueue, start: int, end: int) -> Iterator[Finding]:
    """The finding of bytes between the records of two units. A coda, with which earlier versions
    end a segment, is no finding."""
    mapped = queue.log.files.find(start)
    entry = None if mapped is None else queue.log.entry_at(start)
    if isinstance(entry, Blank) and start + entry.total_size == end:
        return
    yield finding(
        "tiered-log-unreferenced",
        path=None if mapped is None else mapped.path,
        physical_offset=start,
        topic=queue.owner.topic,
        queue_id=queue.owner.queue_id,
        found=f"{end - start} bytes",
    )
