"""Queues that ``enableMultiDispatch`` has filled, and the settings that they prove.

A ``broker.conf`` says what a broker does from now on. But a message's further queues were settled
when it was stored: it names them (INNER_MULTI_DISPATCH), and only an append with
``enableMultiDispatch`` gave it offsets there (``MultiDispatch#wrapMultiDispatch``). If the switches
were changed since, a broker leaves these queues as they are. So if the switches do not explain the
existing queues, the queues count: they are checked and built as they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from formats.constants import LMQ_PREFIX
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.files import paths
from rmqctl.engine.files.paths import QueueDirectory
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.queue.consumequeue import ConsumeQueue
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.filesizes import commit_log_file_size, consume_queue_file_size
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import CannotRead

#: Units of a queue that are sampled, from its first to its last; and the most queues.
_SAMPLES, _MOST_QUEUES = 16, 1000


class UnexplainedQueue(NamedTuple):
    """A queue whose messages would be dispatched to others instead. ``units`` is how many of its
    units point into the log."""

    topic: str
    queue_id: int
    units: int


def as_written(root: Path, config: MessageStoreConfig) -> MessageStoreConfig:
    """The configuration, with ``overruled`` set to the settings that the store's queues contradict.

    ``enable_multi_dispatch``: it is off, but there are light queues, or other queues with messages
    that name them. ``enable_lmq``: all light queues have the queue ids of the other setting. Some
    units of each queue are sampled.
    """
    multi_off = config.is_explicit("enable_multi_dispatch") and not config.enable_multi_dispatch
    light_names = [n for n in _topics(root) if n.startswith(LMQ_PREFIX)]
    if not light_names and not multi_off:
        return config
    overruled = set()
    with closing(_Samples(root, config)) as samples:
        if multi_off and samples.are_multi:
            overruled.add("enable_multi_dispatch")
        expects_lmq = Dispatcher(config).has_light_queues
        numbered = [where for where in samples.light if where.queue_id]
        if numbered or not expects_lmq:
            has_lmq = samples.are_of_other_numbers(w for w in samples.light if not w.queue_id)
            has_own = any(any(samples.of(where)) for where in numbered)
            if (has_own, has_lmq) == (expects_lmq, not expects_lmq):
                overruled.add("enable_lmq")
    return replace(config, overruled=frozenset(overruled)) if overruled else config


def unexplained(root: Path, config: MessageStoreConfig) -> tuple[UnexplainedQueue, ...]:
    """Light queues that a rebuild would leave out or take units from, under a configuration of
    :func:`as_written`: their messages would be dispatched to another queue id."""
    dispatcher = Dispatcher(config)
    if not any(name.startswith(LMQ_PREFIX) for name in _topics(root)):
        return ()
    with closing(_Samples(root, config)) as samples:
        return tuple(
            UnexplainedQueue(where.topic, where.queue_id, samples.units(where))
            for where in samples.light
            if bool(where.queue_id) == dispatcher.has_light_queues
            and any(
                dispatcher.multi_queue_id(where.topic, record.queue_id) != where.queue_id
                for record in samples.of(where)
            )
        )


def _topics(root: Path) -> list[str]:
    return paths.scan_names(root / paths.CONSUME_QUEUE)


class _Samples:
    """Samples the records of some units of each queue of a store."""

    def __init__(self, root: Path, config: MessageStoreConfig) -> None:
        self._log = open_commit_log(root, config, commit_log_file_size(root, config))
        self._file_size = consume_queue_file_size(root, config)
        self._permissive = Dispatcher(MessageStoreConfig())
        self.directories = list(paths.queue_directories(root / paths.CONSUME_QUEUE))
        self.light = [w for w in self.directories if w.topic.startswith(LMQ_PREFIX)]

    @property
    def are_multi(self) -> bool:
        """Whether some queue was filled with messages of other queues. For a light queue this is
        also true without readable units: only a topic of its name could make it otherwise."""
        if any(
            not any(_is_own(where, one[1]) for one in self._placed(where)) for where in self.light
        ):
            return True
        return any(any(self.of(where)) for where in islice(self.directories, _MOST_QUEUES))

    def are_of_other_numbers(self, queues: Iterable[QueueDirectory]) -> bool:
        """Whether a light queue with id 0 has messages of queues with other ids; a sample
        decides."""
        some = islice(queues, _MOST_QUEUES)
        return any(record.queue_id for where in some for record in self.of(where))

    def of(self, where: QueueDirectory) -> Iterator[Record]:
        """Sampled records of other queues that name this queue and their offset in it."""
        for place, record in self._placed(where):
            named = self._permissive.multi_dispatch(record)
            is_named = any((name, offset) == (where.topic, place) for name, _, offset in named)
            if is_named and not _is_own(where, record):
                yield record

    def units(self, where: QueueDirectory) -> int:
        """How many units of a queue point into the log."""
        with closing(self._open(where)) as queue:
            return queue.max_offset - queue.min_offset

    def _placed(self, where: QueueDirectory) -> Iterator[tuple[int, Record]]:
        """Queue offset and record of sampled units that have a record. Nothing for a queue that
        cannot be read: a later reader reports that."""
        try:
            with closing(self._open(where)) as queue:
                last = queue.max_offset - queue.min_offset - 1
                for number in range(min(last + 1, _SAMPLES)):
                    place = queue.min_offset + number * last // max(min(last, _SAMPLES - 1), 1)
                    unit = queue.unit(place)
                    record = unit and self._log.find_record(unit.physical_offset)
                    if record is not None:
                        yield place, record
        except CannotRead:
            return

    def _open(self, where: QueueDirectory) -> ConsumeQueue:
        queue = ConsumeQueue(where.path, where.topic, where.queue_id, self._file_size)
        queue.cut(self._log.min_offset, self._log.files.end_offset)
        return queue

    def close(self) -> None:
        self._log.close()


def _is_own(where: QueueDirectory, record: Record) -> bool:
    return (record.topic, record.queue_id) == (where.topic, where.queue_id)
