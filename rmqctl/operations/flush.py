"""flush: everything on disk, and the checkpoint where the engine would have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.operations.rows import Row

if TYPE_CHECKING:
    from rmqctl.engine.checkpoint import Checkpoint
    from rmqctl.engine.messagestore import MessageStore


def checkpoint_row(checkpoint: Checkpoint) -> Row:
    return {"type": "checkpoint", **checkpoint._asdict()}


def flush(store: MessageStore) -> Row:
    """Flushes a store that is open for writing; the checkpoint as it is then.

    :raises CannotWrite: the disk failed.
    """
    return checkpoint_row(store.flush())
