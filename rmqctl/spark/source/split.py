"""What one task is given: a split of a store, and how its reader was told to read."""

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
    """What a reader was told; plain values, for it travels to the executors.

    ``check_crc``: whether ``status`` tells of bodies; None: when bodies are read, too.
    ``clock_slack`` are milliseconds by which store times may go back in the log; a negative one
    means that they say nothing about places. ``min_partitions``: splits of the log are smaller than
    ``split_bytes`` where there would be fewer. ``fails_on_loss``: damage ends the query.
    ``parallelism``: how many tasks run at once; 0: as many as this machine has cores.
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
        """What rows say of a store; the rule of the broker's name is in :mod:`.columns`."""
        given = self.config.broker_name if len(self.stores) == 1 else ""
        return source_of(shown(store), given)


class Part(NamedTuple):
    """Files ``[start, end)`` of a queue by their numbers, or items of an index file."""

    name: str
    queue_id: int
    start: int
    end: int


class Split(InputPartition):
    """A part of one store: ``[start, end)`` of the log, or parts of queues or of an index file.

    ``meets_start`` and ``meets_end`` say that these places are not known to be a record's start,
    and have to be met with the neighbour. ``problem`` says that there is nothing to read: no file
    holds the stretch, or the store cannot be read. ``first_offsets`` are where a stream began to
    read some queues: what these have before is left out. ``size`` are the bytes that are to be
    read, as far as that is known beforehand.
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
    """Small splits that one task reads one after the other."""

    def __init__(self, splits: tuple[Split, ...]) -> None:
        super().__init__(None)
        self.splits = splits


def splits_of(partition: InputPartition) -> tuple[Split, ...]:
    """What a task is to read; none of the empty partition that Spark makes where there is none."""
    if isinstance(partition, Pack):
        return partition.splits
    return (partition,) if isinstance(partition, Split) else ()
