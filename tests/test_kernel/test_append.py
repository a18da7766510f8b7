"""The kernel stores what the pure engine stores of the same lines: every byte, row and error."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.text import encode_properties
from rmqctl import kernel
from rmqctl.cli.main import run
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.write.bulk import BulkAppender
from rmqctl.engine.write.lines import LineAppender, LineDefaults
from rmqctl.operations.change.messagemaker import MessageMaker
from rmqctl.operations.change.put import DryPut
from rmqctl.operations.change.putstream import BulkPut, LineStream
from tests.conftest import Golden
from tests.seeds import times
from tests.test_kernel.putlines import (
    HOSTILE,
    ROOMY,
    any_lines,
    assert_equal,
    cuts,
    defaults,
    dry_run,
    in_blocks,
    odd_rows,
    partial_lines,
    put,
    row_lines,
    spelled,
    told,
    usual_lines,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("compiled")


@settings(max_examples=times(40), deadline=None)
@given(st.lists(usual_lines, max_size=40), cuts)
def test_usual_lines(lines: list[bytes], cuts: list[int]) -> None:
    assert_equal(in_blocks(lines, cuts))


@settings(max_examples=times(40), deadline=None)
@given(st.lists(row_lines, max_size=40), cuts)
def test_rows_of_messages(lines: list[bytes], cuts: list[int]) -> None:
    assert_equal(in_blocks(lines, cuts))


@settings(max_examples=times(60), deadline=None)
@given(st.lists(row_lines | odd_rows.flatmap(spelled), max_size=20), cuts)
def test_any_rows(lines: list[bytes], cuts: list[int]) -> None:
    assert_equal(in_blocks(lines, cuts))


@settings(max_examples=times(60), deadline=None)
@given(st.lists(usual_lines, max_size=12), st.lists(any_lines, max_size=6), cuts)
def test_any_lines(first: list[bytes], lines: list[bytes], cuts: list[int]) -> None:
    assert_equal(in_blocks([*first, *lines, *first], cuts))


@settings(max_examples=times(60), deadline=None)
@given(st.lists(partial_lines | row_lines, max_size=30), cuts, defaults)
def test_lines_with_defaults(lines: list[bytes], cuts: list[int], usual: dict[str, Any]) -> None:
    assert_equal(in_blocks(lines, cuts), **usual)


@settings(max_examples=times(80), deadline=None)
@given(
    st.lists(usual_lines, max_size=5),
    st.lists(usual_lines | row_lines | partial_lines, max_size=30),
    st.lists(any_lines, max_size=6),
    cuts,
    st.just({}) | defaults,
)
def test_a_dry_run_says_what_the_put_says(
    before: list[bytes],
    first: list[bytes],
    lines: list[bytes],
    cuts: list[int],
    usual: dict[str, Any],
) -> None:
    blocks = in_blocks([*first, *lines, *first], cuts)
    pure, done = (
        dry_run(choice, in_blocks(before, [9]), blocks, **usual) for choice in ("pure", "compiled")
    )
    assert done.rows == pure.rows and done.error == pure.error and done.run == pure.run
    stored = put("compiled", blocks, **usual)
    assert [answer(row) for row in done.rows] == [answer(row) for row in stored.rows]
    assert bool(done.error) == bool(stored.error) and done.run.line == stored.run.line


def answer(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["status"], row["topic"], row["queue_id"], row.get("reason")


def test_the_kernel_checks_nearly_all_of_a_dry_run(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Any] = []
    check = DryPut.check

    def noted(dry: DryPut, message: MessageExtBrokerInner) -> Any:
        checked.append(message)
        return check(dry, message)

    monkeypatch.setattr(DryPut, "check", noted)
    lines = [b'{"topic":"%s","queue_id":%d}' % (t, n % 5) for n in range(900) for t in (b"a", b"b")]
    lines[700:700] = [b'{"topic":"a","delay_level":1}', b"", b'{"topic":"a","body":"x"}']
    done = dry_run("compiled", [lines[0]], in_blocks(lines, [400, 30]))
    assert len(done.rows) == 1802 and done.run.line == 1803 and len(checked) == 12


@pytest.mark.parametrize("line", HOSTILE)
def test_a_hostile_line_between_usual_ones(line: bytes) -> None:
    usual = b'{"topic":"a","body":"x"}'
    done = assert_equal([b"\n".join([usual, usual, usual, line, usual, usual])])
    assert done.run.stored >= 3


@pytest.fixture
def put_alone(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The messages that the kernel does not take."""
    single: list[Any] = []
    put_special, fill_plain = (BulkAppender._put_special, BulkAppender._fill_plain)

    def special(appender: Any, message: Any, stored: Any) -> Any:
        single.append(message)
        return put_special(appender, message, stored)

    def filled(appender: Any, stored: Any, *more: Any) -> Any:
        before = len(stored)
        message = fill_plain(appender, stored, *more)
        if isinstance(appender, LineAppender):
            single.extend(stored[before:])
        return message

    monkeypatch.setattr(LineAppender, "_put_special", special)
    monkeypatch.setattr(BulkAppender, "_fill_plain", filled)
    return single


