"""A stream from one store to another that is killed at any moment: each message comes once.

The night's run kills twenty times for each way to say where it begins and how much a batch has: now
the driver with its Java, and now the Python processes that have one part of the work, which ends
the stream as well, and costs no new Java.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from tests.test_spark.conftest import engine_rows, why_not
from tests.test_spark.test_kill import Run

pytest.importorskip("pyarrow", reason="pip install '.[spark]'")

from rmqctl.spark.sink.append import APPEND

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

#: Of so many kills the last one is of the driver, with its Java: a new one takes the longest.
_KILLS_A_DRIVER = 7
#: So many changes of a stream's files come between its start and a kill, at most.
_CHANGES = 8

#: What an earlier kill may do to a later stream: of an idle Python process that has died Spark
#: tells the one that had forked it, and where that was killed too, its
#: ``PythonWorkerFactory#create`` fails instead of beginning another one.
_LATE = "java.io.IOException: Stream closed"
#: Streams in a row that this may happen to: one for each idle process, of which there are few.
_MOST_LATE = 5

#: Runs a stream to its end for each line, and says how that was.
_DRIVER = """
import json, sys
from rmqctl.spark.session import session
with session.session("local[1]", {"spark.sql.shuffle.partitions": "1"}) as spark:
    from rmqctl.spark import RocketMQDataSource
    spark.dataSource.register(RocketMQDataSource)
    for line in sys.stdin:
        root, new, checkpoint, conf, options = json.loads(line)
        try:
            source = spark.readStream.format("rocketmq").options(**options)
            source = source.option("brokerConf", conf).option("columns", "topic,queue_id,body")
            query = source.load(root).writeStream.format("rocketmq").option("brokerConf", conf)
            query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True)
            query.start(new).awaitTermination()
            print("", flush=True)
        except Exception as error:
            print(json.dumps(str(error)), flush=True)
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


class Driver(Run):
    """A process with a session, in which streams run until it is killed. ``was_hit``: some of its
    Python processes were."""

    def __init__(self, directory: Path) -> None:
        self.was_hit = False
        directory.mkdir()
        super().__init__(directory, "-c", _DRIVER)

    def begin(self, *arguments: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()

    def has_answered(self) -> bool:
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def answer(self) -> str:
        """Why the stream has failed; nothing when it came to its end."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()
        return line.strip()

    def workers(self) -> list[list[int]]:
        """Python processes that do a stream's work, by what they do: they say where the source is,
        read and write, and put into the store what was written."""
        found: dict[str, list[int]] = {}
        for pid in self.living():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            except OSError:
                continue  # It has ended.
            if worker := next((word for word in words if word in _WORKERS), None):
                found.setdefault(worker, []).append(pid)
        return [found[name] for name in sorted(found)]


_WORKERS = {
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.python_streaming_sink_runner",
}


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Driver]]:
    """The driver that lives, or a new one."""
    top, made = tmp_path_factory.mktemp("drivers"), list[Driver]()

    def driver() -> Driver:
        if not made or made[-1].process.poll() is not None:
            made.append(Driver(top / str(len(made))))
        return made[-1]

    yield driver
    out, err = made[-1].process.communicate(timeout=400)
    assert (made[-1].process.returncode, out, err) == (0, "", "")


class Stream(NamedTuple):
    """Where one is and what it has to do."""

    root: Path
    new: Path
    checkpoint: Path
    options: dict[str, str]

    def begin(self, driver: Driver) -> None:
        places = map(str, (self.root, self.new, self.checkpoint))
        driver.begin(*places, CONF, self.options)

    def files(self) -> set[Path]:
        """What tells how far it is: batches that are planned or done, and what tasks have set aside
        and who puts it into the store has noted."""
        notes = [*self.checkpoint.glob("[oc]*/[0-9]*"), *(self.new / APPEND).glob("**/*")]
        return set(notes)

    def goes_on(self, driver: Driver, changes: int) -> None:
        """Waits for so many changes, or its end."""
        before = self.files()
        while changes > 0 and not driver.has_answered():
            assert driver.process.poll() is None, driver.process.communicate()
            time.sleep(0.005)
            now = self.files()
            changes -= len(before ^ now)
            before = now


def is_killed(driver: Driver, stream: Stream, chance: random.Random, whole: bool) -> bool:
    """Kills a process of a stream, and says whether that was its end. One that an earlier kill has
    ended does not count."""
    if whole:
        return driver.is_killed(signal.SIGKILL)
    kinds = driver.workers()
    if kinds and not driver.has_answered():
        driver.was_hit = True
        for pid in chance.choice(kinds):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(driver.answer())
    reason = driver.answer()
    is_late = driver.was_hit and _LATE in reason
    assert not reason or is_late, f"nobody was killed: {reason}"
    return False


@pytest.mark.parametrize("way", WAYS)
def test_each_message_comes_once_over_kills(
    way: str, tmp_path: Path, chance: random.Random, drivers: Callable[[], Driver]
) -> None:
    options, is_wanted = WAYS[way]
    stream = Stream(tmp_path / "store", tmp_path / "new", tmp_path / "checkpoint", options)
    clock, numbers, rounds = count(BEGIN, 1000).__next__, count(), count()
    killed = 0

    def put(messages: int) -> None:
        with MessageStore(stream.root, CONFIG, writable=True, create=True, clock=clock) as store:
            for _ in range(messages):
                number = next(numbers)
                message = MessageExtBrokerInner("ab"[number % 2], b"%06d " % number + b"x" * 60)
                assert store.put_message(message).is_ok

    put(BEFORE)
    while killed < KILLS:
        assert next(rounds) < 9 * KILLS, f"it was over before, but for {killed} times"
        driver = drivers()
        stream.begin(driver)
        stream.goes_on(driver, chance.randrange(1, _CHANGES))
        killed += is_killed(driver, stream, chance, killed % _KILLS_A_DRIVER == _KILLS_A_DRIVER - 1)
        put(MORE)
    driver = drivers()
    for _ in range(_MOST_LATE):
        stream.begin(driver)
        reason = driver.answer()
        if not (driver.was_hit and _LATE in reason):
            break
    assert reason == ""
    found = [int(row["body"].split()[0]) for row in engine_rows("commitlog", stream.new, CONFIG)]
    assert found == [number for number in range(next(numbers)) if is_wanted(number)]
