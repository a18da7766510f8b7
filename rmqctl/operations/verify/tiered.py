"""Checks tiered storage for ``tiered verify``: uploaded segments against the metadata, units and
index items against records.

What a kill leaves and the next start repairs is no error: files longer than the metadata says, and
records without units at the end of a log. Expired segments, which the broker has deleted, are no
finding either, nor are units and items that point before the first segment of a log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, zip_longest
from pathlib import Path

from rmqctl.engine.files.shown import shown
from rmqctl.engine.state.brokerjson import CONFIG
from rmqctl.engine.tiered import metadata as names
from rmqctl.engine.tiered.files import Owner, Segment
from rmqctl.engine.tiered.store import UNIT, TieredStore
from rmqctl.errors import CannotRead
from rmqctl.operations.verify.findings import INFO, Finding, Tally, finding
from rmqctl.operations.verify.tieredindex import check_index_items, check_index_structure
from rmqctl.operations.verify.tieredunits import check_units

_METADATA = f"{CONFIG}/{names.FILE}"


@dataclass(slots=True)
class TieredSummary(Tally):
    """How much was checked, and how many findings of each severity there are."""

    queues: int = 0
    segments: int = 0
    units: int = 0
    log_bytes: int = 0
    index_files: int = 0
    index_items: int = 0

    def row(self) -> dict[str, object]:
        """The summary's fields."""
        return {
            "queues": self.queues,
            "segments": self.segments,
            "units": self.units,
            "log_bytes": self.log_bytes,
            "index_files": self.index_files,
            "index_items": self.index_items,
            **self.counts(),
        }


def verify_tiered(store: TieredStore) -> Iterator[Finding | TieredSummary]:
    """Yields the findings, then one :class:`TieredSummary`.

    :raises TieredFilesNotFound: it is not known where the uploaded files are.
    """
    store.require_files()
    summary = TieredSummary()
    for found in _run(store, summary):
        path = None if found.path is None else shown(store.root, Path(found.path))
        summary.severities[found.severity] += 1
        yield found._replace(path=path)
    yield summary


def _run(store: TieredStore, summary: TieredSummary) -> Iterator[Finding]:
    yield from _metadata(store)
    for path in store.foreign:
        yield finding("tiered-foreign-file", path=path)
    for owner, segment in store.strays():
        yield _of_segment("tiered-segment-stray", owner, segment)
    for queue in store.queues():
        summary.queues += 1
        for kind in (names.COMMIT_LOG, names.CONSUME_QUEUE):
            yield from _segments(store, queue.owner, queue.of_kind(kind), summary)
        summary.units += queue.unit_count
        summary.log_bytes += sum(entry.size for entry in queue.log.files.entries)
        yield from _as_far_as_it_can_be_read(check_units(queue))
    for owner, some in groupby(store.index_segments(), key=lambda one: one[0]):
        yield from _segments(store, owner, [segment for _, segment in some], summary)
    yield from _as_far_as_it_can_be_read(_index(store, summary))


def _as_far_as_it_can_be_read(findings: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except CannotRead as error:
        yield finding("unreadable-file", path=error.path, found=str(error.reason))


def _metadata(store: TieredStore) -> Iterator[Finding]:
    if store.problem is not None:
        where = f"line {store.problem.line}: {store.problem.reason}"
        yield finding("tiered-metadata-unreadable", path=store.root / _METADATA, found=where)
    elif store.metadata is None and store.directory != store.root:
        yield finding("tiered-metadata-missing", path=store.root / _METADATA)


def _segments(
    store: TieredStore, owner: Owner, segments: list[Segment], summary: TieredSummary
) -> Iterator[Finding]:
    """Checks the segments of one kind, in order, against the metadata and for gaps."""
    for one, following in zip_longest(segments, segments[1:]):
        summary.segments += 1
        yield from _segment(store, owner, one, following is None)
        end = one.base_offset + max(one.file_size, 0 if one.metadata is None else one.metadata.size)
        if following is not None and following.base_offset > end:
            yield _of_segment("tiered-segment-gap", owner, following)._replace(
                expected=f"a segment at {end}", found=f"the next one at {following.base_offset}"
            )


def _segment(store: TieredStore, owner: Owner, one: Segment, is_last: bool) -> Iterator[Finding]:
    if one.metadata is None:
        if store.metadata is not None:
            yield _of_segment("tiered-segment-unknown", owner, one)
    elif one.file is None:
        if one.metadata.size:
            yield _of_segment("tiered-segment-missing", owner, one)._replace(
                expected=f"{one.metadata.size} bytes", found="no file"
            )
    elif one.file_size != one.metadata.size:
        is_short = one.file_size < one.metadata.size
        code = "tiered-segment-short" if is_short else "tiered-segment-long"
        found = _of_segment(code, owner, one)._replace(
            expected=f"{one.metadata.size} bytes", found=f"{one.file_size} bytes"
        )
        # A kill leaves bytes that the metadata does not count yet. The next start counts them
        # (FlatAppendFile#recoverFileSize).
        is_usual = is_last and not is_short and one.kind != names.INDEX
        yield found._replace(severity=INFO) if is_usual else found
    if one.kind == names.CONSUME_QUEUE:
        odd = one.base_offset % UNIT.size or one.readable(is_last) % UNIT.size
        if odd and one.file is not None:
            yield _of_segment("tiered-queue-cut", owner, one)._replace(
                expected=f"a multiple of {UNIT.size}",
                found=f"{one.readable(is_last)} bytes from {one.base_offset} on",
            )


def _of_segment(code: str, owner: Owner, one: Segment) -> Finding:
    path: Path | str | None = one.file
    if path is None:
        path = f"{owner.path}/{one.kind}/{one.base_offset}"
    is_of_index = one.kind == names.INDEX
    return finding(
        code,
        path=path,
        topic=None if is_of_index else owner.topic,
        queue_id=None if is_of_index else owner.queue_id,
    )


def _index(store: TieredStore, summary: TieredSummary) -> Iterator[Finding]:
    for file, _ in store.index_files():
        summary.index_files += 1
        summary.index_items += file.item_count
        yield from check_index_structure(file)
    yield from check_index_items(store)
