"""``schedule ls|deliver`` as an operator runs it: rows, exit codes, damage, kills."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore, system_clock
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.services import schedule
from rmqctl.engine.settings.storeconfig import load_broker_conf
from rmqctl.engine.write.bulk import PropertyEncoder
from rmqctl.errors import CannotWrite
from tests import golden_data
from tests.conftest import Golden
from tests.test_cli.conftest import BORN, BROKER_CONF, CONFIG, Cli, state
from tests.test_safety.support import assert_clean

TOPIC = "SCHEDULE_TOPIC_XXXX"


def put(root: Path, *messages: MessageExtBrokerInner, start: int = BORN) -> None:
    clock = iter(range(start, start + 10**6))
    with MessageStore(root, CONFIG, writable=True, create=True, clock=lambda: next(clock)) as store:
        for message in messages:
            assert store.put_message(message, flush=False).is_ok


def delayed(number: int, level: int = 1, **more: Any) -> MessageExtBrokerInner:
    properties = {"DELAY": str(level), "UNIQ_KEY": f"U{number}", "TAGS": f"t{number % 3}"}
    return MessageExtBrokerInner(
        "orders", b"body %d" % number, number % 2, properties=properties, **more
    )


def records(root: Path, topic: str = "orders") -> list[Record]:
    with MessageStore(root, CONFIG) as store:
        walked = list(store.commit_log.walk())
    return [r for r in walked if isinstance(r, Record) and r.topic == topic]


def keys(root: Path) -> Counter[str]:
    return Counter(r.properties["UNIQ_KEY"] for r in records(root))


def deliver(cli: Cli, root: Path, *options: str, code: int = 0) -> list[dict[str, Any]]:
    done = cli("schedule", "deliver", *options, "--format", "ndjson", store=root)
    assert done.code == code, done
    return done.rows


def test_the_golden_broker_goes_on_where_the_engine_was(
    cli: Cli, golden: Golden, tmp_path: Path, broker_conf_file: Any
) -> None:
    """The engine delivered 69 of 80 and recorded 9: the others are found, and passed over."""
    root = golden_data.copy_tree(golden("broker"), tmp_path / "broker")
    where = ("--store", root, "--broker-conf", broker_conf_file("broker"), "--format", "ndjson")
    *levels, summary = cli("schedule", "ls", *where).rows
    assert [(r["level"], r["pending"], r["progress"]) for r in levels] == [
        (1, 1, 2), (2, 1, 1), (3, 29, 3), (4, 29, 3), (5, 3, None), (6, 8, None)
    ]  # fmt: skip
    assert summary == {"type": "summary", "levels": 6, "pending": 71, "due": summary["due"]}
    before = golden_data.tree_content(root)
    # Between the last delivery of level 4 and the first of level 5.
    rows = cli("schedule", "deliver", *where, "--dry-run", "--until", "1795164740000").rows
    assert rows[-1] == {
        "type": "summary", "due": 60, "delivered": 60, "delivered_before": 60, "passed_over": 0,
        "stopped_levels": 0,
    }  # fmt: skip
    assert golden_data.tree_content(root) == before
    until = ("--until", "1795164900000", "--skip-delivered")
    rows = cli("schedule", "deliver", *where, *until).rows
    assert rows[-1] == {
        "type": "summary", "due": 71, "delivered": 11, "delivered_before": 60, "passed_over": 0,
        "stopped_levels": 0,
    }  # fmt: skip
    config = golden_data.broker_conf("broker")
    assert_clean(root, config)
    assert schedule.load_delay_offsets(root).table == {1: 3, 2: 2, 3: 32, 4: 32, 5: 3, 6: 8}
    with MessageStore(root, config) as store:
        for row in rows[4:6]:
            for record in store.commit_log.walk(row["wrote_from"], row["wrote_to"]):
                if isinstance(record, Record):
                    assert record.properties["DELAY"] == str(row["level"])
                    assert record.topic == record.properties["REAL_TOPIC"]
    assert cli("schedule", "deliver", *where, *until).rows[-1]["due"] == 0


def test_the_golden_delay_store_goes_out_whole(
    cli: Cli, golden: Golden, tmp_path: Path, broker_conf_file: Any
) -> None:
    root = golden_data.copy_tree(golden("delay"), tmp_path / "delay")
    where = ("--store", root, "--broker-conf", broker_conf_file("delay"), "--format", "ndjson")
    waiting = [r for r in golden_data.expected("delay")["message"] if r["topic"] == TOPIC]
    done = cli("schedule", "deliver", *where, "--until", "2026-12-01T00:00:00Z")
    assert done.code == 0 and done.rows[-1]["delivered"] == len(waiting)
    config = golden_data.broker_conf("delay")
    assert_clean(root, config)
    wanted = Counter((r["properties"]["UNIQ_KEY"], r["bodySha256"]) for r in waiting)
    assert len(wanted) == len(waiting)
    with MessageStore(root, config) as store:
        for place in store.queues.directories():
            queue = store.consume_queue(place.topic, place.queue_id)
            assert queue is not None
            for number, (_, unit) in enumerate(queue.units(0, queue.max_offset)):
                record = store.look_message_by_offset(unit.physical_offset)
                assert record.queue_offset == number


def test_what_is_due_now_is_counted_from_the_progress(cli: Cli, tmp_path: Path) -> None:
    """As many as a delivery would put, of each level: all, some and none; also of the last one."""
    root, conf = tmp_path / "store", tmp_path / "three.conf"
    put(root, *(delayed(n, level=1 + n % 3) for n in range(12)))
    put(root, *(delayed(n, level=2 + n % 2) for n in range(4)), start=system_clock() + 600_000)
    put(root, delayed(99, level=4))
    conf.write_text(BROKER_CONF + "messageDelayLevel=1s 1h 2h\n")
    schedule.save_delay_offsets(root, {1: 3, 2: 1})
    where = ("--store", root, "--broker-conf", conf, "--format", "ndjson")
    *levels, summary = cli("schedule", "ls", *where).rows
    assert [(row["level"], row["next_offset"], row["pending"], row["due"]) for row in levels] == [
        (1, 3, 1, 1),
        (2, 1, 5, 3),
        (3, 0, 6, 4),
        (4, 0, 1, 0),
    ]
    assert (summary["levels"], summary["pending"], summary["due"]) == (4, 13, 8)
    rows = cli("schedule", "deliver", "--dry-run", *where).rows
    delivered = {row["level"]: row["delivered"] for row in rows if row["type"] == "delivery"}
    assert delivered == {row["level"]: row["due"] for row in levels[:3]}


def test_what_is_due_goes_out_and_the_rest_waits(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, *(delayed(n, level=1 + n % 2) for n in range(10)))
    until = str(BORN + 1000 + 4)
    before = state(root)
    *levels, _ = cli("schedule", "ls", "--format", "ndjson", store=root).rows
    assert [(r["level"], r["next_delivery_timestamp"]) for r in levels] == [
        (1, BORN + 1000), (2, BORN + 1 + 5000)
    ]  # fmt: skip
    dry = deliver(cli, root, "--until", until, "--dry-run")
    assert state(root) == before
    rows = deliver(cli, root, "--until", until)
    assert [r["delivered"] for r in rows] == [r["delivered"] for r in dry] == [3, 3]
    assert keys(root) == {"U0": 1, "U2": 1, "U4": 1}
    assert deliver(cli, root, "--until", until)[-1]["delivered"] == 0
    rest = deliver(cli, root, "--level", "2")
    assert [r["level"] for r in rest[:-1]] == [2] and rest[-1]["delivered"] == 5
    assert deliver(cli, root)[-1]["delivered"] == 2
    assert set(keys(root).values()) == {1} and len(keys(root)) == 10
    assert_clean(root, CONFIG)


def test_levels_of_another_configuration_do_not_go_out_early(cli: Cli, tmp_path: Path) -> None:
    """With its own levels a broker delivers at once what lies beyond a level's delay: with the
    default ones instead, level 1 would go out an hour early."""
    root, conf = tmp_path / "store", tmp_path / "levels.conf"
    far = system_clock() + 3_600_000
    put(root, delayed(0), start=far)
    assert deliver(cli, root)[-1]["due"] == 0
    conf.write_text(BROKER_CONF + "messageDelayLevel=1s 2s\n")
    done = cli("schedule", "deliver", "--store", root, "--broker-conf", conf, "--dry-run", "--json")
    assert json.loads(done.out)[-1]["delivered"] == 1


def hostile(**properties: str) -> MessageExtBrokerInner:
    """A message that stands in the schedule topic without having come there by a delay; its unit
    has no delivery time, so it is due."""
    given = {"REAL_TOPIC": "orders", "REAL_QID": "0"} | properties
    return MessageExtBrokerInner(TOPIC, b"x", 0, properties=given)


@pytest.mark.parametrize(
    ("properties", "reason", "stops"),
    [
        ({"REAL_TOPIC": "../../etc"}, "real-topic-not-allowed", True),
        ({"REAL_TOPIC": ""}, "real-topic-missing", True),
        ({"REAL_TOPIC": "t" * 128}, "refused", True),
        ({"REAL_QID": "x"}, "real-queue-id-not-allowed", True),
        ({"REAL_QID": "-1"}, "real-queue-id-not-allowed", True),
        ({"REAL_QID": "99999999999999999999"}, "real-queue-id-not-allowed", True),
        ({"REAL_QID": ""}, "real-queue-id-not-allowed", True),
        ({"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC"}, "real-topic-is-half-topic", False),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_go_out_loses_nothing(
    properties: dict[str, str], reason: str, stops: bool, cli: Cli, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    put(root, delayed(0), hostile(**properties), delayed(1), delayed(2, level=2))
    dry = deliver(cli, root, "--dry-run", code=1)
    found, one, two, summary = deliver(cli, root, code=1)
    assert dry[-1] == summary
    assert found["reason"] == reason and found["stops_the_level"] is stops
    assert (found["level"], found["queue_offset"], bool(found["next_step"])) == (1, 1, True)
    assert summary["stopped_levels"] == stops
    assert one["delivered"] == (1 if stops else 2) and two["delivered"] == 1
    assert schedule.load_delay_offsets(root).table == {1: 1 if stops else 3, 2: 1}
    if stops:
        # The same again: nothing is passed over unasked.
        assert deliver(cli, root, code=1)[0]["reason"] == reason
        rows = deliver(cli, root, "--skip", "1:1", code=1)
        assert rows[0]["reason"] == "skipped" and rows[1]["delivered"] == 1
        assert schedule.load_delay_offsets(root).table == {1: 3, 2: 1}
    assert keys(root) == {"U0": 1, "U1": 1, "U2": 1}
    assert deliver(cli, root)[-1]["due"] == 0


def test_a_message_to_the_schedule_topic_itself_ends(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, hostile(REAL_TOPIC=TOPIC), delayed(1))
    assert deliver(cli, root)[-1]["delivered"] == 2


def test_damaged_and_gone_records(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, *(delayed(n) for n in range(30)))
    files = sorted((root / "commitlog").iterdir())
    assert len(files) > 2
    scheduled = records(root, TOPIC)
    gone = sum(r.physical_offset < 2048 for r in scheduled)
    files[0].unlink()
    # The queue's oldest units lie before the log: a broker's start moves the progress over them.
    *_, row, _ = cli("schedule", "ls", "--format", "ndjson", store=root).rows
    assert (row["next_offset"], row["pending"]) == (gone, 30 - gone)
    damaged = next(r for r in scheduled if r.physical_offset >= 4096)
    with files[2].open("r+b") as file:
        file.seek(damaged.body_position)
        file.write(b"\xff")
    found, one, _ = deliver(cli, root, code=1)
    assert (found["reason"], found["physical_offset"]) == (
        "body-crc-mismatch", damaged.physical_offset
    )  # fmt: skip
    place = damaged.queue_offset
    assert found["queue_offset"] == place and one["delivered"] == place - gone
    rows = deliver(cli, root, "--skip", f"1:{place}", code=1)
    assert rows[-1]["delivered"] == 29 - place


def test_a_missing_log_file_is_passed_over_when_asked(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, *(delayed(n) for n in range(30)))
    middle = sorted((root / "commitlog").iterdir())[1]
    low, high = int(middle.name), int(middle.name) + 2048
    lost = [r.queue_offset for r in records(root, TOPIC) if low <= r.physical_offset < high]
    middle.unlink()
    found, *_ = deliver(cli, root, code=1)
    assert (found["reason"], found["queue_offset"]) == ("unit-mismatch", lost[0])
    rows = deliver(cli, root, "--skip", f"1:{lost[0]}-{lost[-1]}", code=1)
    assert rows[0]["messages"] == rows[-1]["passed_over"] == len(lost)
    assert rows[-1]["delivered"] == 30 - lost[-1] - 1
    for wrong in ("1", "1:x", "1:2-", "x:1", "-1:2"):
        assert cli("schedule", "deliver", "--skip", wrong, store=root).code == 2


def test_a_broken_progress_stops_before_anything(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, delayed(0))
    (root / "config").mkdir()
    file = root / "config/delayOffset.json"
    file.write_text('{"offsetTable":{1:x}}')
    for line in (("ls",), ("deliver",), ("deliver", "--dry-run")):
        done = cli("schedule", *line, store=root)
        assert done.code == 5 and "delayOffset.json" in done.err
    assert not keys(root)
    backup = file.with_name(file.name + ".bak")
    backup.write_text('{"offsetTable":{5:2}}')
    assert deliver(cli, root)[-1]["delivered"] == 1
    assert schedule.load_delay_offsets(root).table == {1: 1, 5: 2}
    # The copy that was read is kept as long as the broken file would have taken its place.
    assert "x" not in backup.read_text()


def test_a_progress_that_cannot_be_stored_delivers_nothing(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, delayed(0))
    (tmp_path / "elsewhere").mkdir()
    (root / "config").symlink_to(tmp_path / "elsewhere")
    assert cli("schedule", "deliver", store=root).code == 5
    assert not keys(root) and not list((tmp_path / "elsewhere").iterdir())


def test_a_level_that_the_configuration_lacks_is_named(cli: Cli, tmp_path: Path) -> None:
    root, conf = tmp_path / "store", tmp_path / "one.conf"
    put(root, delayed(0), delayed(1, level=2), delayed(2, level=2))
    conf.write_text(BROKER_CONF + "messageDelayLevel=1s\n")
    where = ("--store", root, "--broker-conf", conf, "--format", "ndjson")
    listed = cli("schedule", "ls", *where)
    assert listed.rows[1]["delay_milliseconds"] is None and "--broker-conf" in listed.err
    done = cli("schedule", "deliver", *where)
    assert done.code == 1
    (unknown,) = (r for r in done.rows if r["type"] == "undelivered")
    assert (unknown["level"], unknown["reason"], unknown["messages"]) == (2, "level-unknown", 2)


# --- kills ---------------------------------------------------------------------------------------

CHILD = """
import os, signal, sys
from pathlib import Path
from rmqctl import kernel
from rmqctl.engine.write import bulk, compiled
from rmqctl.engine.state import persist
from rmqctl.engine.log.logwriter import CommitLogWriter
from rmqctl.engine.messagestore import MessageStore
from rmqctl.operations.change.schedule import Delivery, DeliveryRun
from tests.test_cli.conftest import CONFIG
bulk.BULK_RECORDS = compiled._BULK_RECORDS = 7
kind, left = sys.argv[2], int(sys.argv[3])

