"""flush: everything on disk, and the checkpoint where the engine would have it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqctl.engine.write.storeflusher import STRUCTURES

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import WritableStore
    from rmqctl.engine.state.checkpoint import Checkpoint
    from rmqctl.rows.reports import CheckpointRow, FlushRow


def checkpoint_row(checkpoint: Checkpoint) -> CheckpointRow:
    return {
        "type": "checkpoint",
        "physic_msg_timestamp": checkpoint.physic_msg_timestamp,
        "logics_msg_timestamp": checkpoint.logics_msg_timestamp,
        "index_msg_timestamp": checkpoint.index_msg_timestamp,
        "master_flushed_offset": checkpoint.master_flushed_offset,
        "confirm_phy_offset": checkpoint.confirm_phy_offset,
    }


def flush(store: WritableStore, structure: str = "all") -> Iterator[FlushRow | CheckpointRow]:
    """Flushes one structure, or all of them, of a store that is open for writing. Yields a row for
    each, with the range of the log that may not have been on disk before, then the checkpoint's.

    :raises CannotWrite: the disk failed.
    """
    structures = STRUCTURES if structure == "all" else (structure,)
    for done in store.flush_structures(structures):
        yield {
            "type": "flush",
            "structure": done.structure,
            "from_offset": done.from_offset,
            "to_offset": done.to_offset,
        }
    yield checkpoint_row(store.checkpoint)
