"""The input of one task: a split of a store, and the settings of the read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from rmqctl.engine.log.times import CLOCK_SLACK
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.rows.columns import Source, source_of
from rmqctl.spark.remote.urls import shown
from rmqctl.spark.source.pushdown import QueueOffsets

SPLIT_BYTES = 256 << 20


@dataclass(frozen=True)
class ReadSettings:
    """The settings of a read: plain values, because they are sent to the executors.

    ``check_crc``: whether bodies are compared with their CRCs; None: only if they are read.
    ``clock_slack``: by how many milliseconds store times may go back in the log; negative: store
    times are not used to skip files. ``min_partitions``: the fewest splits of the log, which are
    smaller than ``split_bytes`` if necessary. ``fails_on_loss``: damage ends the query with an
    error. ``parallelism``: how many tasks run at once; 0: as many as this machine has cores.
    """

    structure: str
    stores: list[str]
    config: MessageStoreConfig
    check_crc: bool | None = None
    split_bytes: int = SPLIT_BYTES
    clock_slack: int = CLOCK_SLACK
    min_partitions: int = 0
    fails_on_loss: bool = False
    parallelism: int = 0

    def source(self, store: str) -> Source:
        """The columns ``store`` and ``broker`` of a store, by the rule in
        :mod:`rmqctl.rows.columns`."""
        given = self.config.broker_name if len(self.stores) == 1 else ""
        return source_of(shown(store), given)


class Part(NamedTuple):
    """Files ``[start, end)`` of a queue, by their numbers, or items ``[start, end)`` of an index
    file. ``first`` is where the first file of the queue begins, in bytes: files are numbered from
    that one on, also when retention has removed it meanwhile. -1: it is not known, as of a URL."""

    name: str
    queue_id: int
    start: int
    end: int
    first: int = 0


class Split(InputPartition):
    """A part of one store: ``[start, end)`` of the log, or parts of queues or of an index file.

    ``meets_start`` and ``meets_end``: no record is known to begin there, so the real border must be
    found, in the same way as the neighbouring split does. ``problem``: why there is nothing to
    read, because no file has this stretch, or the store cannot be read. ``first_offsets``: the
    queue offsets at which a stream began to read some queues; messages before them are left out.
    ``size``: the bytes to read, as far as known beforehand.
    """

    def __init__(
        self,
        store: str,
        *,
        start: int = 0,
        end: int = 0,
        meets_start: bool = False,
        meets_end: bool = False,
        parts: tuple[Part, ...] = (),
        problem: str = "",
        first_offsets: QueueOffsets | None = None,
        size: int = 0,
    ) -> None:
        super().__init__(None)
        self.store = store
        self.start = start
        self.end = end
        self.meets_start = meets_start
        self.meets_end = meets_end
        self.parts = parts
        self.problem = problem
        self.first_offsets = first_offsets or {}
        self.size = size


class Pack(InputPartition):
    """Several small splits, which one task reads one after the other."""

    def __init__(self, splits: tuple[Split, ...]) -> None:
        super().__init__(None)
        self.splits = splits


def splits_of(partition: InputPartition) -> tuple[Split, ...]:
    """The splits of a task; none for the empty partition that Spark makes if there is no other."""
    if isinstance(partition, Pack):
        return partition.splits
    return (partition,) if isinstance(partition, Split) else ()