def count_down():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def dying(function, first):
    def call(*arguments, **more):
        if first:
            count_down()
        done = function(*arguments, **more)
        if not first:
            count_down()
        return done
    return call

if kind.startswith("rename"):
    os.rename = dying(os.rename, kind == "rename-before")
else:
    # Of one record; the kernel stores several, and the log is told then.
    name = "store" if kernel.module() is None else "advance"
    setattr(CommitLogWriter, name, dying(getattr(CommitLogWriter, name), False))
with MessageStore(Path(sys.argv[1]), CONFIG, writable=True) as store:
    list(DeliveryRun(store, Delivery(1 << 62, 0)).rows())
"""


@pytest.mark.parametrize(
    ("kind", "left"),
    [("rename-before", 1), ("rename-before", 4), ("rename-after", 3), ("rename-before", 5),
     ("store", 2), ("store", 5)],
)  # fmt: skip
def test_a_kill_doubles_at_most_one_bulk_and_the_next_run_says_so(
    kind: str, left: int, cli: Cli, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    put(root, *(delayed(n) for n in range(30)))
    command = [sys.executable, "-c", CHILD, str(root), kind, str(left)]
    killed = subprocess.run(command, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    sent = keys(root)
    assert set(sent.values()) <= {1}
    table = schedule.load_delay_offsets(root).table
    recorded = table.get(1, 0)
    unrecorded = len(sent) - recorded
    assert 0 <= unrecorded <= 7, "never more than a bulk is delivered and not recorded"
    *_, summary = deliver(cli, root, "--dry-run", "--skip-delivered")
    assert summary["delivered_before"] == unrecorded
    *_, summary = deliver(cli, root, code=int(bool(unrecorded)))
    assert (summary["due"], summary["delivered_before"]) == (30 - recorded, unrecorded)
    after = keys(root)
    assert len(after) == 30, "nothing is lost"
    assert sum(after.values()) == 30 + unrecorded and max(after.values()) <= 2
    assert deliver(cli, root)[-1]["due"] == 0
    assert_clean(root, CONFIG, "unclean-shutdown")


def test_after_a_kill_a_run_can_pass_over_what_went_out(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, *(delayed(n) for n in range(20)), *(delayed(n, level=2) for n in range(5)))
    deliver(cli, root, "--until", str(BORN + 1000 + 9))
    schedule.save_delay_offsets(root, {1: 4})
    *_, summary = deliver(cli, root, "--skip-delivered")
    assert (summary["delivered"], summary["delivered_before"]) == (15, 6)
    assert sum(keys(root).values()) == 25
    assert schedule.load_delay_offsets(root).table == {1: 20, 2: 5}


def test_equal_messages_without_a_key_are_told_by_number(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    same = MessageExtBrokerInner("orders", b"same", properties={"DELAY": "1"})
    put(root, *(same for _ in range(9)))
    deliver(cli, root, "--until", str(BORN + 1000 + 3))
    schedule.save_delay_offsets(root, {})
    *_, summary = deliver(cli, root, "--skip-delivered")
    assert (summary["delivered"], summary["delivered_before"]) == (5, 4)
    assert len(records(root)) == 9


def test_the_search_for_copies_ends_at_the_first_message_without_one(
    cli: Cli, tmp_path: Path
) -> None:
    """Deliveries go in order: a copy of a later message alone is no delivery of this level."""
    root = tmp_path / "store"
    put(root, delayed(0), delayed(2))
    with MessageStore(root, CONFIG, writable=True) as store:
        later = store.look_message_by_offset(records(root, TOPIC)[1].physical_offset)
        message = schedule.message_timeup(later, store.body(later), PropertyEncoder())
        assert isinstance(message, MessageExtBrokerInner) and store.put_message(message).is_ok
    assert deliver(cli, root, "--skip-delivered")[-1]["delivered_before"] == 0
    assert keys(root) == {"U0": 1, "U2": 2}


def test_extra_queues_are_counted_anew(tmp_path: Path, cli: Cli) -> None:
    """A light queue's name that is no directory stops the level, and says which message."""
    root, conf = tmp_path / "store", tmp_path / "lmq.conf"
    put(root, delayed(0), hostile(INNER_MULTI_DISPATCH="../x"), delayed(1))
    conf.write_text(BROKER_CONF + "enableLmq=true\nenableMultiDispatch=true\n")
    where = ("--store", root, "--broker-conf", conf, "--format", "ndjson")
    for copies in range(2):
        # Once more, from the begin: the copy of the first message does not hide which one it is.
        schedule.save_delay_offsets(root, {})
        for dry in (("--dry-run",), ()):
            done = cli("schedule", "deliver", *where, *dry)
            assert done.code == 1
            found, one, _ = done.rows
            assert (found["reason"], found["queue_offset"]) == ("refused", 1)
            assert (one["delivered"], one["delivered_before"]) == (1, copies)
        assert schedule.load_delay_offsets(root).table == {1: 1}
    assert keys(root) == {"U0": 2}


