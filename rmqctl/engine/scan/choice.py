"""Chooses some records of a scan."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.engine.scan.batch import Batch


class Choice(NamedTuple):
    """The wanted topic and store times (ms, both ends inclusive); None is no limit."""

    topic: str | None = None
    since: int | None = None
    until: int | None = None

    def of(self, batch: Batch) -> Batch | None:
        """The wanted records of a batch; None without any."""
        keep = self.mask(batch)
        if keep.all():
            return batch
        return batch.where(keep) if keep.any() else None

    def mask(self, batch: Batch) -> NDArray[np.bool_]:
        """Whether each record of a batch is wanted: bool, by row."""
        keep = np.ones(len(batch), bool)
        if self.topic is not None:
            keep &= batch.topic_id == batch.topics.id_of(self.topic)
        if self.since is not None:
            keep &= batch.store_timestamp >= self.since
        if self.until is not None:
            keep &= batch.store_timestamp <= self.until
        return keep
