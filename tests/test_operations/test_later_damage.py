"""Damage of timers and of logs of DLedger groups: verify against what 5.3.3 itself made of it
(``tests/golden/later/damage``), and ``timer ls`` against what its broker delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.rehearsal.rehearse import rehearse
from rmqctl.operations.look.timer import timer_messages
from rmqctl.operations.verify import CODES, ERROR, INFO, Finding, verify
from rmqctl.operations.verify.laterstart import check_later_start
from rmqctl.operations.verify.timer import check_timer
from tests.golden_data import (
    LATER_DAMAGE_CASES,
    apply_damage,
    broker_conf,
    expected,
    later_damage_case,
    state,
)

TIMER = [case for case in LATER_DAMAGE_CASES if case.startswith("timer")]
DLEDGER = [case for case in LATER_DAMAGE_CASES if case.startswith("dledger")]
WHEEL, LOG, CHECK = "timerwheel", "timerlog/", "config/timercheck"
FIRST, SECOND, THIRD = (f"{LOG}{start:020d}" for start in (0, 520, 1040))

#: Codes and places of errors and warnings, in their order.
NAMED: dict[str, list[tuple[str, str]]] = {
    "timer-check-behind": [("timer-checkpoint-behind", CHECK)],
    "timer-check-clock-ahead": [("timer-clock-implausible", CHECK)],
    "timer-check-clock-negative": [("timer-clock-implausible", CHECK)],
    "timer-check-flush-ahead": [("timer-log-lost", CHECK)],
    "timer-check-missing": [("timer-checkpoint-missing", CHECK)],
    "timer-check-queue-ahead": [("timer-queue-lost", CHECK)],
    "timer-check-zeros": [("timer-checkpoint-missing", CHECK)],
    "timer-log-no-last": [("timer-log-lost", CHECK), ("timer-chain-broken", WHEEL)],
    "timer-log-no-middle": [
        *(("timer-log-file-missing", SECOND), ("timer-log-lost", CHECK)),
        ("timer-chain-broken", WHEEL),
    ],
    "timer-log-short-file": [
        *(("timer-log-length", SECOND), ("timer-log-lost", CHECK)),
        ("timer-chain-broken", WHEEL),
    ],
    "timer-log-torn": [("timer-log-lost", CHECK), ("timer-chain-broken", WHEEL)],
    "timer-magic-early": [("timer-unit-damaged", FIRST)],
    "timer-magic-late": [
        *(("timer-log-cut-short", THIRD), ("timer-log-lost", CHECK)),
        ("timer-chain-broken", WHEEL),
    ],
    "timer-other-size": [("timer-unit-mismatch", THIRD)],
    "timer-prev-loop": [("timer-chain-broken", WHEEL)],
    "timer-prev-lost": [("timer-unit-unreachable", FIRST)],
    "timer-slot-all-past-end": [
        ("timer-chain-broken", WHEEL),
        ("timer-unit-unreachable", FIRST),
    ],
    "timer-slot-astray": [("timer-chain-broken", WHEEL), ("timer-unit-unreachable", FIRST)],
    "timer-slot-misplaced": [("timer-slot-misplaced", WHEEL), ("timer-unit-unreachable", FIRST)],
    "timer-slot-past-end": [],
    "timer-slot-zeros": [("timer-unit-unreachable", FIRST)],
    "timer-sound": [],
    "timer-wheel-empty": [("timer-wheel-missing", WHEEL)],
    "timer-wheel-long": [("timer-wheel-length", WHEEL)],
    "timer-wheel-missing": [("timer-wheel-missing", WHEEL)],
    "timer-wheel-short": [("timer-wheel-length", WHEEL)],
    "timer-wheel-zeros": [("timer-unit-unreachable", FIRST)],
}
#: Cases in which the broker delivered everything once all the same. What it had lost of the timer
#: log stood in its queue as well; 9.9 KB of a log are not there, and nobody knows what was in them;
#: a unit with a wrong magic code is one until a start looks at it.
HARMLESS = {
    "timer-check-flush-ahead",
    "timer-check-queue-ahead",
    "timer-log-no-last",
    "timer-log-torn",
    "timer-magic-early",
}
#: What ``timer ls`` calls due, and the broker did not deliver, and the reverse: a broker whose read
#: clock is ahead stands still, as does one that goes round in a chain; one that lacks a file in the
#: middle finds others in its place. A recall that is put in twice comes too late for what it is of.
ASTRAY: dict[str, tuple[set[str], set[str]]] = {
    "timer-check-behind": (set(), {"recalled"}),
    "timer-check-clock-ahead": ({"queued-1", "queued-4"}, set()),
    "timer-check-zeros": (set(), {"recalled", "recalled-before"}),
    "timer-log-no-middle": (
        {"more-0", "more-1", "more-2", "more-3", "pending-1", "recalled"},
        set(),
    ),
    "timer-prev-loop": (
        {*(f"more-{number}" for number in range(6)), "pending-0", "pending-1"},
        set(),
    ),
}


@pytest.fixture
def damaged(copy_store: Callable[[str], Path]) -> Callable[[str], Path]:
    def of(case: str) -> Path:
        description = later_damage_case(case)
        root = copy_store(description["base"])
        apply_damage(root, description["ops"])
        return root

    return of


def findings(root: Path, found: Iterable[object]) -> list[Finding]:
    """Errors and warnings."""
    before = state(root)
    named = [one for one in found if isinstance(one, Finding) and one.severity != INFO]
    assert state(root) == before
    return named


def keeps_from_starting(found: list[Finding]) -> bool:
    return any("does not start on it" in CODES[one.code].advice for one in found)


def test_the_table_has_every_case() -> None:
    assert sorted(NAMED) == TIMER


@pytest.mark.parametrize("case", TIMER)
def test_a_timer_is_judged_as_its_broker_shows(damaged: Callable[[str], Path], case: str) -> None:
    root, engine = damaged(case), later_damage_case(case)["engine"]
    config = broker_conf("timer")
    checks = check_later_start(root), check_timer(root, config, engine["now"])
    found = findings(root, chain(*checks))
    assert [(one.code, one.path) for one in found] == NAMED[case]
    assert keeps_from_starting(found) == (not engine["starts"])
    assert rehearse(root, config, as_5=True).starts == engine["starts"]
    if not engine["starts"]:
        return
    sound = later_damage_case("timer-sound")["engine"]
    is_right = engine["delivered"] == sound["delivered"] and engine["waits"] == sound["waits"]
    assert is_right == (not found or case in HARMLESS)
    with MessageStore(root, config) as store:
        listed = list(timer_messages(store, engine["now"]))
    rows = [row for row in listed if row["type"] == "timer_message"]
    due = {row["keys"] for row in rows if row["state"] == "due"}
    missed, others = ASTRAY.get(case, (set(), set()))
    assert due - missed | others == set(engine["delivered"])
    if engine["waits"] and case not in ASTRAY:
        later = {row["keys"] for row in rows if row["state"] in ("pending", "rolled")}
        assert later == set(engine["waits"])


@pytest.mark.parametrize("case", DLEDGER)
def test_a_log_of_a_group_is_judged_as_a_member_shows(
    damaged: Callable[[str], Path], case: str
) -> None:
    root, engine = damaged(case), later_damage_case(case)["engine"]
    found = findings(root, verify(root, broker_conf("dledger")))
    assert keeps_from_starting(found) == (not engine["load"])
    assert bool(found) == (case != "dledger-sound")
    if not engine["load"] or not engine.get("settles", True):
        assert any(one.severity == ERROR for one in found)
        return
    (ends,) = expected("dledger")["store"]
    if engine["maxPhyOffset"] < ends["maxPhyOffset"]:
        # A member cuts its log before the entry that verify names.
        places = {one.physical_offset for one in found if one.severity == ERROR}
        assert places & {engine["maxPhyOffset"], engine["maxPhyOffset"] + 48}
    if engine["messages"] < len(expected("dledger")["message"]):
        assert any(one.structure == "commitlog" and one.severity == ERROR for one in found)
