"""The state of the server in numbers: ``getBrokerRuntimeInfo`` and ``viewBrokerStatsData``."""

from __future__ import annotations

import os

from formats.constants import RMQ_SYS_SCHEDULE_TOPIC
from formats.remotingcodes import VERSION_4_9_3, ResponseCode
from rmqctl.engine.services.schedule import queue_id_of
from rmqctl.engine.state import brokerjson
from rmqctl.engine.store import Store
from rmqctl.serve.processors.request import Later, Outcome, Request, Served
from rmqctl.serve.state.statistics import NAMES
from rmqctl.serve.wire.bodies import encode_body
from rmqctl.serve.wire.command import RemotingCommand

_DAY, _HOUR, _MINUTE, _SECOND = 86_400_000, 3_600_000, 60_000, 1000
#: Thread pools with their queues, which only a broker has.
_POOLS = {"sendThreadPool": 10_000, "pullThreadPool": 100_000, "queryThreadPool": 20_000}


def get_runtime_info(served: Served, request: Request) -> Outcome:
    """``prepareRuntimeInfo``: the keys of 4.9.3, without those that would tell paths."""

    def answer(of_store: dict[str, str], now: int) -> Outcome:
        table = _statistics(served) | of_store | _broker(served.store)
        return request.command.answer(ResponseCode.SUCCESS, body=encode_body({"table": table}))

    return Later(lambda: _of_store(served.store), answer)


def view_stats(served: Served, request: Request) -> RemotingCommand:
    """``ViewBrokerStatsData``."""
    name, key = request.fields.text("statsName"), request.fields.text("statsKey")
    item = served.statistics.find(name, key) if name in NAMES else None
    if item is None:
        remark = f"The stats <{name[:127]}> <{key[:255]}> not exist"
        return request.command.answer(ResponseCode.SYSTEM_ERROR, remark)
    minute, hour, day = item.snapshots()
    body = {
        "statsDay": day.as_json(),
        "statsHour": hour.as_json(),
        "statsMinute": minute.as_json(),
    }
    return request.command.answer(ResponseCode.SUCCESS, body=encode_body(body))


def _statistics(served: Served) -> dict[str, str]:
    """``StoreStatsService#getRuntimeInfo`` and ``BrokerStats``."""
    counted = served.statistics
    puts = counted.put.total or 1
    lasted = max(served.now() - served.started, 0)
    parts = lasted // _DAY, lasted % _DAY // _HOUR, lasted % _HOUR // _MINUTE
    days, hours, minutes = (f"{part:,}" for part in parts)
    pairs = zip((counted.found.texts().split(" ")), counted.missed.texts().split(" "), strict=True)
    values: dict[str, object] = {
        "bootTimestamp": served.started,
        "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, "
        f"{lasted % _MINUTE // _SECOND} seconds ]",
        "putMessageEntireTimeMax": 0,
        "putMessageTimesTotal": puts,
        "putMessageFailedTimes": counted.put_failed,
        "putMessageSizeTotal": counted.put_bytes,
        "putMessageDistributeTime": "null",
        "putMessageAverageSize": counted.put_bytes / puts,
        "dispatchMaxBuffer": 0,
        "getMessageEntireTimeMax": 0,
        "putTps": counted.put.texts(),
        "getFoundTps": counted.found.texts(),
        "getMissTps": counted.missed.texts(),
        "getTotalTps": " ".join(str(float(a or 0) + float(b or 0)) for a, b in pairs),
        "getTransferedTps": counted.transferred.texts(),
    }
    for when, (put, got) in zip(("Yesterday", "Today"), counted.mornings, strict=True):
        values |= {f"msgPutTotal{when}Morning": put, f"msgGetTotal{when}Morning": got}
    values["msgPutTotalTodayNow"] = counted.put.total
    values["msgGetTotalTodayNow"] = counted.transferred.total
    return {name: str(value) for name, value in values.items()}


def _of_store(store: Store) -> dict[str, str]:
    """The values of the store and its disk. For any thread."""
    disk = os.statvfs(store.root)
    total, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
    ratio = _used_ratio(total - disk.f_bfree * disk.f_frsize, free)
    # Dispatch never lags behind here: a put dispatches before it returns.
    values: dict[str, object] = {
        "commitLogDiskRatio": ratio,
        "consumeQueueDiskRatio": ratio,
        "commitLogMinOffset": store.min_offset,
        "commitLogMaxOffset": store.max_offset,
        "commitLogDirCapacity": f"Total : {_readable(total)}, Free : {_readable(free)}.",
        "dispatchBehindBytes": 0,
        "earliestMessageTimeStamp": _first_time(store),
    }
    for level, offset in brokerjson.delay_offsets(store.root).items():
        queue = store.consume_queue(RMQ_SYS_SCHEDULE_TOPIC, queue_id_of(level))
        end = queue.max_offset if queue is not None else 0
        values[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
    return {name: str(value) for name, value in values.items()}


def _broker(store: Store) -> dict[str, str]:
    """The values that a server with one thread does not have, as of an idle broker."""
    values: dict[str, object] = {
        "brokerVersion": VERSION_4_9_3,
        "brokerVersionDesc": "V4_9_3",
        "EndTransactionQueueSize": 0,
        "EndTransactionThreadPoolQueueCapacity": 100_000,
        "pageCacheLockTimeMills": 0,
        "startAcceptSendRequestTimeStamp": 0,
        "remainTransientStoreBufferNumbs": 0,
        "remainHowManyDataToFlush": _readable(_behind(store)),
    }
    for pool, capacity in _POOLS.items():
        values |= {f"{pool}QueueSize": 0, f"{pool}QueueHeadWaitTimeMills": 0}
        values[f"{pool}QueueCapacity"] = capacity
    return {name: str(value) for name, value in values.items()}


def _behind(store: Store) -> int:
    """Bytes of the log that are not on disk yet."""
    from rmqctl.engine.messagestore import WritableStore

    return store.writer.flusher.behind if isinstance(store, WritableStore) else 0


def _first_time(store: Store) -> int:
    """``getEarliestMessageTime``: the store time of the log's first record; -1 without one."""
    record = store.commit_log.find_record(store.min_offset)
    return -1 if record is None else record.store_timestamp


def _used_ratio(used: int, usable: int) -> float:
    """How full the disk is, in whole percents rounded up
    (``UtilAll#getDiskPartitionSpaceUsedPercent``)."""
    whole = used + usable
    return -(-used * 100 // whole) / 100 if whole > 0 else -1


def _readable(count: int) -> str:
    """A number of bytes in units of 1024 (``MixAll#humanReadableByteCount``)."""
    if count < 1024:
        return f"{count} B"
    power = (count.bit_length() - 1) // 10
    return f"{count / (1 << 10 * power):.1f} {'KMGTPE'[power - 1]}iB"
