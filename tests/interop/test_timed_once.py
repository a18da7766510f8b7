"""A real broker of 5.3.3 on stores in which rmqctl has put or delivered timed messages, or built
the timer anew: it delivers each message once, and none that was recalled."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore, system_clock
from tests.interop.commands import Rmqctl, only
from tests.interop.conftest import StartEngine
from tests.interop.engine import Engine
from tests.interop.goldentimer import (
    HOUR,
    SIZES,
    TOPIC,
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
from tests.interop.test_timer import states, waiting

pytestmark = [only("5.3.3"), pytest.mark.nightly, pytest.mark.proves("timer")]
LATER = {f"pending-{number}": "pending" for number in range(4)}
LATER |= {"recalled": "recalled", "far": "rolled"}
DUE = [f"due-{number}" for number in range(5)]


def with_timed_messages(engine: Engine, root: Path) -> None:
    """Has a broker write a store whose timer wheel has messages that wait an hour and longer; then
    stops it."""
    write_topics(root)
    engine.ask("broker", root=str(root), config=SIZES)
    at = system_clock() + HOUR
    sent = [timed(f"pending-{number}", number % 2, TIMER_DELIVER_MS=at) for number in range(4)]
    sent += [timed("recalled", TIMER_DELIVER_MS=at), recall("recall", "recalled", at)]
    sent += [timed("far", TIMER_DELAY_SEC=5 * 86400)]
    engine.ask("send", messages=sent)
    wait_until_enqueued(root, SIZES)
    engine.ask("stop")


def put_due(root: Path, *, recalled: bool) -> None:
    """Puts timed messages that have become due since the broker stopped; with ``recalled`` also one
    and its recall, which takes effect when both are in the wheel."""
    out = timer_checkpoint(root)[0]
    made = [waiting(name, out) for name in DUE]
    if recalled:
        key = f"{TOPIC}+{unique_key('due-recalled')}"
        made += [waiting("due-recalled", out)]
        made += [waiting("due-recall", out, TIMER_DEL_UNIQKEY=key)]
    with MessageStore(root, config_of(SIZES), writable=True) as store:
        assert all(store.put_message(one).is_ok for one in made)


def put(root: Path) -> Path:
    run = Rmqctl(root, SIZES)
    for name in DUE:
        run("put", "--topic", TOPIC, "--key", name, "--body", name, "--delay", "1s")
    return root


def deliver(root: Path) -> Path:
    put_due(root, recalled=False)
    (summary,) = Rmqctl(root, SIZES)("timer", "deliver")
    assert summary["delivered"] == len(DUE)
    return root


def rebuild(root: Path) -> Path:
    put_due(root, recalled=True)
    (root / "timerwheel").unlink()
    shutil.rmtree(root / "timerlog")
    (summary,) = Rmqctl(root, SIZES)("timer", "rebuild", "--yes")
    assert summary["due"] == len(DUE)
    return root


def salvage(root: Path) -> Path:
    put_due(root, recalled=True)
    output = root.with_name("salvaged")
    Rmqctl(root, SIZES)("salvage", "--output", str(output))
    return output


def repair(root: Path) -> Path:
    put_due(root, recalled=True)
    with (root / "timerwheel").open("r+b") as wheel:
        wheel.truncate(32)
    run, plan = Rmqctl(root, SIZES), str(root.with_name("plan.json"))
    steps = run("repair", "--plan", plan)
    assert [row["action"] for row in steps if row["type"] == "repair_step"] == ["rebuild-timer"]
    run("repair", "--apply", plan, "--yes")
    return root


@pytest.mark.parametrize("way", [put, deliver, rebuild, salvage, repair])
def test_each_message_is_delivered_once(
    start_engine: StartEngine, tmp_path: Path, way: Callable[[Path], Path]
) -> None:
    with_timed_messages(start_engine(), tmp_path / "store")
    root = way(tmp_path / "store")
    engine = start_engine()
    engine.ask("broker", root=str(root), config=SIZES)
    wait_for(lambda: len(records(root, SIZES, TOPIC)) >= len(DUE), "delivered")
    # The timer has gone on for some slots, in which it would have delivered a message again.
    end = system_clock()
    wait_for(lambda: timer_checkpoint(root)[0] > end, "gone on")
    engine.ask("stop")
    found = Counter(one.properties["KEYS"] for one in records(root, SIZES, TOPIC))
    assert found == dict.fromkeys(DUE, 1)
    listed = states(Rmqctl(root, SIZES))
    # A message that was due already when it came into the timer has no unit there. A broker goes on
    # behind the last unit, and would deliver it again at its next start; rmqctl says so.
    again = {name for name in listed if name not in LATER}
    assert {name: listed[name] for name in LATER} == LATER
    assert not again or (way is put and {listed[name] for name in again} == {"due"})