def test_more_than_a_bulk_to_many_queues(put_alone: list[Any]) -> None:
    """The kernel takes nearly all of them, and the log has several files."""
    lines = [
        json.dumps(
            {"topic": f"t{n % 7}", "queue_id": n % 5, "keys": f"k{n}", "tags": f"g{n % 3}"}
            | {"properties": {"UNIQ_KEY": f"{n:032X}", "b": "2"}, "body": "x" * (n % 900)}
        ).encode()
        for n in range(20_000)
    ]
    done = assert_equal(in_blocks(lines, [1000, 300]), ROOMY)
    assert done.run.stored == len(done.rows) == 20_000
    assert len(put_alone) < 200


def test_rows_of_another_store(put_alone: list[Any]) -> None:
    """Also of two brokers in turns, and with compressed bodies, the kernel takes nearly all."""
    rows = [
        told(
            {
                "type": "message",
                "topic": f"t{n % 3}",
                "msg_id": "7F",
                "queue_id": n % 2,
                "status": "ok",
            }
            | {"born_host": f"10.0.0.{n % 9}:{n}", "store_host": f"10.0.1.{n // 700 % 2}:10911"}
            | {"sys_flag": n % 3 % 2, "properties": {"UNIQ_KEY": f"{n:032X}", "KEYS": f"k{n} k"}},
            b"body" * (n % 90),
            ("utf8", "base64")[n % 2],
        )
        for n in range(5_000)
    ]
    done = assert_equal(in_blocks([json.dumps(row).encode() for row in rows], [1000]), ROOMY)
    assert done.run.stored == 5_000
    assert len(put_alone) < 100


@pytest.mark.parametrize("name", ["broker", "delay", "transaction", "ipv6", "lmq", "timer"])
def test_rows_of_golden_stores(
    name: str, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["walk", "commitlog", "--body-as", "base64", "--format", "ndjson", "--store"]
    assert run([*line, str(golden(name))]) == 0
    rows = capsys.readouterr().out
    assert_equal([rows.encode()], ROOMY)


def test_properties_are_in_javas_order() -> None:
    """Also where a map grows, and where names have the same hash; of too many Python makes it."""
    for count in (1, 8, 9, 12, 13, 25, 49, 64, 65):
        crowded = ["".join(pair) for pair in itertools.product(("Aa", "BB"), repeat=6)]
        for some in (crowded, [f"name{n}" for n in range(65)]):
            properties = dict.fromkeys(some[:count], "v")
            line = json.dumps({"topic": "a", "properties": properties}).encode()
            done = assert_equal([b"\n".join([line] * 3)], ROOMY)
            log = dict(done.files)["commitlog/" + "0" * 20]
            assert log.count(encode_properties(properties)) == 3


def test_bulks_are_looked_at_from_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of a run is the same by its number as in its turn."""
    monkeypatch.setenv(kernel.VARIABLE, "compiled")
    lines = [b'{"topic":"a","body":"%d"}' % n for n in range(50)]
    lines += [b'{"topic":"b"}', *lines[:9]]
    with (
        TemporaryDirectory() as directory,
        MessageStore(Path(directory) / "store", ROOMY, writable=True, create=True) as store,
    ):
        stream = LineStream(
            iter([b"\n".join(lines)]), BulkPut("lines"), MessageMaker(), LineDefaults()
        )
        (bulk,) = store.append_stream(stream)
    rows = list(bulk.stored)
    assert len(rows) == len(bulk.stored) == 60
    assert [bulk.stored[n] for n in range(60)] == rows == [*reversed([*reversed(bulk.stored)])]
    assert bulk.stored[-1] == rows[-1] and bulk.stored[10:12] == rows[10:12]
    assert [row.queue_offset for row in rows if row.topic == "a"] == list(range(59))