def test_a_queue_number_beyond_javas_stops_the_level(cli: Cli, tmp_path: Path) -> None:
    """``Integer.parseInt`` fails on it; as a number of a directory it would be a queue."""
    root = tmp_path / "store"
    put(root, hostile(REAL_QID="2147483648"), delayed(1))
    found, *_ = deliver(cli, root, code=1)
    assert found["reason"] == "real-queue-id-not-allowed" and found["stops_the_level"]
    assert not records(root)


def test_a_unit_that_names_another_size_stops_the_level(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, *(delayed(n) for n in range(3)))
    (queue,) = (root / "consumequeue" / TOPIC / "0").iterdir()
    with queue.open("r+b") as file:
        file.seek(20 + 8)
        size = int.from_bytes(file.read(4), "big")
        file.seek(20 + 8)
        file.write((size + 1).to_bytes(4, "big"))
    found, one, _ = deliver(cli, root, code=1)
    assert (found["reason"], found["queue_offset"]) == ("unit-mismatch", 1)
    assert f"names {size + 1} bytes" in found["detail"] and f"of {size} bytes" in found["detail"]
    assert one["delivered"] == 1 and keys(root) == {"U0": 1}


def test_a_place_that_a_rebuild_has_filled_is_passed_over(cli: Cli, tmp_path: Path) -> None:
    """Where damage has swallowed a record a rebuild leaves a pre-blank unit. A broker looks for a
    message at offset 0 that is larger than any, finds none and goes on."""
    root = tmp_path / "store"
    put(root, *(delayed(n) for n in range(6)))
    lost = records(root, TOPIC)[2]
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(lost.physical_offset + 4)
        file.write(b"\xff" * 4)
    assert cli("rebuild", "all", "--in-place", "--yes", store=root).code == 1
    with MessageStore(root, CONFIG) as store:
        queue = store.consume_queue(TOPIC, 0)
        assert queue is not None and queue.max_offset == 6
        unit = queue.unit(2)
        assert unit is not None and unit.is_pre_blank
    one, summary = deliver(cli, root, code=1)
    assert (one["delivered"], one["passed_over"], summary["stopped_levels"]) == (5, 1, 0)
    assert set(keys(root)) == {"U0", "U1", "U3", "U4", "U5"}
    assert schedule.load_delay_offsets(root).table == {1: 6}


