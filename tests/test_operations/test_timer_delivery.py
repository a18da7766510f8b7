"""``timer deliver``: what is due goes to its topic as a broker puts it, once."""

from __future__ import annotations

import errno
import itertools
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.files.paths import TIMER_CHECKPOINT
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.services.schedule import Undeliverable
from rmqctl.engine.timer.timercheck import read_timer_checkpoint
from rmqctl.engine.write.bulk import PropertyEncoder
from rmqctl.errors import CannotWrite
from rmqctl.operations.change import timerdelivery
from rmqctl.operations.change.timerdelivery import TimerDelivery, delivered_message
from rmqctl.operations.look.timer import timer_messages
from rmqctl.operations.mend.timer import rebuild_timer
from rmqctl.operations.verify import Finding, verify
from rmqctl.operations.verify.timer import check_timer
from tests.conftest import Golden
from tests.golden_data import broker_conf, expected, tree_content

(END,) = [row["now"] for row in expected("timer")["end"]]
HOUR = 3_600_000
CONFIG = broker_conf("timer")
DUE = {"rolled-before", "pending-0", "pending-1", "queued-1"}


def log_records(root: Path, topic: str) -> list[Record]:
    with MessageStore(root, CONFIG) as store:
        walked = store.commit_log.walk()
        return [one for one in walked if isinstance(one, Record) and one.topic == topic]


def deliver(root: Path, until: int, *, dry_run: bool = False) -> list[Any]:
    with MessageStore(root, CONFIG, writable=not dry_run) as store:
        return list(TimerDelivery(store, until, END, dry_run=dry_run).rows())


def waiting(root: Path, now: int) -> dict[str | None, str]:
    with MessageStore(root, CONFIG) as store:
        rows = [row for row in timer_messages(store, now) if row["type"] == "timer_message"]
    return {row["keys"]: row["state"] for row in rows}


def test_a_copy_is_byte_for_byte_the_brokers(golden: Golden) -> None:
    root = golden("timer")
    waited = {one.properties["KEYS"]: one for one in log_records(root, "rmq_sys_wheel_timer")}
    copies = [r for r in log_records(root, "orders") if "TIMER_DEQUEUE_MS" in r.properties]
    assert len(copies) == 3
    with MessageStore(root, CONFIG) as store:
        for copy in copies:
            record, said = waited[copy.properties["KEYS"]], copy.properties
            times = int(said["TIMER_ENQUEUE_MS"]), int(said["TIMER_DEQUEUE_MS"])
            made = delivered_message(record, store.body(record), PropertyEncoder(), *times)
            assert not isinstance(made, tuple)
            assert made.properties_bytes is not None
            assert made.properties_bytes.rstrip(b"\2") == copy.properties_bytes.rstrip(b"\2")
            assert (made.topic, made.queue_id) == ("orders", copy.queue_id)
            assert made.born_timestamp == copy.born_timestamp and made.body == store.body(copy)
            assert made.born_host == (copy.born_address, copy.born_port)


def test_what_is_due_is_delivered_once(copy_store: Callable[[str], Path]) -> None:
    root, until = copy_store("timer"), END + HOUR
    before, content = waiting(root, until), tree_content(root)
    assert {name for name, state in before.items() if state == "due"} == DUE
    (planned,) = deliver(root, until, dry_run=True)
    assert (planned["due"], planned["delivered"]) == (4, 4)
    assert tree_content(root) == content
    (summary,) = deliver(root, until)
    assert (summary["due"], summary["delivered"], summary["delivered_before"]) == (4, 4, 0)
    assert waiting(root, until) == {
        name: state for name, state in before.items() if name not in DUE
    }
    assert list(check_timer(root, CONFIG)) == []
    (again,) = deliver(root, until)
    assert (again["due"], again["delivered"], again["kept"]) == (0, 0, [])
    found = Counter(one.properties["KEYS"] for one in log_records(root, "orders"))
    assert {name: found[name] for name in DUE} == dict.fromkeys(DUE, 1)


