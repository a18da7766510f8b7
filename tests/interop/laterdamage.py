"""Records, once, what 5.3.3 makes of damage to timers and to logs of DLedger groups.

    python -m tests.interop.laterdamage [CASE ...]

damages a copy of a golden store as each case says, starts 5.3.3 on it, and writes
``tests/golden/later/damage/CASE.json``: ``base``, ``what`` and ``ops`` as in the other damage
cases, and ``engine``, what 5.3.3 did. Without names it does all cases that are not there yet.

On the store ``timer`` a whole broker is started, and ``engine`` has:

- ``starts``, whether it does; ``now``, when (ms since the epoch);
- ``delivered``, how often each message (by its KEYS) came to its topic;
- ``settles``, whether the timer read all of its queue and delivered all that was due;
- ``queueOffset`` and ``maxOffset``, how far it has read its queue, and where that ends;
- ``waits``, the KEYS of what its wheel has for later; null when it did not settle.

A start passes over messages that were due more than seven days ago: once those of the store are, a
new base is needed first. On the store ``dledger`` the engine alone is started, and ``engine`` is as
in the damage cases of 4.9.3; ``settles`` is false when the member does not become the leader of its
group of one.
"""

from __future__ import annotations

import argparse
import json
import struct
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from rmqctl.engine.messagestore import MessageStore, system_clock
from rmqctl.engine.services.timer import Timer
from tests.golden_data import INDEX, LATER, apply_damage, copy_tree, expected, unpacked
from tests.interop.engine import Engine, EngineError, Row, build
from tests.interop.golden import what_the_engine_did
from tests.interop.goldentimer import SIZES, TOPIC, records, timer_checkpoint
from tests.interop.stores import config_of

VERSION = "5.3.3"
DAMAGE = LATER / "damage"
WHEEL, CHECK = "timerwheel", "config/timercheck"
FIRST, SECOND, THIRD = (f"timerlog/{start:020d}" for start in (0, 520, 1040))
_WHEEL_LENGTH = 38_707_200
#: Seconds that a timer gets to deliver what is due, and seconds without a further message after
#: which it counts as done.
_PATIENCE_SECONDS, _QUIET_SECONDS = 90, 4


class Case(NamedTuple):
    base: str
    what: str
    ops: list[Row]


def _write(path: str, position: int, data: bytes) -> Row:
    return {"op": "write", "path": path, "position": position, "hex": data.hex()}


def _long(path: str, position: int, *values: int) -> Row:
    return _write(path, position, struct.pack(f">{len(values)}q", *values))


def _slot(last: int) -> int:
    """The position in the wheel of the slot whose newest unit is at ``last`` in the timer log."""
    rows = expected("timer")["slot"]
    return 32 * next(int(row["index"]) for row in rows if row["lastPos"] == last)