def test_a_queue_that_lacks_a_file_stops_there(cli: Cli, tmp_path: Path) -> None:
    """What stands behind the gap would go out of its order, and the gap's messages never."""
    root = tmp_path / "store"
    put(root, *(delayed(n) for n in range(230)))
    second = sorted((root / "consumequeue" / TOPIC / "0").iterdir())[1]
    second.unlink()
    for options in (("--dry-run",), ()):
        found, one, summary = deliver(cli, root, *options, code=1)
        assert (found["reason"], found["queue_offset"]) == ("queue-file-missing", 100)
        assert (one["due"], one["delivered"], summary["stopped_levels"]) == (101, 100, 1)
    assert schedule.load_delay_offsets(root).table == {1: 100}
    assert keys(root) == {f"U{n}": 1 for n in range(100)}


@pytest.mark.parametrize("count", [99, 100, 101])
def test_a_level_whose_last_file_is_full_lacks_none(count: int, cli: Cli, tmp_path: Path) -> None:
    """A file has 100 units, and a full one has no other behind it yet."""
    root = tmp_path / "store"
    put(root, *(delayed(n) for n in range(count)))
    for options in (("--dry-run",), ()):
        one, _ = deliver(cli, root, *options)
        assert (one["due"], one["delivered"]) == (count, count)
    assert schedule.load_delay_offsets(root).table == {1: count}


