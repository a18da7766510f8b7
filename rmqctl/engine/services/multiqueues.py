"""Queues that ``enableMultiDispatch`` has filled, and what they say of a broker's settings.

A ``broker.conf`` says what a broker does from now on. To which further queues a message went was
settled when it was stored: it names them (INNER_MULTI_DISPATCH), and only an append with
``enableMultiDispatch`` has given it offsets there (``MultiDispatch#wrapMultiDispatch``). A broker
whose switches were turned since leaves these queues as they are. So where queues are there that the
switches do not explain, the queues count, and they are checked and built as they were written.
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

#: Units of a queue that are looked at, from its first to its last; and queues, at most.
_SAMPLES, _MOST_QUEUES = 16, 1000


class UnexplainedQueue(NamedTuple):
    """A queue of messages that name it, which would be dispatched to others; ``units`` are those
    whose place the log has."""

    topic: str
    queue_id: int
    units: int


def as_written(root: Path, config: MessageStoreConfig) -> MessageStoreConfig:
    """The configuration, with what the queues of the store contradict as ``overruled``.

    ``enable_multi_dispatch``: it is switched off, and there are light queues, or others of messages
    that name them. ``enable_lmq``: light queues have the numbers that they have without it, or with
    it, and none has those that they should have. Some units of each queue are looked at.
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
    """Light queues that a rebuild under a configuration, :func:`as_written`, would leave out or
    take units from: their messages name them, and would be dispatched to another number."""
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
    """The records of some units of each queue of a store."""

    def __init__(self, root: Path, config: MessageStoreConfig) -> None:
        self._log = open_commit_log(root, config, commit_log_file_size(root, config))
        self._file_size = consume_queue_file_size(root, config)
        self._permissive = Dispatcher(MessageStoreConfig())
        self.directories = list(paths.queue_directories(root / paths.CONSUME_QUEUE))
        self.light = [w for w in self.directories if w.topic.startswith(LMQ_PREFIX)]

    @property
    def are_multi(self) -> bool:
        """Whether messages of other queues fill one. A light queue need not have a unit that can be
        read for that: nothing else makes one but a topic of that name."""
        if any(
            not any(_is_own(where, one[1]) for one in self._placed(where)) for where in self.light
        ):
            return True
        return any(any(self.of(where)) for where in islice(self.directories, _MOST_QUEUES))

    def are_of_other_numbers(self, queues: Iterable[QueueDirectory]) -> bool:
        """Whether one of some light queues of number 0 has messages of queues of other numbers."""
        some = islice(queues, _MOST_QUEUES)
        return any(record.queue_id for where in some for record in self.of(where))

    def of(self, where: QueueDirectory) -> Iterator[Record]:
        """Sampled records of other queues that name this one, with the place where they stand."""
        for place, record in self._placed(where):
            named = self._permissive.multi_dispatch(record)
            is_named = any((name, offset) == (where.topic, place) for name, _, offset in named)
            if is_named and not _is_own(where, record):
                yield record

    def units(self, where: QueueDirectory) -> int:
        """How many units of a queue lie in the log's range."""
        with closing(self._open(where)) as queue:
            return queue.max_offset - queue.min_offset

    def _placed(self, where: QueueDirectory) -> Iterator[tuple[int, Record]]:
        """Queue offset and record of the sampled units that have one. What cannot be read has none:
        who reads it next says so."""
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