@pytest.mark.parametrize("dry_run", [False, True])
def test_it_says_how_far_it_is(
    copy_store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    monkeypatch.setattr(timerdelivery, "_AT_ONCE", 1)
    told: list[int] = []
    with MessageStore(copy_store("timer"), CONFIG, writable=not dry_run) as store:
        run = TimerDelivery(store, END + HOUR, END, dry_run=dry_run)
        list(run.rows(told.append))
    # Four of the queue's 22 messages are due.
    assert run.steps == 22 * (2 if dry_run else 4)
    assert told == [*range(4), *range(22, 26), *(() if dry_run else (44, 66))]


def test_a_kill_before_the_timer_is_made_anew_delivers_nothing_twice(
    copy_store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, until = copy_store("timer"), END + HOUR

    class Killed(BaseException):
        pass

    def killed(*arguments: object) -> list[str]:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(timerdelivery, "replace_timer", killed)
        with pytest.raises(Killed):
            deliver(root, until)
    (summary,) = deliver(root, until)
    assert (summary["due"], summary["delivered"], summary["delivered_before"]) == (4, 0, 4)
    found = Counter(one.properties["KEYS"] for one in log_records(root, "orders"))
    assert {name: found[name] for name in DUE} == dict.fromkeys(DUE, 1)
    # And no broker that starts then delivers them once more.
    assert summary["kept"] and not DUE & waiting(root, until).keys()


@pytest.mark.parametrize("at", range(1, 5))
def test_a_kill_while_the_timer_is_put_in_place_leaves_nothing_due(
    copy_store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """No broker starts on the wheel that stands there meanwhile: the same command mends that, also
    where nothing else is left to do."""
    root, until = copy_store("timer"), END + HOUR
    calls, rename = itertools.count(1), os.rename

    class Killed(BaseException):
        pass

    def killed(*names: Any, **more: Any) -> None:
        if any("timer" in str(name) for name in names) and next(calls) == at:
            raise Killed
        rename(*names, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", killed)
        with pytest.raises(Killed):
            deliver(root, until)
    (summary,) = deliver(root, until)
    assert summary["undelivered"] == 0
    found = Counter(one.properties["KEYS"] for one in log_records(root, "orders"))
    assert {name: found[name] for name in DUE} == dict.fromkeys(DUE, 1)
    assert not DUE & waiting(root, until).keys()
    errors = [one for one in verify(root, CONFIG) if isinstance(one, Finding)]
    assert not [one.code for one in errors if one.code.startswith("timer-")]


def test_what_cannot_be_delivered_stays_in_the_timer(
    copy_store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its time is before the clock of a timer that was made anew."""
    root, now = copy_store("timer"), END + 8 * 24 * HOUR
    rebuild_timer(root, CONFIG, now, consent=True, dry_run=False)
    before = waiting(root, now)
    real = timerdelivery.delivered_message

    def refused(record: Record, *arguments: Any) -> Any:
        if record.properties["KEYS"] == "pending-1":
            return Undeliverable("body-crc-mismatch", False, "")
        return real(record, *arguments)

    monkeypatch.setattr(timerdelivery, "delivered_message", refused)
    with MessageStore(root, CONFIG, writable=True) as store:
        rows: list[Any] = list(TimerDelivery(store, now, now, dry_run=False).rows())
    row, summary = rows
    assert row["type"] == "timer_undelivered" and summary["delivered"] == 12
    assert waiting(root, now) == {
        name: state for name, state in before.items() if name in ("pending-1", "recalled")
    }


def test_a_message_that_is_refused_is_named(
    copy_store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the dry run, too, which counted it as due, and said no more."""
    root, until = copy_store("timer"), END + HOUR
    (waits,) = (
        one
        for one in log_records(root, "rmq_sys_wheel_timer")
        if one.properties.get("KEYS") == "pending-1"
    )
    real = timerdelivery.delivered_message

    def too_long(record: Record, *arguments: Any) -> Any:
        made: Any = real(record, *arguments)
        return replace(made, topic="t" * 200) if record == waits else made

    monkeypatch.setattr(timerdelivery, "delivered_message", too_long)
    before = waiting(root, until)
    (planned, summary) = deliver(root, until, dry_run=True)
    (row, done) = deliver(root, until)
    assert planned == row
    assert row["physical_offset"] == waits.physical_offset and row["reason"] == "refused"
    assert row["queue_offset"] == waits.queue_offset and "MESSAGE_ILLEGAL" in row["detail"]
    told = ("due", "delivered", "undelivered")
    assert [summary[name] for name in told] == [done[name] for name in told]
    assert done["undelivered"] == 1 and 0 < done["delivered"] < 4
    assert waiting(root, until)["pending-1"] == before["pending-1"]


def test_a_message_for_a_queue_that_can_be_none_is_named(
    copy_store: Callable[[str], Path],
) -> None:
    """It names a further queue whose name is no directory. What goes out before it leaves the
    timer: a broker would deliver that once more."""
    root, until = copy_store("timer"), END + HOUR
    (waits,) = (
        one
        for one in log_records(root, "rmq_sys_wheel_timer")
        if one.properties.get("KEYS") == "queued-4"
    )
    named = {"KEYS": "hostile", "UNIQ_KEY": "F" * 32, "INNER_MULTI_DISPATCH": "a/b"}
    named |= {"TIMER_OUT_MS": str((END + HOUR // 2) // 1000 * 1000)}
    with MessageStore(root, CONFIG, writable=True) as store:
        message = MessageExtBrokerInner(waits.topic, b"x", 0, properties=waits.properties | named)
        assert store.put_message(message).is_ok
    config = replace(CONFIG, enable_multi_dispatch=True)
    told = []
    for writable in (False, True):
        with MessageStore(root, config, writable=writable) as store:
            run = TimerDelivery(store, until, END, dry_run=not writable)
            told.append(list[Any](run.rows()))
    (planned, _), (row, summary) = told
    assert planned == row and row["reason"] == "refused" and "'a/b'" in row["detail"]
    assert (summary["due"], summary["delivered"], summary["undelivered"]) == (5, 4, 1)
    assert not DUE & waiting(root, until).keys()
    found = Counter(one.properties["KEYS"] for one in log_records(root, "orders"))
    assert {name: found[name] for name in DUE} == dict.fromkeys(DUE, 1)


def test_what_the_log_has_leaves_the_timer(
    copy_store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue file that gets no name on a full disk fails the put behind the append. A broker whose
    timer still had the messages would deliver them once more."""
    root, until = copy_store("timer"), END + HOUR
    real, link = timerdelivery.delivered_message, os.link

    def to_new_queue(*arguments: Any) -> Any:
        made: Any = real(*arguments)
        return replace(made, queue_id=9)

    def no_room(*arguments: Any, **named: Any) -> None:
        if os.readlink(f"/proc/self/fd/{named['dst_dir_fd']}").endswith("/orders/9"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        link(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(timerdelivery, "delivered_message", to_new_queue)
        patch.setattr(os, "link", no_room)
        with pytest.raises(CannotWrite), MessageStore(root, CONFIG, writable=True) as store:
            told, summary = list[Any](TimerDelivery(store, until, END, dry_run=False).rows())
    assert "do not put them again" in told["detail"]
    assert (summary["delivered"], summary["undelivered"]) == (4, 1)
    MessageStore(root, CONFIG, writable=True).close()
    found = Counter(one.properties["KEYS"] for one in log_records(root, "orders"))
    assert {name: found[name] for name in DUE} == dict.fromkeys(DUE, 1)
    assert not DUE & waiting(root, until).keys()


def test_the_clock_of_the_new_timer_is_none_to_come(copy_store: Callable[[str], Path]) -> None:
    """With one, what is put until then, and is due before, would never be delivered."""
    root = copy_store("timer")
    (root / TIMER_CHECKPOINT).unlink()
    deliver(root, END + HOUR)
    found = read_timer_checkpoint(root / TIMER_CHECKPOINT)
    assert found is not None and END - 1000 <= found.read_timestamp <= END
