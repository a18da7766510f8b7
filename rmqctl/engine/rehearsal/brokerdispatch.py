"""``DefaultMessageStore#doDispatch``: the units that a start appends to the queues."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from formats import constants
from rmqctl.engine.derive.writer import group_by_queue
from rmqctl.engine.dispatch.batches import unit_batch
from rmqctl.engine.dispatch.multi import offsets_are_numbers
from rmqctl.engine.dispatch.rules import MAX_QUEUE_OFFSET, NO_UNIT, Dispatcher, topic_allows_lmq
from rmqctl.engine.files.paths import topic_directory_problem
from rmqctl.engine.rehearsal.brokerqueue import BrokerQueue
from rmqctl.engine.rehearsal.brokerrecord import Request
from rmqctl.engine.rehearsal.model import StartFails
from rmqctl.engine.settings.storeconfig import MessageStoreConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rmqctl.engine.rehearsal.model import Deleted
    from rmqctl.engine.scan.batch import Batch

#: Problems of names that the system refuses. The engine takes all other names, wherever they lead.
_REFUSED = ("it contains a NUL", "it is longer than a file name")


class BrokerQueues:
    """``consumeQueueTable``: the queues by topic and queue id."""

    def __init__(
        self,
        base: Path,
        config: MessageStoreConfig,
        file_size: int,
        deleted: list[Deleted],
        *,
        as_5: bool,
    ) -> None:
        self._base, self._file_size, self._deleted = base, file_size, deleted
        self._dispatcher = Dispatcher(config)
        self._as_5 = as_5
        # With enableMultiDispatch 4.9.3 fails at a message without properties.
        self._needs_properties = config.is_explicit("enable_multi_dispatch") and (
            config.enable_multi_dispatch and not as_5
        )
        #: Whether the start notifies waiting consumers of each message and its extra queues. It
        #: does so whatever the switches say
        #: (``ReputMessageService#notifyMessageArrive4MultiQueue``).
        self.notifies = False
        #: ``makeLogicsQueueError``: after a failed append no queue gets anything more.
        self._is_broken = False
        self.table: dict[tuple[str, int], BrokerQueue] = {}

    def of(self, topic: str, queue_id: int) -> BrokerQueue:
        """``findConsumeQueue``: makes the queue when there is none."""
        queue = self.table.get((topic, queue_id))
        if queue is None:
            queue = self.add(topic, queue_id, self._base / topic / str(queue_id))
        return queue

    def add(self, topic: str, queue_id: int, directory: Path) -> BrokerQueue:
        queue = BrokerQueue(topic, queue_id, directory, self._file_size, self._deleted)
        self.table[topic, queue_id] = queue
        return queue

    @property
    def max_physical_offset(self) -> int:
        """``maxPhyOffsetOfConsumeQueue``; -1 without units."""
        return max((queue.max_physical_offset for queue in self.table.values()), default=-1)

    # --- dispatch ------------------------------------------------------------------------

    def put(self, request: Request) -> None:
        """Dispatches one message. :raises StartFails: the engine fails at it."""
        if self.notifies and request.properties is not None:
            self._check_offsets(request.properties, request.physical_offset)
        if request.sys_flag & constants.TRANSACTION_TYPE_MASK in NO_UNIT:
            return
        self._put_unit(request.topic, request.queue_id, request.queue_offset, request)
        properties = request.properties
        if properties is None:
            if self._needs_properties:
                raise StartFails(
                    f"the message at {request.physical_offset} has no properties, on which "
                    "enableMultiDispatch fails"
                )
            return
        if self._as_5 and not topic_allows_lmq(request.topic):
            return
        if self._dispatcher.is_multi:
            self._check_offsets(properties, request.physical_offset)
        for name, queue_id, offset in self._dispatcher.named_queues(properties, request.queue_id):
            self._put_unit(name, queue_id, offset, request)

    def _put_unit(self, topic: str, queue_id: int, queue_offset: int, request: Request) -> None:
        if self._is_broken:
            return
        if topic_directory_problem(topic) in _REFUSED:
            self._is_broken = True
            return
        self.of(topic, queue_id).put(request.physical_offset, request.size, queue_offset)

    def _check_offsets(self, properties: dict[str, str], physical_offset: int) -> None:
        if not offsets_are_numbers(properties):
            does_not = ", at which the dispatch does not get on" if self.notifies else ""
            raise StartFails(
                f"the offsets of extra queues of the message at {physical_offset} are no numbers"
                + does_not
            )

    def put_batch(self, batch: Batch, start: int, end: int) -> None:
        """Dispatches the records of a batch in ``[start, end)`` (physical offsets), all regular."""
        low, high = (int(at) for at in np.searchsorted(batch.physical_offset, (start, end)))
        if low >= high or self._is_broken:
            return
        if self._is_odd(batch, low, high):
            for row in range(low, high):
                self.put(_request(batch, row))
            return
        units = unit_batch(batch, self._dispatcher)
        taken = (units.physical_offset >= start) & (units.physical_offset < end)
        columns = [column[taken] for column in (units.topic_id, units.queue_id)]
        values = [
            column[taken] for column in (units.physical_offset, units.size, units.queue_offset)
        ]
        for topic_id, queue_id, rows in group_by_queue(*columns):
            queue = self.of(batch.topics.names[topic_id], queue_id)
            queue.put_all(*(_rows(column, rows) for column in values))

    def _is_odd(self, batch: Batch, low: int, high: int) -> bool:
        """Whether some of these rows need more than the scanner's columns for their dispatch."""
        rows = slice(low, high)
        kind = batch.sys_flag[rows] & constants.TRANSACTION_TYPE_MASK
        regular = batch.topics.allowed_array()[batch.topic_id[rows]]
        regular = regular & (batch.queue_id[rows] >= 0) & (batch.queue_offset[rows] >= 0)
        regular &= batch.queue_offset[rows] <= MAX_QUEUE_OFFSET
        if self._needs_properties:
            regular &= batch.properties_length[rows] > 0
        multi = batch.multi_dispatch_rows
        if (self._dispatcher.is_multi or self.notifies) and ((multi >= low) & (multi < high)).any():
            return True
        return not bool((regular | np.isin(kind, NO_UNIT)).all())


def _rows(column: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return column[rows]


def _request(batch: Batch, row: int) -> Request:
    record = batch.record(row)
    return Request(
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.total_size,
        record.sys_flag,
        record.store_timestamp,
        record.properties if record.properties_bytes else None,
    )
