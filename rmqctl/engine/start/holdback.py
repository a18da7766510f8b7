"""How far back a checkpoint may go while queues and index are written anew.

A start after a crash reads the log from the file on that the checkpoint leads to, and deletes all
records behind the first place that it cannot read (``CommitLog#recoverAbnormally``). Damage before
that file does no harm. A held-back checkpoint must not lead the start to damage that it would not
have reached otherwise: queues can be made anew from the log, but records cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats.constants import LONG_MAX
from rmqctl.engine.start.logend import end_behind
from rmqctl.engine.start.plan import first_timestamp, scan_start
from rmqctl.engine.state.checkpoint import RECOVERY_MARGIN

if TYPE_CHECKING:
    from rmqctl.engine.log.commitlog import CommitLog
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.engine.state.checkpoint import Checkpoint


def least_hold_back(
    log: CommitLog, checkpoint: Checkpoint, config: MessageStoreConfig, hold_back: int
) -> int:
    """Store time (ms) before which ``checkpoint`` must not be held back, when ``hold_back`` is
    wanted; 0: ``hold_back`` is fine. Reads the part of the log that a start would read only because
    of the held-back checkpoint."""
    if log.files.framed:
        return 0
    limit = scan_start(log, checkpoint, config).physical_offset
    start = scan_start(log, checkpoint.held_back(hold_back), config).physical_offset
    starts = [one.file_from_offset for one in log.files.entries]
    least = 0
    while start < limit:
        damage = end_behind(log, start, 0, end=limit).offset
        if damage >= limit:
            break
        start = next(begin for begin in starts if begin > damage)
        timestamp = first_timestamp(log, starts.index(start)) if start < limit else None
        least = LONG_MAX if timestamp is None else timestamp + RECOVERY_MARGIN
        held_back = checkpoint.held_back(least)
        if scan_start(log, held_back, config).physical_offset < start:
            return LONG_MAX  # The store times are not in order.
    return least
