"""The timer of 5.3.3: which messages wait, as rmqctl says; and a real broker on a timer that rmqctl
has built anew."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore, system_clock
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.operations.verify.timer import check_timer
from tests.conftest import Golden
from tests.golden_data import copy_tree, expected
from tests.interop.commands import Rmqctl, only
from tests.interop.conftest import StartEngine
from tests.interop.engine import Row
from tests.interop.goldentimer import (
    SIZES,
    TOPIC,
    WHEEL_TOPIC,
    recall,
    records,
    timed,
    timer_checkpoint,
    unique_key,
    wait_for,
    wait_until_enqueued,
    write_topics,
)
from tests.interop.stores import config_of

pytestmark = only("5.3.3")
HOUR = 3_600_000


def waiting(name: str, out: int, **more: str) -> MessageExtBrokerInner:
    """A timed message as a broker stores it in the timer's topic."""
    properties = {"KEYS": name, "UNIQ_KEY": unique_key(name), "REAL_TOPIC": TOPIC, "REAL_QID": "1"}
    properties |= {"TIMER_OUT_MS": str(out), "TIMER_DELIVER_MS": str(out), **more}
    return MessageExtBrokerInner(WHEEL_TOPIC, name.encode(), 0, properties=properties)


def states(run: Rmqctl) -> dict[str, str]:
    rows = [row for row in run("timer", "ls") if row["type"] == "timer_message"]
    return {row["keys"]: row["state"] for row in rows}


@pytest.mark.proves("timer")
def test_the_brokers_classes_read_a_timer_made_anew(
    start_engine: StartEngine, golden: Golden, tmp_path: Path
) -> None:
    """They find the same units, chained from the same slots, and the same check point."""
    root = copy_tree(golden("timer"), tmp_path / "store")
    (root / "timerwheel").unlink()
    (now,) = [row["now"] for row in expected("timer")["end"]]
    run = Rmqctl(root, SIZES)
    (summary,) = run("timer", "rebuild", "--yes", "--now", str(now))
    # On a copy, because these classes open the files for writing.
    read_in = copy_tree(root, tmp_path / "read")
    said: list[Row] = start_engine().ask("timers", root=str(read_in), config=SIZES)
    units = {row["position"]: row for row in said if row["kind"] == "timer_unit"}
    assert len(units) == summary["messages"] + summary["recalls"]
    reached = set()
    for slot in (row for row in said if row["kind"] == "slot"):
        first, number = -1, 0
        position = slot["lastPos"]
        while position != -1:
            unit = units[position]
            assert unit["currWriteTime"] + unit["delayedTime"] == slot["timeMs"]
            reached.add(position)
            number += -1 if unit["magic"] & 4 else 1
            first, position = position, unit["prevPos"]
        assert (first, number) == (slot["firstPos"], slot["num"])
    assert reached == units.keys()
    (check,) = [row for row in said if row["kind"] == "timercheck"]
    assert check["lastReadTimeMs"] == summary["read_timestamp"]
    assert check["lastTimerQueueOffset"] == check["masterTimerQueueOffset"] == 22
    listed = [row for row in run("timer", "ls", "--now", str(now)) if row["type"] != "summary"]
    assert len(listed) == summary["messages"]
    for row in listed:
        assert units[row["timer_log_position"]]["offsetPy"] == row["physical_offset"]


@pytest.mark.nightly
@pytest.mark.proves("timer")
def test_a_broker_delivers_each_message_of_a_timer_made_anew_once(
    start_engine: StartEngine, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    write_topics(root)
    values: Row = SIZES
    engine = start_engine()
    engine.ask("broker", root=str(root), config=values)
    later = system_clock() + HOUR
    sent = [timed(f"pending-{number}", number % 2, TIMER_DELIVER_MS=later) for number in range(9)]
    sent += [timed("recalled", TIMER_DELIVER_MS=later), recall("recall", "recalled", later)]
    sent += [timed("far", TIMER_DELAY_SEC=5 * 86400)]
    engine.ask("send", messages=sent)
    wait_until_enqueued(root, values)
    engine.kill()

    run = Rmqctl(root, values)
    expected = {f"pending-{number}": "pending" for number in range(9)}
    expected |= {"recalled": "recalled", "far": "rolled"}
    assert states(run) == expected
    config = config_of(values)
    assert [one.severity for one in check_timer(root, config) if one.severity != "info"] == []

    # Some messages are due, one of them is recalled; then the timer's files are lost.
    out = timer_checkpoint(root)[0]
    with MessageStore(root, config_of(values), writable=True) as store:
        made = [waiting(f"due-{number}", out) for number in range(7)]
        made += [waiting("due-recalled", out)]
        key = f"{TOPIC}+{unique_key('due-recalled')}"
        made += [waiting("due-recall", out, TIMER_DEL_UNIQKEY=key)]
        assert all(store.put_message(one).is_ok for one in made)
    (root / "timerwheel").unlink()
    shutil.rmtree(root / "timerlog")
    (summary,) = run("timer", "rebuild", "--yes")
    assert (summary["messages"], summary["recalls"], summary["due"]) == (19, 2, 7)
    assert list(check_timer(root, config)) == []
    expected |= {f"due-{number}": "due" for number in range(7)} | {"due-recalled": "recalled"}
    assert states(run) == expected

    engine = start_engine()
    engine.ask("broker", root=str(root), config=values)
    wait_for(lambda: len(records(root, values, TOPIC)) >= 7, "delivered")
    # The timer has gone on for some slots, in which it would have delivered a message again.
    end = system_clock()
    wait_for(lambda: timer_checkpoint(root)[0] > end, "gone on")
    engine.ask("stop")
    delivered = Counter(one.properties["KEYS"] for one in records(root, values, TOPIC))
    assert delivered == {f"due-{number}": 1 for number in range(7)}
    assert states(run) == {name: state for name, state in expected.items() if "due" not in name}
    assert [one.severity for one in check_timer(root, config)] == []