def test_the_progress_passes_what_was_skipped_last(cli: Cli, tmp_path: Path) -> None:
    """Else the next run would stop at it, or deliver what was given up."""
    root = tmp_path / "store"
    put(root, *(delayed(n) for n in range(5)))
    _, one, _ = deliver(cli, root, "--skip", "1:3-4", code=1)
    assert (one["delivered"], one["passed_over"], one["progress"], one["pending"]) == (3, 2, 5, 0)
    assert schedule.load_delay_offsets(root).table == {1: 5}
    assert deliver(cli, root)[-1]["due"] == 0


def test_what_is_left_is_counted_from_the_progress(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, *(delayed(n) for n in range(5)))
    one, _ = deliver(cli, root, "--until", str(BORN + 1000 + 2))
    assert (one["due"], one["delivered"], one["progress"], one["pending"]) == (3, 3, 3, 2)


def test_only_levels_with_messages_and_without_a_delay_are_unknown(
    cli: Cli, tmp_path: Path
) -> None:
    """The last level of a configuration is one of its levels, and what has gone out waits for
    none."""
    root, conf = tmp_path / "store", tmp_path / "two.conf"
    far = system_clock() + 3_600_000
    put(root, delayed(0, level=2), delayed(1, level=3), start=far)
    conf.write_text(BROKER_CONF + "messageDelayLevel=1s 24h\n")
    where = ("--store", root, "--broker-conf", conf, "--format", "ndjson")

    def unknown(*options: str) -> list[int]:
        rows = cli("schedule", "deliver", *where, *options).rows
        return [row["level"] for row in rows if row["type"] == "undelivered"]

    assert unknown() == [3]
    assert unknown("--level", "2") == []
    assert unknown("--level", "3") == [3]
    schedule.save_delay_offsets(root, {3: 1})
    assert unknown() == []


