"""The plan of a start as data: ``StartPlan`` and its parts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rmqctl.engine.dispatch.rules import Dispatcher
    from rmqctl.engine.index import recovery as indexrecovery
    from rmqctl.engine.index.indexservice import IndexService
    from rmqctl.engine.log.commitlog import CommitLog
    from rmqctl.engine.log.end import LogEnd
    from rmqctl.engine.queue.queuetable import ConsumeQueueTable
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.engine.state.checkpoint import Checkpoint


class StoreFiles:
    """The files of one store, open for reading or for writing."""

    # Not a dataclass: making one takes longer than all other imports of a start.
    def __init__(
        self,
        root: Path,
        config: MessageStoreConfig,
        log: CommitLog,
        queues: ConsumeQueueTable,
        index: IndexService,
        dispatcher: Dispatcher,
    ) -> None:
        self.root, self.config, self.log = root, config, log
        self.queues, self.index, self.dispatcher = queues, index, dispatcher


class ScanStart(NamedTuple):
    """Where an unclean start begins to read the log, and ``why``.

    ``checkpoint``: at the newest file whose first record is not newer than the checkpoint.
    ``first-file``: there is no such file. ``dledger``: the checkpoint does not count.
    """

    physical_offset: int
    why: str


class QueueCut(NamedTuple):
    """A queue's units from queue offset ``end`` on are removed, with the files behind it.

    The reasons: their records are behind the log's end; or places without a unit stand before them
    (``is_hole``), so dispatch writes them again; or a file was made ahead and has no units.
    ``is_astray``: the first unit's address leads to no unit of the extension. Any start would
    dispatch its record and all behind it, even with the present checkpoint.
    """

    topic: str
    queue_id: int
    end: int
    max_offset: int
    is_hole: bool
    is_astray: bool


class Hole(NamedTuple):
    """A place without a unit, before later units, that no dispatch will fill."""

    topic: str
    queue_id: int
    queue_offset: int


class StartPlan(NamedTuple):
    """What a start does to a store.

    ``end`` is the log's end. ``dispatch_from`` is the physical offset from which records are
    dispatched again; the log's end if none are. ``newest`` is (physical offset, size) of the unit
    of the newest record, and ``dispatched_to`` where that record ends; -1 without units. ``scan``
    is None after a clean stop. ``hold_back`` is a store time (ms): until the plan is done no
    checkpoint may say that queues and index are on disk beyond it; None: no limit. ``doubtful`` are
    files that a crash may have left in memory only.
    """

    is_clean: bool
    checkpoint: Checkpoint
    scan: ScanStart | None
    end: LogEnd
    newest: tuple[int, int]
    dispatch_from: int
    queue_cuts: tuple[QueueCut, ...]
    index_cuts: tuple[indexrecovery.IndexCut, ...]
    holes: tuple[Hole, ...]
    hold_back: int | None
    doubtful: tuple[Path, ...]

    @property
    def dispatched_to(self) -> int:
        offset, size = self.newest
        return offset + size

    @property
    def is_needed(self) -> bool:
        """Whether a start changes anything, or refuses to."""
        some = self.queue_cuts or self.index_cuts or self.holes or self.end.obstacle
        return not self.is_clean or bool(some) or self.dispatch_bytes > 0

    @property
    def scanned_bytes(self) -> int:
        """Bytes of log that an unclean start reads."""
        return 0 if self.scan is None else self.end.offset - self.scan.physical_offset

    @property
    def dispatch_bytes(self) -> int:
        """Bytes of log that are dispatched again."""
        return max(self.end.offset - self.dispatch_from, 0)
