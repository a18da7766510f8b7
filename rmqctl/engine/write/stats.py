"""``StoreStatsService``: what an open store has done, counted from its opening."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

#: ``putMessageDistributeTime``'s classes, as the engine prints them, with their upper ends in
#: milliseconds; the last has none.
PUT_TIME_CLASSES = {
    "<=0ms": 0,
    "0~10ms": 10,
    "10~50ms": 50,
    "50~100ms": 100,
    "100~200ms": 200,
    "200~500ms": 500,
    "500ms~1s": 1000,
    "1~2s": 2000,
    "2~3s": 3000,
    "3~4s": 4000,
    "4~5s": 5000,
    "5~10s": 10_000,
    "10s~": None,
}


class PutCounts(Protocol):
    """The counters of the compiled kernel."""

    def take(self) -> tuple[list[tuple[str, int, int]], list[int], float]:
        """Counts since the last call: ``(topic, messages, bytes)``, puts by class of their times,
        and the longest time (ms)."""


class StoreStats:
    """Counters, safe for many threads. Times are milliseconds.

    A put is one call: for a message, a batch, or one bulk of a stream.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topic_times: Counter[str] = Counter()
        self._topic_sizes: Counter[str] = Counter()
        self.put_message_failed_times = 0
        self._entire_time_max = 0.0
        self._distribute_time = [0] * len(PUT_TIME_CLASSES)
        self._counts: PutCounts | None = None
        self.flush_times = 0
        self.flush_time_total = 0.0
        self.flush_time_max = 0.0

    def counted_by(self, counts: PutCounts) -> None:
        """Sets the kernel's counters, which are taken over when these are read."""
        self._counts = counts

    def _settle(self) -> None:
        """Takes over the kernel's counts."""
        if self._counts is None:
            return
        with self._lock:
            topics, classes, longest = self._counts.take()
            for topic, messages, size in topics:
                self._topic_times[topic] += messages
                self._topic_sizes[topic] += size
            for number, count in enumerate(classes):
                self._distribute_time[number] += count
            self._entire_time_max = max(self._entire_time_max, longest)

    @property
    def put_message_topic_times_total(self) -> Counter[str]:
        """How many messages went to each topic."""
        self._settle()
        return self._topic_times

    @property
    def put_message_topic_size_total(self) -> Counter[str]:
        """How many bytes of records went to each topic."""
        self._settle()
        return self._topic_sizes

    @property
    def put_message_entire_time_max(self) -> float:
        """How long the longest put took."""
        self._settle()
        return self._entire_time_max

    @property
    def put_message_distribute_time(self) -> list[int]:
        """How many puts there were in each of :data:`PUT_TIME_CLASSES`."""
        self._settle()
        return self._distribute_time

    def stored(self, rows: Iterable[tuple[str, int]]) -> None:
        """Counts messages that are in the log, given as topic and size."""
        self.stored_many((topic, 1, size) for topic, size in rows)

    def stored_many(self, totals: Iterable[tuple[str, int, int]]) -> None:
        """Counts several messages at once: topic, messages and their bytes."""
        with self._lock:
            times, sizes = self._topic_times, self._topic_sizes
            for topic, messages, size in totals:
                times[topic] += messages
                sizes[topic] += size

    def put_ended(self, elapsed: float, failed: int = 0) -> None:
        """Counts a put that took ``elapsed``; ``failed`` of its messages are not PUT_OK."""
        with self._lock:
            self.put_message_failed_times += failed
            self._entire_time_max = max(self._entire_time_max, elapsed)
            self._distribute_time[_time_class(elapsed)] += 1

    def flushed(self, elapsed: float) -> None:
        """Counts a flush of the log that took ``elapsed``."""
        with self._lock:
            self.flush_times += 1
            self.flush_time_total += elapsed
            self.flush_time_max = max(self.flush_time_max, elapsed)

    @property
    def put_message_times_total(self) -> int:
        return sum(self.put_message_topic_times_total.values())

    @property
    def put_message_size_total(self) -> int:
        return sum(self.put_message_topic_size_total.values())


def _time_class(elapsed: float) -> int:
    """``setPutMessageEntireTimeMax``: whole milliseconds, each class below its upper end."""
    millis = int(elapsed)
    if millis <= 0:
        return 0
    ends = enumerate(PUT_TIME_CLASSES.values())
    return next(number for number, end in ends if end is None or millis < end)