def test_numbers_that_are_no_level_are_passed_over(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, delayed(0))
    schedule.save_delay_offsets(root, {0: 5, -3: 1, 1: 0})
    *levels, _ = cli("schedule", "ls", "--format", "ndjson", store=root).rows
    assert [row["level"] for row in levels] == [1]


def test_copies_are_found_behind_an_extension(cli: Cli, tmp_path: Path) -> None:
    """Their units hold addresses in place of tags codes: by those none would look like a copy."""
    root, conf = tmp_path / "store", tmp_path / "ext.conf"
    conf.write_text(BROKER_CONF + "enableConsumeQueueExt=true\n")
    config = load_broker_conf(conf)
    clock = iter(range(BORN, BORN + 10**6))
    with MessageStore(root, config, writable=True, create=True, clock=lambda: next(clock)) as store:
        for number in range(6):
            assert store.put_message(delayed(number), flush=False).is_ok
    where = ("--store", root, "--broker-conf", conf, "--format", "ndjson")
    until = ("--until", str(BORN + 1000 + 3))
    assert cli("schedule", "deliver", *where, *until).rows[-1]["delivered"] == 4
    schedule.save_delay_offsets(root, {})
    summary = cli("schedule", "deliver", *where, "--skip-delivered").rows[-1]
    assert (summary["delivered"], summary["delivered_before"]) == (2, 4)
    assert set(keys(root).values()) == {1} and len(keys(root)) == 6