def timer_cases() -> dict[str, Case]:
    """Damage of the store ``timer``. Of the slot whose newest unit is at 364, a start does not read
    any unit again."""
    early = _slot(364)
    (end,) = [row["now"] for row in expected("timer")["end"]]
    found: dict[str, tuple[str, Row]] = {
        "wheel-short": ("the wheel lacks a slot", _cut(WHEEL, _WHEEL_LENGTH - 32)),
        "wheel-long": ("the wheel has a slot more", _cut(WHEEL, _WHEEL_LENGTH + 32)),
        "wheel-empty": ("the wheel has no byte", _cut(WHEEL, 0)),
        "wheel-missing": ("there is no wheel", {"op": "delete", "path": WHEEL}),
        "slot-past-end": (
            "the newest unit of a slot is said to be behind the log's end, its first one not",
            _long(WHEEL, early + 16, 5200),
        ),
        "slot-all-past-end": (
            "first and newest unit of a slot are said to be behind the log's end",
            _long(WHEEL, early + 8, 5200, 5200),
        ),
        "slot-astray": (
            "the newest unit of a slot is said to be where none starts",
            _long(WHEEL, early + 16, 365),
        ),
        "slot-zeros": ("a slot is zeros", _write(WHEEL, early, bytes(32))),
        "slot-misplaced": (
            "a slot has the time of another one",
            _long(WHEEL, early, 1795366703 + 1),
        ),
        "log-short-file": ("a file of the timer log lacks a byte", _cut(SECOND, 519)),
        "log-no-middle": ("the second of three files is gone", {"op": "delete", "path": SECOND}),
        "log-no-last": ("the last of three files is gone", {"op": "delete", "path": THIRD}),
        "log-torn": ("the last unit is zeros", _write(THIRD, 52, bytes(52))),
        "magic-late": (
            "a flipped bit in the magic code of a unit that a start reads",
            _write(THIRD, 12, b"\x40"),
        ),
        "magic-early": (
            "a flipped bit in the magic code of a unit that no start reads",
            _write(FIRST, 364 + 12, b"\x40"),
        ),
        "prev-lost": ("a unit that has one before it says it has none", _long(SECOND, 56, -1)),
        "prev-loop": ("a unit leads to itself", _long(FIRST, 416 + 4, 416)),
        "other-size": (
            "a unit says another size of its message",
            _write(THIRD, 36, struct.pack(">i", 318)),
        ),
        "check-missing": ("there is no check point", {"op": "delete", "path": CHECK}),
        "check-zeros": ("the check point is zeros", _write(CHECK, 0, bytes(56))),
        "check-clock-ahead": (
            "the read clock is thirty days ahead",
            _long(CHECK, 0, (end // 1000 + 30 * 86400) * 1000),
        ),
        "check-clock-negative": ("the read clock is negative", _long(CHECK, 0, -1)),
        "check-queue-ahead": (
            "the timer has read its queue further than it goes",
            _long(CHECK, 16, 30, 30),
        ),
        "check-behind": (
            "the check point of a moment before three messages were delivered",
            _long(CHECK, 0, 1795363103000, 104, 3, 3),
        ),
        "check-flush-ahead": ("the timer log is said to go further", _long(CHECK, 8, 99_996)),
    }
    cases = {name: Case("timer", what, [op]) for name, (what, op) in found.items()}
    slots = [32 * int(row["index"]) for row in expected("timer")["slot"]]
    soon = [place for place in slots if 0 <= place - _slot(104) < 12 << 17]
    zeros = [_write(WHEEL, place, bytes(32)) for place in sorted(soon)]
    cases["wheel-zeros"] = Case("timer", "the slots are zeros", zeros)
    cases["sound"] = Case("timer", "nothing", [])
    return {f"timer-{name}": case for name, case in cases.items()}


def _cut(path: str, length: int) -> Row:
    return {"op": "truncate", "path": path, "length": length}


def dledger_cases() -> dict[str, Case]:
    """Damage of the store ``dledger``: of an entry in the middle, of one in the last file, and of
    whole files."""
    config = INDEX["stores"]["dledger"]["config"]
    size = config["mappedFileSizeCommitLog"]
    rows = expected("dledger")["message"]
    places = [row["physicalOffset"] for row in rows]

    def at(place: int, field: int, data: bytes) -> Row:
        """Writes over bytes of the entry whose record is at ``place``."""
        start = place - 48 + field
        path = f"dledger-n0/data/{start // size * size:020d}"
        return _write(path, start % size, data)

    middle, late, last = places[100], places[-3], places[-1]
    index = f"dledger-n0/index/{0:020d}"
    fields = {
        "magic": (0, b"\0\0\0\x09", "magic code"),
        "size": (4, b"\0\x10\0\0", "size"),
        "index": (8, struct.pack(">q", 7), "index"),
        "term": (16, struct.pack(">q", -1), "term"),
        "pos": (24, struct.pack(">q", 7), "place"),
        "body-length": (44, b"\0\0\0\x01", "length of the body"),
    }
    cases = {
        f"{name}-{when}": Case(
            "dledger", f"the {word} of an entry {where} is another", [at(place, field, data)]
        )
        for name, (field, data, word) in fields.items()
        for when, place, where in (
            ("early", middle, "in the middle"),
            ("late", late, "in the last file"),
        )
    }
    body = next(row for row in rows[-20:-2] if row["bodyLength"] > 20)
    cases |= {
        "body-late": Case(
            "dledger",
            "a byte of a message's body in the last file is another",
            [at(body["physicalOffset"], 48 + 84 + 10, b"\xff\xff")],
        ),
        "record-magic-late": Case(
            "dledger",
            "the magic code of a record in the last file is another",
            [at(late, 48 + 4, b"\0\0\0\0")],
        ),
        "torn": Case(
            "dledger",
            "of the last entry only the header and twenty bytes have come to disk",
            [at(last, 68, bytes(rows[-1]["size"] - 20))],
        ),
        "index-zeros": Case(
            "dledger",
            "the last ten units of the index are zeros",
            [_write(index, 32 * (len(places) - 10), bytes(320))],
        ),
        "index-short": Case(
            "dledger", "the file of the index ends after a hundred units", [_cut(index, 3200)]
        ),
        "index-missing": Case("dledger", "there is no index", [{"op": "delete", "path": index}]),
        "last-file-missing": Case(
            "dledger",
            "the last file of the log is gone",
            [{"op": "delete", "path": f"dledger-n0/data/{last // size * size:020d}"}],
        ),
        "sound": Case("dledger", "nothing", []),
    }
    return {f"dledger-{name}": case for name, case in cases.items()}


def delivered(root: Path) -> Counter[str]:
    """How many copies a timer has put of each message, by KEYS."""
    found = records(root, SIZES, TOPIC)
    return Counter(one.properties["KEYS"] for one in found if "TIMER_DEQUEUE_MS" in one.properties)


def waits(root: Path, now: int) -> list[str]:
    """The KEYS of the messages in the wheel's slots that are not due yet, read from the broker's
    files."""
    with MessageStore(root, config_of(SIZES)) as store:
        timer = Timer(store)
        found = []
        for time_, last in timer.heads(now // 1000):
            for unit in timer.log.units_at(timer.log.chain(last, time_, 1000).positions):
                record = timer.record_of(unit)
                found.append("?" if record is None else record.properties["KEYS"])
        timer.close()
    return sorted(found)


def what_the_broker_did(engine: Engine, root: Path) -> Row:
    """What a broker did with a damaged store ``timer``: the member ``engine`` of its case."""
    before, now = delivered(root), system_clock()
    try:
        engine.ask("broker", root=str(root), config=SIZES)
    except EngineError as problem:
        engine.kill()
        return {"starts": False, "now": now, "why": str(problem).splitlines()[0][:200]}
    done, last, quiet = False, Counter[str](), time.monotonic()
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end and not done:
        time.sleep(0.2)
        found = delivered(root)
        if found != last:
            last, quiet = found, time.monotonic()
        clock, _, queue_offset, _ = timer_checkpoint(root)
        is_through = clock > now and queue_offset == queue_end(root)
        done = is_through and time.monotonic() - quiet > _QUIET_SECONDS
    answer: Row = {"starts": True, "now": now, "settles": done}
    try:
        if done:
            engine.ask("stop")
        else:
            engine.kill()
    except EngineError as problem:
        answer["why"] = str(problem).splitlines()[0][:200]
    return answer | {
        "delivered": dict(sorted((delivered(root) - before).items())),
        "queueOffset": timer_checkpoint(root)[2],
        "maxOffset": queue_end(root),
        "waits": waits(root, system_clock()) if done else None,
    }


def queue_end(root: Path) -> int:
    with MessageStore(root, config_of(SIZES)) as store:
        queue = store.consume_queue("rmq_sys_wheel_timer", 0)
        return 0 if queue is None else queue.max_offset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("case", nargs="*")
    cases = timer_cases() | dledger_cases()
    names: list[str] = parser.parse_args().case or list(cases)
    build()
    DAMAGE.mkdir(exist_ok=True)
    for name in names:
        target, case = DAMAGE / f"{name}.json", cases[name]
        if target.exists():
            continue
        with tempfile.TemporaryDirectory() as directory:
            scratch = Path(directory)
            root = copy_tree(unpacked(case.base, scratch), scratch / "damaged")
            apply_damage(root, case.ops)
            engine = Engine(VERSION, scratch / "log")
            if case.base == "timer":
                did = what_the_broker_did(engine, root)
            else:
                try:
                    did = what_the_engine_did(engine, root, INDEX["stores"][case.base]["config"])
                except EngineError:
                    # DLedger has ended its process, or the member does not become the leader.
                    did = {"load": True, "settles": False} if engine.is_alive else {"load": False}
            if engine.is_alive:
                engine.kill()
        text = json.dumps(case._asdict() | {"engine": did}, indent=1, ensure_ascii=False)
        target.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
