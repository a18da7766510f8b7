"""Makes the golden store of timed messages, with a whole broker of 5.3.3.

    python -m tests.interop.goldentimer [NAME]

The broker is started three times. The first time it has a short roll window: messages are
delivered, one is recalled, and one is rolled. The second time it has the usual window, and messages
of every kind are left waiting. The third time nothing goes into the wheel. ``NAME.tar.xz`` is the
store; ``NAME.expected.ndjson.xz`` has what 5.3.3's own classes say of its timer files, what its log
holds, what was sent, and when the broker ended.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import subprocess
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

from rmqctl.engine.messagestore import MessageStore, system_clock
from rmqctl.engine.record.record import Record
from tests.golden_data import GOLDEN, copy_tree
from tests.interop.engine import Engine, Row, build
from tests.interop.golden import enter, new_file
from tests.interop.stores import config_of

VERSION = "5.3.3"
TOPIC = "orders"
WHEEL_TOPIC = "rmq_sys_wheel_timer"
#: A file of the timer log has nine units and a blank; the check point is written every second.
SIZES: Row = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 1000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 1000,
    "mappedFileSizeTimerLog": 520,
    "timerMaxDelaySec": 30 * 86400,
    "timerFlushIntervalMs": 1000,
}
HOUR = 3_600_000
_PATIENCE_SECONDS = 120


def write_topics(root: Path) -> None:
    topic = {
        "topicName": TOPIC,
        "readQueueNums": 2,
        "writeQueueNums": 2,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
    }
    (root / "config").mkdir(parents=True)
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {TOPIC: topic}}))


def timed(name: str, queue_id: int = 0, **properties: object) -> Row:
    """A message as a row for the driver; the name is its body and its key, and is in its unique
    key."""
    return {
        "topic": TOPIC,
        "queueId": queue_id,
        "body": b64encode(name.encode()).decode(),
        "properties": {
            "KEYS": name,
            "UNIQ_KEY": unique_key(name),
            **{key: str(value) for key, value in properties.items()},
        },
    }


def unique_key(name: str) -> str:
    return f"7F000001{name.encode().hex().upper()[:24]:0<24}"


def recall(name: str, victim: str, deliver: int) -> Row:
    """The message that a client of 5.3.3 sends to recall another (``RecallMessageProcessor``)."""
    key = f"{TOPIC}+{unique_key(victim)}"
    return timed(name, TIMER_DEL_UNIQKEY=key, TIMER_DELIVER_MS=deliver, TAGS="_RECALL_TAG_")


def records(root: Path, values: Row, topic: str) -> list[Record]:
    """The records of a topic in the log; a broker may be writing to it."""
    with MessageStore(root, config_of(values)) as store:
        walked = store.commit_log.walk()
        return [one for one in walked if isinstance(one, Record) and one.topic == topic]


def timer_checkpoint(root: Path) -> tuple[int, ...]:
    data = (root / "config" / "timercheck").read_bytes()
    return tuple(int.from_bytes(data[at : at + 8], "big") for at in range(0, 32, 8))


def wait_for(done: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.2)


def wait_until_enqueued(root: Path, values: Row) -> None:
    """Waits until the broker's check point counts every message of the wheel's topic."""
    wait_for(
        lambda: timer_checkpoint(root)[2] == len(records(root, values, WHEEL_TOPIC)), "enqueued"
    )


def first_life(engine: Engine, root: Path) -> list[Row]:
    values = {**SIZES, "timerRollWindowSlot": 20}
    engine.ask("broker", root=str(root), config=values)
    soon = system_clock() + 12_000
    sent = [
        *(timed(f"delivered-{number}", number % 2, TIMER_DELAY_SEC=2) for number in range(3)),
        timed("recalled-before", TIMER_DELIVER_MS=soon),
        timed("rolled-before", 1, TIMER_DELAY_SEC=3600),
        timed("plain"),
        recall("recall-before", "recalled-before", soon),
    ]
    engine.ask("send", messages=sent)
    wait_for(lambda: len(records(root, values, TOPIC)) >= 4, "delivered")
    wait_for(lambda: timer_checkpoint(root)[0] > soon, "recalled")
    wait_for(
        lambda: any(
            "TIMER_ROLL_TIMES" in one.properties for one in records(root, values, WHEEL_TOPIC)
        ),
        "rolled",
    )
    wait_until_enqueued(root, values)
    engine.ask("stop")
    return sent


def second_life(engine: Engine, root: Path) -> list[Row]:
    engine.ask("broker", root=str(root), config=SIZES)
    now = system_clock()
    at = now // 1000 * 1000 + HOUR + 500
    sent = [
        timed("pending-0", TIMER_DELIVER_MS=at),
        timed("pending-1", 1, TIMER_DELIVER_MS=at),
        timed("recalled", TIMER_DELIVER_MS=at),
        timed("pending-2", TIMER_DELAY_MS=30 * HOUR),
        timed("far", 1, TIMER_DELAY_SEC=5 * 86400),
        recall("recall", "recalled", at),
        *(timed(f"more-{number}", TIMER_DELAY_SEC=7200 + number % 3) for number in range(6)),
    ]
    engine.ask("send", messages=sent)
    wait_until_enqueued(root, SIZES)
    engine.ask("stop")
    return sent


def third_life(engine: Engine, root: Path) -> list[Row]:
    values = {**SIZES, "timerStopEnqueue": True}
    engine.ask("broker", root=str(root), config=values)
    sent = [timed(f"queued-{hours}", TIMER_DELAY_SEC=hours * 3600) for hours in (1, 4)]
    engine.ask("send", messages=sent)
    engine.ask("stop")
    return sent


def write_expected(engine: Engine, root: Path, name: str, sent: list[Row]) -> None:
    read_in = copy_tree(root, root.parent / "read")
    rows: list[Row] = [{"kind": "sent", **row} for row in sent]
    rows += engine.ask("timers", root=str(read_in), config=SIZES)
    store = engine.open(copy_tree(root, root.parent / "opened"), SIZES)
    said = store.dump()
    store.shutdown()
    rows += said["message"]
    rows.append({"kind": "end", "now": system_clock()})
    with lzma.open(GOLDEN / f"{name}.expected.ndjson.xz", "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", nargs="?", default="timer")
    name: str = parser.parse_args().name
    archive = new_file(GOLDEN / f"{name}.tar.xz")
    build()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / name
        write_topics(root)
        engine = Engine(VERSION, Path(scratch) / "log")
        sent = first_life(engine, root) + second_life(engine, root) + third_life(engine, root)
        (root / "lock").unlink(missing_ok=True)
        packed = Path(scratch) / "packed"
        packed.mkdir()
        copy_tree(root, packed / name)  # Makes holes again where a map has filled one with zeros.
        command = ["tar", "-C", str(packed), "--sparse", "-cJf", str(archive), name]
        subprocess.run(command, check=True, env={**os.environ, "XZ_OPT": "-9e"})
        write_expected(engine, root, name, sent)
        engine.close()
    enter("later", name, {"version": VERSION, "config": SIZES})


if __name__ == "__main__":
    main()