@pytest.mark.parametrize("others", [31, 32, 33, 159, 160, 161])
def test_copies_are_found_wherever_they_stand(others: int, cli: Cli, tmp_path: Path) -> None:
    """A queue is looked through in pieces of 32, 128 and more units: none falls between two."""
    root = tmp_path / "store"
    put(root, *(delayed(2 * n) for n in range(3)))
    between = [MessageExtBrokerInner("orders", b"other", 0)] * others
    with MessageStore(root, CONFIG, writable=True, clock=lambda: BORN + 500) as store:
        assert all(result.is_ok for result in store.put_messages(between, flush=False))
    assert deliver(cli, root, "--until", str(BORN + 1000 + 1))[-1]["delivered"] == 2
    schedule.save_delay_offsets(root, {})
    *_, summary = deliver(cli, root, "--skip-delivered")
    assert (summary["delivered"], summary["delivered_before"]) == (1, 2)


@pytest.mark.parametrize("is_progress_stored", [True, False])
def test_what_the_log_has_is_not_delivered_again(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_progress_stored: bool
) -> None:
    """A queue file that gets no name on a full disk fails the put behind the append. Where the
    progress has no room either, no row says that it has moved."""
    root = tmp_path / "store"
    put(root, *(delayed(number) for number in range(5)))

    def no_room(*arguments: Any, **named: Any) -> None:
        if "/orders/" in os.readlink(f"/proc/self/fd/{named['dst_dir_fd']}") + "/":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        link(*arguments, **named)

    def save(place: Path, table: dict[int, int], **named: Any) -> None:
        if table and not is_progress_stored:
            raise CannotWrite(path=str(place), reason=os.strerror(errno.ENOSPC))
        store(place, table, **named)

    link, store = os.link, schedule.save_delay_offsets
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", no_room)
        patch.setattr(schedule, "save_delay_offsets", save)
        rows = deliver(cli, root, code=5)
    (told,) = [row for row in rows if row["type"] == "undelivered"]
    assert told["detail"].endswith("do not put them again")
    (row,) = [row for row in rows if row["type"] == "delivery"]
    moved = (5, 5) if is_progress_stored else (None, 0)
    assert (row["progress"], row["delivered"]) == moved
    deliver(cli, root, *([] if is_progress_stored else ["--skip-delivered"]))
    assert keys(root) == {f"U{number}": 1 for number in range(5)}
