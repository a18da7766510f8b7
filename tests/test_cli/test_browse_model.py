"""What browse has to show, without a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.cli.browse.model.findings import Findings
from rmqctl.cli.browse.model.job import DONE, FAILED, STOPPED, Job
from rmqctl.cli.browse.model.lines import Cancelled, Line, Source, Stop
from rmqctl.cli.browse.model.log import Log
from rmqctl.cli.browse.model.message import HEX, JSON, MOST_SHOWN, TEXT, Message, wrapped
from rmqctl.cli.browse.model.messages import Found, QueueMessages
from rmqctl.cli.browse.model.opened import Opened
from rmqctl.cli.browse.model.queues import Queues, Topics
from rmqctl.cli.text import width
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.queuetable import ConsumeQueueTableReader
from rmqctl.engine.record.record import End
from rmqctl.errors import UsageError
from rmqctl.operations.look.recordstarts import require_record
from rmqctl.operations.look.topics import topics
from rmqctl.operations.look.walk import Selection, walk_commit_log
from rmqctl.operations.verify import verify
from tests import golden_data
from tests.conftest import Golden
from tests.golden_data import broker_conf
from tests.test_cli.conftest import CONFIG, NASTY, message, store

__all__ = ["store"]  # A fixture of another file.


def never() -> bool:
    return False


def opened_golden(golden: Golden, name: str) -> Opened:
    return Opened(golden(name), broker_conf(name))


def all_lines(source: Source, stop: Stop = never) -> list[Line]:
    source.prepare(stop)
    low, high = source.bounds()
    return list(source.load(low, high, stop).values())


def damaged(golden: Golden, case: str, tmp_path: Path) -> Opened:
    told = golden_data.damage_case(case)
    root = golden_data.copy_tree(golden(told["base"]), tmp_path / case)
    golden_data.apply_damage(root, told["ops"])
    return Opened(root, broker_conf(told["base"]))


def test_topics_and_queues_are_those_of_the_commands(golden: Golden) -> None:
    opened = opened_golden(golden, "broker")
    rows = [row for row in topics(opened.store) if row["type"] == "topic"]
    lines = all_lines(Topics(opened))
    assert [(line.place.topic, *line.cells[1:4]) for line in lines] == [
        (row["topic"], row["kind"], f"{row['queues']:,}", f"{row['messages']:,}") for row in rows
    ]
    queues = all_lines(Queues(opened, "orders"))
    assert [line.place.queue_id for line in queues] == [0, 1, 2, 3]
    assert all_lines(Queues(opened, "../orders")) == all_lines(Queues(opened, "absent")) == []


def test_topics_are_narrowed_down_by_a_part_of_their_name(golden: Golden) -> None:
    source = Topics(opened_golden(golden, "broker"))
    source.prepare(never)
    source.choose("ORDERS")
    assert source.names == ["%DLQ%cg_orders", "%RETRY%cg_orders", "orders"]
    assert "3 topics with 'ORDERS'" in source.where(0)


def test_only_the_lines_that_are_asked_for_open_their_queues(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    find = ConsumeQueueTableReader.find

    def noting(self: ConsumeQueueTableReader, topic: str, queue_id: int) -> object:
        asked.append(topic)
        return find(self, topic, queue_id)

    monkeypatch.setattr(ConsumeQueueTableReader, "find", noting)
    source = Topics(opened_golden(golden, "broker"))
    source.prepare(never)
    assert asked == []
    source.load(source.names.index("orders"), source.names.index("orders") + 1, never)
    assert set(asked) == {"orders"}


def test_messages_of_a_queue_are_numbered_by_queue_offset(store: Path) -> None:
    source = QueueMessages(Opened(store, CONFIG), "orders", 1)
    lines = all_lines(source)
    assert [line.place.queue_offset for line in lines] == list(range(len(lines)))
    assert lines[3].cells[3:] == ("paid", "order-7 all", "body 7")
    assert source.at_time(0) == 0 and source.at_time(1 << 60) is None


def test_damage_in_a_queue_is_a_line_that_says_why(golden: Golden, tmp_path: Path) -> None:
    opened = damaged(golden, "bad-magic-late", tmp_path)
    lines = all_lines(QueueMessages(opened, "TopicA", 1))
    (bad,) = [line for line in lines if line.tone == "error"]
    assert bad.cells == ("30", "bad-magic") and "0xdeadbeef" in bad.note
    # Its bytes can be looked at all the same.
    at = bad.place.physical_offset
    assert at is not None
    shown = all_lines(Message(opened, at, HEX, 80))
    assert shown[1].cells[1] == "de ad be ef" and shown[-1].tone == "error"


@pytest.mark.parametrize("name", ["basic", "broker", "crash"])
def test_the_log_is_the_walks_from_any_place_in_both_directions(name: str, golden: Golden) -> None:
    opened = opened_golden(golden, name)
    expected = [entry.physical_offset for entry in opened.store.commit_log.walk()]
    middle = expected[len(expected) // 2]
    log = Log(opened, middle)
    log.prepare(never)
    found: dict[int, Line] = {}
    for _ in range(2 * len(expected)):
        low, high = log.bounds()
        if (low, high) == (min(found, default=0), max(found, default=-1) + 1):
            break
        found |= log.load(low, high, never)
    assert [found[number].cells[0] for number in sorted(found)] == [str(at) for at in expected]
    assert found[0].cells[0] == str(middle)
    assert "100 %" in log.where(max(found)) and log.where(1 << 40) == ""


def test_the_log_keeps_so_many_entries_however_far_one_goes(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqctl.cli.browse.model.log._MOST", 50)
    opened = opened_golden(golden, "broker")
    log = Log(opened, 0)
    log.prepare(never)
    for start in range(0, 400, 20):
        assert len(log.load(start, start + 20, never)) == 20
    back = {
        n: line for at in range(380, -1, -20) for n, line in log.load(at, at + 20, never).items()
    }
    walked = [one for one in opened.store.commit_log.walk() if not isinstance(one, End)]
    assert [back[n].place.physical_offset for n in range(400)] == [
        entry.physical_offset for entry in walked[:400]
    ]


def test_a_body_is_shown_as_what_it_is(tmp_path: Path) -> None:
    bodies = {
        b'{"b":[1.10,{"x":"a\\n\xc3\xa9"}],"a":12345678901234567890123,"e":{}}': JSON,
        b"{not JSON": TEXT,
        "naïve\ttext\r\nline two".encode(): TEXT,
        b"\xff\x00\x1b[2J": TEXT,
        b"": TEXT,
    }
    path = tmp_path / "store"
    with MessageStore(path, CONFIG, writable=True, create=True) as written:
        places = [written.put_message(message(0, body=body)).append for body in bodies]
    opened = Opened(path, CONFIG)
    shown = {}
    for place, (body, view) in zip(places, bodies.items(), strict=True):
        assert place is not None
        source = Message(opened, place.wrote_offset, None, 80)
        lines = all_lines(source)
        assert source.view == view
        shown[body] = [line.cells for line in lines if len(line.cells) == 1]
    first, *_ = shown.values()
    text = "\n".join(cells[0] for cells in first)
    assert json.loads(text) == json.loads(next(iter(bodies)))
    assert "    1.10," in text and '"a": 12345678901234567890123' in text and '"e": {}' in text
    assert shown["naïve\ttext\r\nline two".encode()] == [("naïve   text",), ("line two",)]


def test_json_that_is_deep_or_long_stays_small(tmp_path: Path) -> None:
    bodies = [b"[" * 900 + b"]" * 900, b"[" * 100_000, b'{"a":"' + b"x" * MOST_SHOWN + b'"}']
    path = tmp_path / "store"
    config = broker_conf("defaults")
    with MessageStore(path, config, writable=True, create=True) as written:
        places = [written.put_message(message(0, body=body)).append for body in bodies]
    opened = Opened(path, config)
    for place, view in zip(places, (JSON, TEXT, TEXT), strict=True):
        assert place is not None
        source = Message(opened, place.wrote_offset, None, 80)
        lines = all_lines(source)
        assert source.view == view
        assert sum(len(line.cells[-1]) for line in lines) < 2 * MOST_SHOWN
    assert "8 B more" in lines[-1].cells[-1]


def test_every_byte_of_a_record_is_in_the_hex_view_once(store: Path) -> None:
    opened = Opened(store, CONFIG)
    for record in walk_commit_log(opened.store, Selection(limit=3)):
        if record["type"] != "message":
            continue
        at, size = record["physical_offset"], record["total_size"]
        mapped, position = opened.store.commit_log.locate(at)
        for columns in (80, 160):
            lines = all_lines(Message(opened, at, HEX, columns))
            assert bytes.fromhex("".join(line.cells[1] for line in lines)) == mapped.read(
                position, size
            )
        assert any(line.cells[3].startswith("store_timestamp 20") for line in lines)
        assert all(line.note for line in lines)


def test_a_body_that_is_not_what_was_stored_is_said(golden: Golden, tmp_path: Path) -> None:
    opened = damaged(golden, "flip-body-early", tmp_path)
    (found,) = [f for f in verify(opened.root, opened.config) if not hasattr(f, "records")][:1]
    at = getattr(found, "physical_offset", None)
    assert at is not None
    lines = all_lines(Message(opened, at, TEXT, 80))
    assert any("body-crc-mismatch" in line.cells[-1] and line.tone == "error" for line in lines)
    # Nor is it shown as a sound one where it is one of many.
    record = require_record(opened.store, at)
    log = Log(opened, at)
    log.prepare(never)
    lists = [
        all_lines(QueueMessages(opened, record.topic, record.queue_id)),
        list(log.load(0, 20, never).values()),
    ]
    for lines in lists:
        (bad,) = [line for line in lines if line.tone == "error"]
        assert bad.place.physical_offset == at and "body-crc-mismatch" in bad.note
        assert "DAMAGED" in bad.cells[-1]


@pytest.mark.parametrize("text", ["", "a" * 25, "中文" * 20, "é" * 11 + "中", "\u0301" * 50])
def test_wrapped_text_is_all_there_and_fits(text: str) -> None:
    pieces = list(wrapped(text, 11))
    assert "".join(pieces) == text
    assert all(width(piece) <= 11 for piece in pieces)


def test_findings_come_worst_first_with_their_places(golden: Golden, tmp_path: Path) -> None:
    opened = damaged(golden, "bad-magic-late", tmp_path)
    findings = Findings(opened)
    findings.run(never)
    assert findings.state == DONE
    lines = all_lines(findings)
    assert [line.cells[0] for line in lines] == ["error", "error", "warning"]
    assert findings.verdict() == "2 errors, 1 warning"
    bad = findings.finding(0)
    assert bad is not None and bad.physical_offset is not None
    marks = findings.marks(40)
    assert marks[findings.column_of(bad.physical_offset, 40)] == "█"
    assert set(marks) == {"█", "─"}
    assert [name for name, _ in findings.detail(0)] == ["bad-magic", "expected", "found", "next"]
    key = findings.key_of(2)
    assert key == ("warning", 0)
    findings.add(bad)
    assert findings.number_of(key) == 3


def test_a_sound_store_is_called_so_only_at_the_end(golden: Golden) -> None:
    findings = Findings(opened_golden(golden, "broker"))
    assert findings.verdict() == "nothing found so far"
    assert set(findings.marks(10)) == {"·"}
    findings.run(never)
    assert findings.verdict() == "OK: 829 messages, 829 units, 1,672 index items"


def after(looks: int) -> Callable[[], bool]:
    """Wanted for so many looks, and then no more."""
    left = iter(range(looks))
    return lambda: next(left, None) is None


@pytest.mark.parametrize("looks", [0, 1])
def test_verify_and_find_end_where_nobody_waits_for_them(looks: int, golden: Golden) -> None:
    opened = opened_golden(golden, "broker")
    jobs: list[Job] = [
        Findings(opened),
        Found(opened, "order-3", None, scans=True),
        Found(opened, "order-3", None, scans=False),
    ]
    for job in jobs:
        job.run(after(looks))
        assert job.state == STOPPED
    with pytest.raises(Cancelled):
        all_lines(Topics(opened), after(looks))


def test_verify_can_be_ended_at_each_queue(golden: Golden) -> None:
    opened = opened_golden(golden, "broker")
    looks = 0

    def counting() -> bool:
        nonlocal looks
        looks += 1
        return False

    Findings(opened).run(counting)
    assert looks > 2 * len(list(opened.store.queues.directories()))
    for ends_after in (looks - 3, looks // 2):
        findings = Findings(opened)
        findings.run(after(ends_after))
        assert findings.state == STOPPED and findings.summary is None


def test_a_bug_in_a_job_is_not_taken_for_damage(golden: Golden) -> None:
    class Broken(Job):
        def work(self, stop: Stop) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Broken().run(never)


def test_what_was_found_says_how_and_what_was_not_looked_at(golden: Golden) -> None:
    opened = opened_golden(golden, "broker")
    found = Found(opened, "order-3", None, scans=False)
    found.run(never)
    assert [line.cells[1:3] for line in all_lines(found)] == [("orders", "key")]
    assert "log" in found.not_searched
    by_scan = Found(opened, "iquqzuqtxfudjie", "orders", scans=True)
    by_scan.run(never)
    assert [line.cells[1:3] for line in all_lines(by_scan)] == [("orders", "body")]
    assert by_scan.not_searched == ["other-topics"]
    with pytest.raises(UsageError):
        Found(opened, "", None, scans=False)


def test_what_retention_removes_meanwhile_is_a_line_and_no_error(
    golden: Golden, tmp_path: Path
) -> None:
    root = golden_data.copy_tree(golden("basic"), tmp_path / "store")
    opened = Opened(root, broker_conf("basic"))
    source = QueueMessages(opened, "TopicA", 0)
    source.prepare(never)
    low, high = source.bounds()
    (root / "commitlog" / ("0" * 20)).unlink()
    lines = list(source.load(low, high, never).values())
    assert "retention removes files while you look; r looks again" in lines[0].cells[0]
    assert lines[-1].tone == ""
    findings = Findings(opened)
    findings.run(never)
    assert findings.state in (DONE, FAILED)
    assert opened.again(never)
    again = QueueMessages(opened, "TopicA", 0)
    assert all(line.tone == "" for line in all_lines(again))


def test_bytes_of_a_store_stay_with_the_lines_as_they_are(store: Path) -> None:
    """It is the widget that makes them safe, and only it."""
    lines = all_lines(Topics(Opened(store, CONFIG)))
    assert [line.cells[0] for line in lines] == ["nasty\u202etopic", "orders"]
    source = QueueMessages(Opened(store, CONFIG), "nasty\u202etopic", 0)
    (nasty,) = all_lines(source)
    assert nasty.place.physical_offset is not None
    shown = all_lines(Message(Opened(store, CONFIG), nasty.place.physical_offset, TEXT, 200))
    assert any("\\x1b[31mred" in line.cells[-1] for line in shown)
    assert not any(NASTY in cell for line in shown for cell in line.cells)
