"""Makes stores of 5.3.3 with popped messages, and records which of them the broker gives back.

    python -m tests.interop.popstore

writes ``tests/golden/later/pop.tar.xz`` and ``pop.json`` beside it, and both of ``pop-killed``,
unless they are there: the store that the broker leaves when it stops (or is killed) with messages
in flight, the time at that moment, and the messages that the same broker puts into retry topics
when it is started again.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from tests.golden_data import LATER, copy_tree
from tests.interop.engine import Engine, Row, build
from tests.interop.stores import config_of

VALUES: Row = {
    "mappedFileSizeCommitLog": 262144,
    "mappedFileSizeConsumeQueue": 4000,
    "mappedFileSizeTimerLog": 52 * 1000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
}
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"
PROGRESS = f"{REVIVE_TOPIC}@CID_RMQ_SYS_REVIVE_GROUP"
#: Seconds to wait for a broker, more than it needs on a slow machine.
_PATIENCE = 180


def records(root: Path, topic: str) -> list[Record]:
    """The records of a topic; a broker may have the store open."""
    with MessageStore(root, config_of(VALUES)) as store:
        found = [entry for entry in store.commit_log.walk() if isinstance(entry, Record)]
    return [record for record in found if record.topic.startswith(topic)]


def bodies_of_check_points(root: Path) -> str:
    with MessageStore(root, config_of(VALUES)) as store:
        walked = store.commit_log.walk()
        return "".join(
            store.body(entry).decode()
            for entry in walked
            if isinstance(entry, Record) and entry.topic == REVIVE_TOPIC
        )


def given_back(root: Path) -> list[tuple[str, str]]:
    """Topic and ``UNIQ_KEY`` of all messages in retry topics."""
    return sorted((one.topic, one.properties["UNIQ_KEY"]) for one in records(root, "%RETRY%"))


def wait_for(what: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE
    while not what():
        if time.monotonic() > end:
            raise TimeoutError("the broker does not get on")
        time.sleep(0.5)


def start(engine: Engine, root: Path, values: Row, topics: list[str]) -> None:
    """Starts a broker on a new store that has the topics already. If the broker made them when the
    first message is sent, the driver's producer would wait for ten seconds."""
    (root / "config").mkdir(parents=True)
    each = {"perm": 6, "readQueueNums": 2, "writeQueueNums": 2, "topicFilterType": "SINGLE_TAG"}
    table = {name: {"topicName": name, **each} for name in topics}
    text = json.dumps({"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": table})
    (root / "config" / "topics.json").write_text(text)
    engine.ask("broker", root=str(root), config=values)


def send(engine: Engine, topic: str, queue_id: int, count: int) -> None:
    body = b64encode(b"x").decode()
    row = {"topic": topic, "queueId": queue_id, "body": body, "properties": {"TAGS": "a"}}
    done = engine.ask("send", messages=[row] * count)
    assert {one["status"] for one in done} == {"SEND_OK"}


def pop(
    engine: Engine, topic: str, queue_id: int, count: int, seconds: int, *, order: bool = False
) -> list[Row]:
    """Pops messages for the group ``pickers``, and makes them invisible for so many seconds."""
    asked: Row = {"group": "pickers", "topic": topic, "queueId": queue_id, "order": order}
    rows: list[Row] = []

    def all_came() -> bool:
        rest = count - len(rows)
        rows.extend(engine.ask("pop", count=rest, invisible=seconds * 1000, **asked))
        return len(rows) == count

    wait_for(all_came)
    return rows


def ack(engine: Engine, rows: list[Row]) -> None:
    for row in rows:
        assert engine.ask("popAck", group="pickers", **row) == "OK"


def write(engine: Engine, root: Path) -> None:
    """Has a broker write a store with messages in flight, and leaves it running."""
    start(engine, root, VALUES, ["orders", "in_line"])
    for topic, queue_id, count in (("orders", 0, 30), ("orders", 1, 12), ("in_line", 0, 9)):
        send(engine, topic, queue_id, count)
    # Of two messages one is acknowledged, and the other is given back.
    ack(engine, pop(engine, "orders", 0, 2, 3)[:1])
    wait_for(lambda: len(given_back(root)) == 1)
    pop(engine, "%RETRY%pickers_orders", 0, 1, 40)
    # Three pops: some messages are acknowledged, all, and none.
    ack(engine, pop(engine, "orders", 0, 6, 40)[1:4])
    ack(engine, pop(engine, "orders", 0, 3, 40))
    pop(engine, "orders", 1, 4, 60)
    # A message whose invisible time is changed gets a new check point.
    later, *others = pop(engine, "orders", 1, 3, 40)
    ack(engine, others[:1])
    assert engine.ask("popInvisible", group="pickers", invisible=50_000, **later) == "OK"
    # Popped in order: the queue gives nothing more until these are acknowledged.
    ack(engine, pop(engine, "in_line", 0, 4, 120, order=True)[:2])
    # The check point of the last pop is in the revive topic already when the broker stops.
    last = pop(engine, "orders", 0, 4, 8)
    ack(engine, last[3:])
    begin = min(one["queueOffset"] for one in last)
    wait_for(lambda: f'"so":{begin}' in bodies_of_check_points(root))


def keys_of_check_points(root: Path, topic: str) -> set[str]:
    found = (one.properties for one in records(root, topic))
    return {one["UNIQ_KEY"] for one in found if one["TAGS"] == "ck"}


def bring_back(engine: Engine, root: Path) -> list[tuple[str, str]]:
    """Starts the broker again; gives what it puts into retry topics until all check points are
    done.

    Each check point is delivered to the revive topic, and the revive service keeps the offset of
    the last one that is done. So all are done when none is behind these offsets.
    """
    before = given_back(root)
    check_points = keys_of_check_points(root, "rmq_sys_wheel_timer")
    engine.ask("broker", root=str(root), config=VALUES)

    def is_done() -> bool:
        passed = engine.ask("offsets").get(PROGRESS, {})
        return keys_of_check_points(root, REVIVE_TOPIC) == check_points and all(
            one.queue_offset <= passed.get(str(one.queue_id), -1)
            for one in records(root, REVIVE_TOPIC)
            if one.properties["TAGS"] == "ck"
        )

    wait_for(is_done)
    engine.ask("stop")
    after = given_back(root)
    for one in before:
        after.remove(one)
    return after


def make(name: str, ends: Callable[[Engine], None]) -> None:
    """Makes the golden store ``name``, of a broker that ``ends`` has stopped or killed."""
    archive = LATER / f"{name}.tar.xz"
    if archive.exists():
        return
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        engine = Engine("5.3.3", scratch / "log")
        write(engine, scratch / name)
        ends(engine)
        now = time.time_ns() // 1_000_000
        again = copy_tree(scratch / name, scratch / "again")
        other = Engine("5.3.3", scratch / "log")
        back = bring_back(other, again)
        other.close()
        command = ["tar", "-C", str(scratch), "--sparse", "-cJf", str(archive), name]
        subprocess.run(command, check=True)
    said = {"config": VALUES, "now": now, "givenBack": back}
    archive.with_name(f"{name}.json").write_text(json.dumps(said, indent=1) + "\n", "utf-8")


def stop(engine: Engine) -> None:
    engine.ask("stop")
    engine.close()


def main() -> None:
    build()
    make("pop", stop)
    make("pop-killed", Engine.kill)


if __name__ == "__main__":
    main()
