"""``BrokerStatsManager`` and ``StoreStatsService``: what has been sent and consumed, and how fast.

Everything is counted since the server began, and sampled when somebody says what time it is.
"""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

from formats.constants import RMQ_SYS_SCHEDULE_TOPIC

TOPIC_PUT_NUMS, TOPIC_PUT_SIZE = "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"
GROUP_GET_NUMS, GROUP_GET_SIZE = "GROUP_GET_NUMS", "GROUP_GET_SIZE"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS, BROKER_GET_NUMS = "BROKER_PUT_NUMS", "BROKER_GET_NUMS"
NAMES = frozenset(
    (
        TOPIC_PUT_NUMS,
        TOPIC_PUT_SIZE,
        GROUP_GET_NUMS,
        GROUP_GET_SIZE,
        SNDBCK_PUT_NUMS,
        BROKER_PUT_NUMS,
        BROKER_GET_NUMS,
    )
)
#: Items of all statistics together: a client that invents topics and groups makes no more of them.
MAX_ITEMS = 20_000
#: Milliseconds between the samples of a minute, an hour and a day, and how many samples there are
#: (``StatsItem#samplingInSeconds`` and its like).
_SERIES = ((10_000, 7), (600_000, 7), (3_600_000, 25))
#: ``StoreStatsService`` samples each second, and remembers ten minutes.
_SECOND, _SECONDS = 1000, 600


class Snapshot(NamedTuple):
    """``StatsSnapshot``: what was counted in a stretch of time, per second and per call."""

    sum: int
    tps: float
    avgpt: float

    def as_json(self) -> dict[str, float]:
        return {"avgpt": self.avgpt, "sum": self.sum, "tps": self.tps}


class _Call(NamedTuple):
    """``CallSnapshot``."""

    time: int
    value: int
    times: int


class StatsItem:
    """One thing that is counted: ``value`` is what came together in ``times`` calls."""

    __slots__ = ("_series", "times", "value")

    def __init__(self) -> None:
        self.value = self.times = 0
        self._series: list[deque[_Call]] = [deque(maxlen=most) for _, most in _SERIES]

    def add(self, value: int, times: int = 1) -> None:
        self.value += value
        self.times += times

    def sample(self, series: int, now: int) -> None:
        calls = self._series[series]
        if not calls:
            calls.append(_Call(now - _SERIES[series][0], 0, 0))
        calls.append(_Call(now, self.value, self.times))

    def snapshots(self) -> tuple[Snapshot, Snapshot, Snapshot]:
        """Of the last minute, hour and day."""
        minute, hour, day = (_between(calls) for calls in self._series)
        return minute, hour, day


def _between(calls: deque[_Call]) -> Snapshot:
    if not calls:
        return Snapshot(0, 0.0, 0.0)
    first, last = calls[0], calls[-1]
    total, times = last.value - first.value, last.times - first.times
    span = last.time - first.time
    per_second = total * 1000 / span if span > 0 else 0.0
    return Snapshot(total, per_second, total / times if times > 0 else 0.0)


class Rate:
    """Something that is counted each second (``StoreStatsService#sampling``)."""

    def __init__(self) -> None:
        self.total = 0
        self._samples: deque[tuple[int, int]] = deque(maxlen=_SECONDS + 1)

    def sample(self, now: int) -> None:
        self._samples.append((now, self.total))

    def tps(self, seconds: int) -> float | None:
        """Per second, in the last so many seconds; None: it has not been counted for so long."""
        if len(self._samples) <= seconds:
            return None
        (then, before), (now, total) = self._samples[-seconds - 1], self._samples[-1]
        return (total - before) * 1000 / (now - then) if now > then else 0.0

    def texts(self) -> str:
        """Of 10, 60 and 600 seconds, as a broker writes it: nothing where it does not know yet.
        ``clusterList`` takes the first of them for a number, so that there is always one."""
        found = [self.tps(seconds) for seconds in (10, 60, 600)]
        first, *rest = ("" if one is None else str(one) for one in found)
        return " ".join((first or "0.0", *rest))


class Statistics:
    """All of a server.

    :param cluster: name of the cluster, under which a broker counts for itself.
    """

    def __init__(self, cluster: str, now: int = 0) -> None:
        self._cluster = cluster
        self._items: dict[tuple[str, str], StatsItem] = {}
        self._sampled = [now] * len(_SERIES)
        self._second = now
        #: Messages stored, pulls that found something or nothing, messages that went out.
        self.put, self.found, self.missed, self.transferred = Rate(), Rate(), Rate(), Rate()
        self.put_bytes = self.put_failed = 0
        self._day: tuple[int, ...] | None = None
        #: Until the midnight before the last, and until the last one (``BrokerStats``).
        self.mornings = [(0, 0), (0, 0)]

    def count_stored(self, messages: int, size: int) -> None:
        """Messages that the log has got, whoever has sent them, and their bytes."""
        self.put.total += messages
        self.put_bytes += size

    def count_put(self, topic: str, messages: int, size: int) -> None:
        """What a producer has sent to a topic."""
        self._add(TOPIC_PUT_NUMS, topic, messages)
        self._add(TOPIC_PUT_SIZE, topic, size)
        self._add(BROKER_PUT_NUMS, self._cluster, messages)

    def count_sent_back(self, group: str, topic: str, where: str, size: int) -> None:
        """A message of ``topic`` that a consumer has sent back; ``where`` is the topic in which it
        waits, which counts when that is the one of delayed messages."""
        if where == RMQ_SYS_SCHEDULE_TOPIC:
            self._add(TOPIC_PUT_NUMS, where, 1)
            self._add(TOPIC_PUT_SIZE, where, size)
        self._add(SNDBCK_PUT_NUMS, f"{topic}@{group}", 1)

    def count_pull(self, group: str, topic: str, messages: int, size: int) -> None:
        """A pull that was answered, with so many messages."""
        if not messages:
            self.missed.total += 1
            return
        self.found.total += 1
        self.transferred.total += messages
        key = f"{topic}@{group}"
        self._add(GROUP_GET_NUMS, key, messages)
        self._add(GROUP_GET_SIZE, key, size)
        self._add(BROKER_GET_NUMS, self._cluster, messages)

    def _add(self, name: str, key: str, value: int) -> None:
        item = self._items.get((name, key))
        if item is None:
            if len(self._items) >= MAX_ITEMS:
                return
            item = self._items[name, key] = StatsItem()
        item.value += value
        item.times += 1

    def find(self, name: str, key: str) -> StatsItem | None:
        return self._items.get((name, key))

    def group_get_tps(self, group: str, topic: str) -> float:
        """``tpsGroupGetNums``."""
        item = self.find(GROUP_GET_NUMS, f"{topic}@{group}")
        return item.snapshots()[0].tps if item is not None else 0.0

    def sample(self, now: int) -> None:
        """What time does; to be called about once a second."""
        if now - self._second >= _SECOND:
            self._second = now
            for rate in (self.put, self.found, self.missed, self.transferred):
                rate.sample(now)
        for series, (interval, _) in enumerate(_SERIES):
            if now - self._sampled[series] >= interval:
                self._sampled[series] = now
                for item in self._items.values():
                    item.sample(series, now)

    def look_at_the_date(self, now: int) -> None:
        """Notes what was counted until the last midnight, once a new day has begun where the server
        runs (``BrokerStats#record``). :param now: milliseconds since the epoch."""
        day = time.localtime(now / 1000)[:3]
        if self._day is not None and day > self._day:
            self.mornings = [self.mornings[1], (self.put.total, self.transferred.total)]
            self._day = day
        elif self._day is None:
            self._day = day
