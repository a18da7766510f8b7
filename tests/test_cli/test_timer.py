"""``timer``: what waits in the timer of the store that 5.3.3 wrote, at different times."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.files.paths import TIMER_CHECKPOINT, TIMER_LOG, TIMER_WHEEL
from tests.conftest import Golden
from tests.golden_data import (
    broker_conf_text,
    copy_tree,
    expected,
    make_one_of_5_4,
    tree_content,
)
from tests.test_cli.conftest import Cli

HOUR = 3_600_000
DAY = 24 * HOUR
#: When the broker was stopped.
(END,) = [row["now"] for row in expected("timer")["end"]]
WAITING = {
    "rolled-before": "pending",
    "pending-0": "pending",
    "pending-1": "pending",
    "pending-2": "pending",
    "recalled": "recalled",
    "far": "rolled",
    **{f"more-{number}": "pending" for number in range(6)},
    "queued-1": "pending",
    "queued-4": "pending",
}


def states(cli: Cli, root: Path, now: int, code: int = 0) -> tuple[dict[str, str], Any]:
    done = cli("timer", "ls", "--store", root, "--now", str(now), "--format", "ndjson")
    assert done.code == code
    *rows, summary = done.rows
    counted = {state: sum(row["state"] == state for row in rows) for state in set(WAITING.values())}
    assert all(summary[state] == count for state, count in counted.items())
    return {row["keys"]: row["state"] for row in rows}, summary


def test_each_message_is_what_its_sender_meant(cli: Cli, golden: Golden) -> None:
    said = expected("timer")
    records = {
        row["physicalOffset"]: row
        for row in said["message"]
        if row["topic"] == "rmq_sys_wheel_timer"
    }
    found, summary = states(cli, golden("timer"), END)
    assert found == WAITING
    (check,) = said["timercheck"]
    assert summary["read_timestamp"] == check["lastReadTimeMs"]
    assert summary["queue_offset"] == check["lastTimerQueueOffset"]
    assert summary["not_in_wheel"] == 2 and summary["delivered_before"] == 0
    where = "--store", golden("timer"), "--now", str(END), "--format", "ndjson"
    for row in cli("timer", "ls", *where).rows[:-1]:
        record = records[row["physical_offset"]]
        properties = record["properties"]
        assert row["deliver_timestamp"] == int(properties["TIMER_OUT_MS"])
        assert row["queue_offset"] == record["queueOffset"]
        assert row["rolls"] == int(properties.get("TIMER_ROLL_TIMES", 0))
        assert row["topic"] == "orders" and row["queue_id"] == properties["REAL_QID"]


def test_what_a_start_makes_of_them_changes_with_time(cli: Cli, golden: Golden) -> None:
    root = golden("timer")
    found, summary = states(cli, root, END + 2 * HOUR)
    due = {"rolled-before", "pending-0", "pending-1", "queued-1", *(f"more-{n}" for n in range(6))}
    assert {name for name, state in found.items() if state == "due"} == due
    assert found["far"] == "rolled" and summary["delivered_before"] == 0
    # Its second slot comes on the third day; it is due on the sixth.
    assert states(cli, root, END + 4 * DAY)[0]["far"] == "rolled"
    assert states(cli, root, END + 6 * DAY)[0]["far"] == "due"
    # After a week the wheel is passed over; what was never in it is not.
    found, summary = states(cli, root, END + 8 * DAY, code=1)
    due = {name for name, state in found.items() if state == "due"}
    assert due == {"far", "pending-2", "queued-1", "queued-4"}
    assert summary["overdue"] == 9


def test_limit_and_topic(cli: Cli, golden: Golden) -> None:
    where = "--store", golden("timer"), "--now", str(END), "--format", "ndjson"
    done = cli("timer", "ls", "--limit", "3", *where)
    assert len(done.rows) == 4 and done.rows[-1]["pending"] == 12
    done = cli("timer", "ls", "--topic", "orders", *where)
    assert len(done.rows) == 15
    assert cli("timer", "ls", "--topic", "others", *where).code == 1


def test_a_copy_that_is_not_recorded_is_told(cli: Cli, copy_store: Callable[[str], Path]) -> None:
    """As of a broker that was killed before it had noted what it had delivered."""
    root = copy_store("timer")
    path = root / TIMER_CHECKPOINT
    data = bytearray(path.read_bytes())
    first = min(row["timeMs"] for row in expected("timer")["slot"])
    data[:8] = first.to_bytes(8, "big")
    path.write_bytes(data)
    found, summary = states(cli, root, END)
    delivered = {name for name, state in found.items() if state == "due"}
    assert delivered == {"delivered-0", "delivered-1", "delivered-2"}
    assert summary["delivered_before"] == 3 and found["recalled-before"] == "recalled"


def test_without_timer_files_the_queue_tells(cli: Cli, copy_store: Callable[[str], Path]) -> None:
    """As a broker takes it: everything in the queue anew."""
    root = copy_store("timer")
    (root / TIMER_CHECKPOINT).unlink()
    (root / TIMER_WHEEL).unlink()
    shutil.rmtree(root / TIMER_LOG)
    found, summary = states(cli, root, END)
    assert summary["read_timestamp"] is None and summary["queue_offset"] == 0
    assert found["delivered-0"] == "due" and found["far"] == "pending"
    assert summary["not_in_wheel"] == 20 and summary["delivered_before"] == 3


@pytest.mark.parametrize("file", ["timerwheel", "config/timercheck", f"timerlog/{0:020d}"])
def test_files_that_are_none_are_an_error(
    cli: Cli, copy_store: Callable[[str], Path], file: str
) -> None:
    root = copy_store("timer")
    (root / file).unlink()
    (root / file).mkdir()
    done = cli("timer", "ls", "--store", root, "--now", str(END))
    assert done.code == (0 if file.startswith("timerlog") else 5) or done.code == 1
    assert "Traceback" not in done.err


def put(cli: Cli, root: Path, *options: str, code: int = 0) -> Any:
    line = ["put", "--topic", "orders", "--queue-id", "1", "--body", "x", "--key", "new"]
    done = cli(*line, *options, "--store", root, "--broker-conf", conf_of(root), "--json")
    assert done.code == code, done.err
    return json.loads(done.out)[0] if code == 0 else done.err


def conf_of(root: Path) -> Path:
    path = root.with_name("broker.conf")
    path.write_text(broker_conf_text("timer"))
    return path


def properties_of(cli: Cli, root: Path, offset: int) -> dict[str, str]:
    done = cli("message", str(offset), "--store", root, "--format", "ndjson")
    found: dict[str, str] = done.rows[0]["properties"]
    return found


def test_a_message_with_a_time_waits_as_a_brokers_own(
    cli: Cli, copy_store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy_store("timer")
    monkeypatch.setattr("rmqctl.engine.messagestore.system_clock", lambda: END)
    of_broker = properties_of(cli, root, 4592)
    at = int(of_broker["TIMER_DELIVER_MS"])
    row = put(cli, root, "--deliver-at", str(at))
    assert (row["topic"], row["queue_id"], row["queue_offset"]) == ("rmq_sys_wheel_timer", 0, 22)
    ours = properties_of(cli, root, row["wrote_offset"])
    names = ("TIMER_DELIVER_MS", "TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID")
    assert {name: ours[name] for name in names} == {name: of_broker[name] for name in names}
    assert len(ours["UNIQ_KEY"]) == len(of_broker["UNIQ_KEY"]) == 32
    assert states(cli, root, END)[0] == WAITING | {"new": "pending"}
    # On a whole second it goes with the slot before.
    row = put(cli, root, "--delay", f"{1_000_000 - END % 1000}ms")
    ours = properties_of(cli, root, row["wrote_offset"])
    assert int(ours["TIMER_OUT_MS"]) == END // 1000 * 1000 + 999_000
    assert ours["TIMER_DELAY_MS"] == str(1_000_000 - END % 1000)
    # A time that is over: at once.
    row = put(cli, root, "--deliver-at", str(END), "--property", "UNIQ_KEY=own")
    assert row["topic"] == "orders"
    assert properties_of(cli, root, row["wrote_offset"])["UNIQ_KEY"] == "own"


def test_times_that_no_broker_has_are_refused(
    cli: Cli, copy_store: Callable[[str], Path], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy_store("timer")
    monkeypatch.setattr("rmqctl.engine.messagestore.system_clock", lambda: END)
    before = tree_content(root)
    assert "2592000 seconds" in put(cli, root, "--delay", "31d", code=2)
    assert "has no time" in put(cli, root, "--delay", "1h", "--delay-level", "2", code=2)
    assert "exclude" in put(cli, root, "--delay", "1h", "--deliver-at", "now", code=2)
    assert put(cli, root, "--delay", "1h", "--dry-run")["topic"] == "rmq_sys_wheel_timer"
    assert tree_content(root).items() >= {k: v for k, v in before.items() if k != "lock"}.items()
    done = cli("put", "--topic", "orders", "--body", "x", "--delay", "1h", store=store)
    assert done.code == 2 and "--delay-level" in done.err
    done = cli("put", "--from", "-", "--delay", "1h", store=store)
    assert done.code == 2 and "--from" in done.err


@pytest.mark.parametrize("line", ["timer ls", "timer deliver --dry-run", "pop ls"])
def test_of_4_9_3_it_is_said_that_nothing_can_be_there(cli: Cli, golden: Golden, line: str) -> None:
    done = cli(*line.split(), "--store", golden("delay"))
    assert done.code == 0 and "no broker of 5.x has run" in done.err
    done = cli(*line.split(), "--store", golden("timer"))
    assert done.code in (0, 1) and "no broker of 5.x" not in done.err


def test_what_was_delivered_before_its_time_does_not_come_back(
    cli: Cli, copy_store: Callable[[str], Path]
) -> None:
    root = copy_store("timer")
    where = "--store", root, "--broker-conf", conf_of(root)
    later = str(END + 3 * HOUR)
    assert cli("timer", "deliver", *where, "--until", later).code == 0
    left, _ = states(cli, root, END)
    assert "more-0" not in left and "pending-2" in left
    for lost in ((), (TIMER_WHEEL, TIMER_LOG)):
        for name in lost:
            shutil.rmtree(root / name) if (root / name).is_dir() else (root / name).unlink()
        assert cli("timer", "rebuild", *where, "--now", str(END), "--yes").code == 0
        assert states(cli, root, END)[0] == left


def test_a_timer_is_not_made_of_a_time_to_come(
    cli: Cli, copy_store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy_store("timer")
    monkeypatch.setattr("rmqctl.engine.messagestore.system_clock", lambda: END)
    before, line = tree_content(root), ("timer", "rebuild", "--now", str(END + 1))
    done = cli(*line, "--yes", "--store", root)
    assert done.code == 2 and "--dry-run" in done.err and tree_content(root) == before
    assert cli(*line, "--dry-run", "--store", root).code == 0


def test_nobody_makes_a_timer_of_a_store_that_has_none(cli: Cli, golden: Golden) -> None:
    for consent in ("--dry-run", "--yes"):
        done = cli("timer", "rebuild", consent, "--store", golden("delay"))
        assert done.code == 2 and "no broker of 5.x has run" in done.err and not done.out


def test_a_wheel_on_which_no_broker_starts_is_told(
    cli: Cli, copy_store: Callable[[str], Path]
) -> None:
    root = copy_store("timer")
    lines = ("timer", "ls", "--now", str(END)), ("timer", "deliver", "--dry-run", "--until", "0")
    for line in lines:
        assert "does not start" not in cli(*line, "--store", root).err
    with (root / TIMER_WHEEL).open("r+b") as wheel:
        wheel.truncate(38_707_168)
    with (root / TIMER_LOG / f"{520:020d}").open("r+b") as log:
        log.truncate(519)
    for line in lines:
        said = " ".join(cli(*line, "--store", root).err.split())
        assert "timerwheel (38707168 bytes)" in said and "(519 bytes)" in said
        assert "a broker does not start on them" in said


def test_the_start_of_another_version_is_told(cli: Cli, golden: Golden) -> None:
    line = ("simulate-start", "--now", "0", "--store", golden("timer"))
    assert "`--as 5.3.3` plays its own" in cli(*line).err
    assert "plays its own" not in cli(*line, "--as", "5.3.3").err
    assert "plays its own" not in cli(*line[:3], "--store", golden("delay")).err


def test_a_store_of_5_4_has_a_start_that_is_not_played(
    cli: Cli, golden: Golden, tmp_path: Path
) -> None:
    store = copy_tree(golden("timer"), tmp_path / "store")
    make_one_of_5_4(store)
    line = ("simulate-start", "--store", store)
    assert "start of 4.9.3. `--as 5.3.3` comes nearer" in cli(*line).err
    assert "start of 5.3.3. After a crash 5.5 reads" in cli(*line, "--as", "5.3.3").err


def test_what_cannot_be_played_says_so_in_a_readers_words(cli: Cli, golden: Golden) -> None:
    done = cli("simulate-start", "--store", golden("dledger"))
    assert done.code == 5 and "a DLedger group keeps its log" in done.err
    assert "can be played" in done.err and "changed" not in done.err
