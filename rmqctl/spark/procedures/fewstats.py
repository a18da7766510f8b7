"""Counts the statistics of small stores in this process, which takes less time than starting a job
of Spark. Does not import Spark."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.messagestore import MessageStore
from rmqctl.errors import RmqctlError
from rmqctl.operations.look.stats import StoreToCount, statistics
from rmqctl.rows.columns import broker_of
from rmqctl.spark.session.jobs import SMALL
from rmqctl.spark.session.staging import is_remote

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.rows import Row
    from rmqctl.rows.sections import Waiting


def counted_here(
    places: Sequence[str], config: MessageStoreConfig, top: int, waits: Waiting
) -> list[Row] | None:
    """The rows of ``stats`` that Spark would give, counted in this process. None if the stores are
    not small, or are not in directories of this machine."""
    if any(map(is_remote, places)):
        return None
    given = config.broker_name if len(places) == 1 else ""
    left = SMALL
    with ExitStack() as stack:
        stores = []
        try:
            for place in places:
                store = stack.enter_context(MessageStore(Path(place), config))
                # Count without holes: a broker preallocates whole files.
                log = store.commit_log.files.entries
                left -= sum(os.stat(entry.path).st_blocks * 512 for entry in log)
                if left < 0:
                    return None
                stores.append(StoreToCount(store, given or broker_of(place), place))
            return list(statistics(stores, top, lambda done: None, waits))
        except (RmqctlError, OSError):
            return None  # Spark has a row for a store that cannot be read.
