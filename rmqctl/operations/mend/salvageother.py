"""A second copy of the log (a slave's, a backup's) that fills the gaps of the first.

Copies of one log have every record at the same physical offset. Two logs are taken for copies
around a gap if its neighbours are the same messages in both; elsewhere they may differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.files import paths
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.record.record import Blank, Record
from rmqctl.engine.settings.filesizes import commit_log_file_size
from rmqctl.errors import FileLengthContradiction
from rmqctl.operations.mend.salvagelog import Gap, Run, read_log

if TYPE_CHECKING:
    from rmqctl.engine.log.commitlog import CommitLog
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.operations.mend.salvageunits import LostUnit

_COMPARED = (
    *("body_crc", "queue_id", "queue_offset", "born_timestamp"),
    *("store_timestamp", "store_address", "topic_bytes"),
)


class OtherLog:
    """The log of another store, read only.

    :raises StoreNotFound, NotAStore: there is no such store.
    :raises FileLengthContradiction: the files of its log have another size, so it is no copy.
    """

    def __init__(self, root: Path, config: MessageStoreConfig, own: CommitLog) -> None:
        paths.check_store(root)
        self.root = root
        file_size = commit_log_file_size(root, config)
        if file_size != own.file_size:
            raise FileLengthContradiction(
                path=str(root / paths.COMMIT_LOG),
                found=file_size,
                expected=own.file_size,
                why="as in the store that it is a copy of",
            )
        self.log = open_commit_log(root, config, file_size)
        self._own = own
        #: How many records the runs had that were yielded so far.
        self.records = 0

    def runs(self, gap: Gap, after: int | None, units: list[LostUnit]) -> list[Run]:
        """The runs of this log that lie in a gap, in order; none where the logs do not agree around
        the gap.

        :param after: physical offset of the first record behind the gap; None at the end of the
            log, where the records of this log have to be those that ``units`` of the queues name.
        """
        neighbours = [one for one in (gap.before, after) if one is not None]
        if not all(map(self._agrees, neighbours)):
            return []
        if (after is None or not neighbours) and not (units and all(map(self._has, units))):
            return []
        start = max(gap.start, self.log.min_offset)
        if self.log.files.index_of(start) < 0:
            return []
        if not isinstance(self.log.entry_at(start), Record | Blank):
            return []
        reading = read_log(self.log, start, gap.end)
        if reading.runs and reading.runs[-1].end > gap.end:
            return []
        self.records += reading.records
        return reading.runs

    def _agrees(self, physical_offset: int) -> bool:
        """Whether both logs have the same message at a place, by the fields that tell messages
        apart. Different messages differ in more than one of them; damage changes only one."""
        own, other = (log.find_record(physical_offset) for log in (self._own, self.log))
        if own is None or other is None:
            return False
        differing = [n for n in _COMPARED if getattr(own, n) != getattr(other, n)]
        return own.total_size == other.total_size and len(differing) <= 1

    def _has(self, unit: LostUnit) -> bool:
        """Whether this log has the record that a unit of the damaged store's queues names."""
        record = self.log.find_record(unit.physical_offset)
        return (
            record is not None
            and record.total_size == unit.size
            and (record.topic, record.queue_id) == (unit.topic, unit.queue_id)
            and record.queue_offset == unit.queue_offset
        )

    def close(self) -> None:
        self.log.close()
