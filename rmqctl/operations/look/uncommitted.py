"""The end of a DLedger member's log that the group is not known to have committed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rmqctl.engine.settings.logdirectories import log_directories
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.dledger import dledger_state, entry_place


class Uncommitted(NamedTuple):
    """The last ``entries`` of the log. The first of them starts at ``physical_offset``, which is
    None where the member's index does not tell it."""

    entries: int
    physical_offset: int | None


def uncommitted(root: Path, config: MessageStoreConfig) -> Uncommitted | None:
    """The uncommitted end by the member's own ``checkpoint``, which it writes every few seconds.
    None for other stores, and where all is committed.

    :raises CannotRead: a file of the member cannot be read.
    """
    data = log_directories(root, config).dledger
    state = None if data is None else dledger_state(data.parent)
    if data is None or state is None or state.committed_index is None or state.end_index is None:
        return None
    if state.end_index <= state.committed_index:
        return None
    place = entry_place(data.parent, state.committed_index + 1)
    return Uncommitted(state.end_index - state.committed_index, place)
