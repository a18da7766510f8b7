"""A stream from one store to another that is killed at any moment: each message comes once.

The night's run kills twenty times for each way to say where it begins and how much a batch has.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from tests.test_spark.conftest import engine_rows, wait_until, why_not
from tests.test_spark.test_kill import Run

pytestmark = [
    pytest.mark.xdist_group("spark-processes"),
    pytest.mark.nightly,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]

CONF = "mappedFileSizeCommitLog=16384\nmappedFileSizeConsumeQueue=1000\nmessageIndexEnable=false\n"
CONFIG = parse_broker_conf(CONF)
KILLS = int(os.environ.get("RMQCTL_NIGHTLY", "20"))
#: Messages that are there before the stream begins, and that come before each of its runs.
BEFORE, MORE = 40, 30
#: From where on messages are wanted, by queue offset, as an option and by number of the message.
FIRST = 6
BEGIN = 1_700_000_000_000

_STREAM = """
import json, sys
from rmqctl.rows.columns import ddl
from rmqctl.spark.session import session
root, new, checkpoint, conf, options = sys.argv[1:]
with session.session("local[2]", {"spark.sql.shuffle.partitions": "2"}) as spark:
    from rmqctl.spark import RocketMQDataSource
    spark.dataSource.register(RocketMQDataSource)
    source = spark.readStream.format("rocketmq").options(**json.loads(options))
    rows = source.option("brokerConf", conf).option("columns", "topic,queue_id,body").load(root)
    query = rows.writeStream.format("rocketmq").option("brokerConf", conf)
    query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(new)
    query.awaitTermination()
"""
#: Options, and which messages they want, by number.
WAYS: dict[str, tuple[dict[str, str], Callable[[int], bool]]] = {
    "bytes": ({"maxBytesPerTrigger": "2k"}, lambda number: True),
    "offsets": ({"maxOffsetsPerTrigger": "9", "failOnDataLoss": "true"}, lambda number: True),
    "queues": (
        {"maxOffsetsPerTrigger": "9", "startingOffsets": json.dumps({"a": {"0": FIRST}})},
        lambda number: number % 2 == 1 or number // 2 >= FIRST,
    ),
    "time": (
        {"maxBytesPerTrigger": "2k", "startingTimestamp": str(BEGIN + 10_000)},
        lambda number: number >= 10,
    ),
    "topic": ({"maxOffsetsPerTrigger": "5", "subscribe": "b"}, lambda number: number % 2 == 1),
    "pattern": (
        {"maxBytesPerTrigger": "2k", "subscribePattern": "[b-z]+", "minPartitions": "3"},
        lambda number: number % 2 == 1,
    ),
}


def _goes_on(run: Run, begun: set[str], offsets: Callable[[], set[str]]) -> bool:
    return run.process.poll() is not None or bool(offsets() - begun)


@pytest.mark.parametrize("way", WAYS)
def test_each_message_comes_once_over_kills(
    way: str, tmp_path: Path, chance: random.Random
) -> None:
    options, is_wanted = WAYS[way]
    root, new, checkpoint = (tmp_path / name for name in ("store", "new", "checkpoint"))
    clock, numbers = count(BEGIN, 1000).__next__, count()
    arguments = [str(root), str(new), str(checkpoint), CONF, json.dumps(options)]
    killed = 0

    def put(messages: int) -> None:
        with MessageStore(root, CONFIG, writable=True, create=True, clock=clock) as store:
            for _ in range(messages):
                number = next(numbers)
                message = MessageExtBrokerInner("ab"[number % 2], b"%06d " % number + b"x" * 60)
                assert store.put_message(message).is_ok

    def offsets() -> set[str]:
        return {one.name for one in (checkpoint / "offsets").glob("[0-9]*")}

    put(BEFORE)
    while killed < KILLS:
        begun = offsets()
        run = Run(tmp_path, "-c", _STREAM, *arguments)
        # A batch is under way, and then anything may be: the stream's end, too.
        wait_until(partial(_goes_on, run, begun, offsets), seconds=600)
        time.sleep(chance.random() * 2)
        killed += run.is_killed(signal.SIGKILL)
        put(MORE)
    run = Run(tmp_path, "-c", _STREAM, *arguments)
    out, err = run.process.communicate(timeout=400)
    assert (run.process.returncode, err) == (0, ""), out
    found = [int(row["body"].split()[0]) for row in engine_rows("commitlog", new, CONFIG)]
    assert found == [number for number in range(next(numbers)) if is_wanted(number)]
