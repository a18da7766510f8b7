"""flush: everything on disk, and the checkpoint where the engine would have it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqctl.engine.write.storeflusher import STRUCTURES
from rmqctl.operations.look.rows import Row

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.state.checkpoint import Checkpoint

#: What ``--structure`` names.
CHOICES = (*STRUCTURES, "all")


def checkpoint_row(checkpoint: Checkpoint) -> Row:
    return {"type": "checkpoint", **checkpoint._asdict()}


def flush(store: MessageStore, structure: str = "all") -> Iterator[Row]:
    """Flushes one structure, or all, of a store that is open for writing: a row for each, with the
    range of the log that may not have been on disk before, then the checkpoint.

    :raises CannotWrite: the disk failed.
    """
    structures = STRUCTURES if structure == "all" else (structure,)
    for done in store.flush_structures(structures):
        yield {"type": "flush", **done._asdict()}
    yield checkpoint_row(store.checkpoint)
