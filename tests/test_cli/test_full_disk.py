"""``put``, ``transaction`` and ``schedule deliver`` on a disk that is full from any allocation on:
an error with exit code 5, and nothing lost or done twice afterwards."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore, system_clock
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from tests.test_cli.conftest import CONFIG, Cli, Done
from tests.test_cli.test_transaction import HALF, OP, half
from tests.test_safety.support import assert_clean
from tests.test_safety.test_disk_full import ASKS, Disk

COUNT = 6


def put(root: Path, messages: list[MessageExtBrokerInner]) -> list[int]:
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        results = [store.put_message(message, flush=False) for message in messages]
    return [result.append.wrote_offset for result in results if result.append is not None]


def in_queue(root: Path, topic: str) -> list[Record]:
    """What the queues of a topic deliver."""
    found = []
    with MessageStore(root, CONFIG) as store:
        for where in store.queues.directories():
            if where.topic == topic:
                got = store.get_message(topic, where.queue_id, 0, physical_memory=1 << 40)
                found += got.records
    return found


def on_a_full_disk(
    cli: Cli,
    at: int,
    line: list[Any],
    root: Path,
    ends: bool = False,
    asks: tuple[str, ...] = ASKS,
) -> tuple[Done, bool]:
    """Runs a command whose ``at``-th allocation fails, and all behind it; whether it had one. When
    it ``ends`` there is room again as soon as the store is closed."""
    with pytest.MonkeyPatch.context() as patched:
        disk = Disk(patched, at, errno.ENOSPC, asks)
        if ends:
            real = MessageStore.close

            def close(store: MessageStore) -> None:
                disk.at = 1 << 30
                real(store)

            patched.setattr(MessageStore, "close", close)
        done = cli(*line, "--format", "ndjson", store=root)
        # Only the last write of all may fail in silence: the checkpoint of a store that is closed.
        # An older one is as safe.
        failed = disk.refused != ["pwrite"] if not done.code else bool(disk.refused)
        return done, failed and disk.asked >= at


def assert_error(done: Done) -> None:
    assert done.code == 5, done
    error = done.err.strip().splitlines()[-1]
    assert error.startswith(("error: ", "rmqctl: error")) and "No space left" in error, done.err


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("action", ["commit", "rollback"])
def test_every_allocation_of_an_ended_transaction_may_fail(
    action: str, ends: bool, cli: Cli, tmp_path: Path
) -> None:
    seen: Counter[str] = Counter()
    # The first chunk that is reserved is the log's. Among all questions its place moves by one: an
    # open writes the checkpoint when its times have moved on.
    places = [(1, ("posix_fallocate",)), *((at, ASKS) for at in range(1, 400))]
    for number, (at, asks) in enumerate(places):
        root = tmp_path / str(number)
        offsets = put(root, [half(one) for one in range(COUNT)])
        line = ["transaction", action, *offsets]
        done, failed = on_a_full_disk(cli, at, line, root, ends, asks)
        if not failed or (ends and not done.code):
            assert done.code == 0
            break
        if done.out:
            *rows, summary = done.rows
            seen.update(row["status"] for row in rows)
            assert summary["done"] + summary["refused"] + summary["not_tried"] == COUNT
            assert all(row["reason"] for row in rows if row["status"] != "PUT_OK")
        assert_error(done)
        again = cli(*line, "--format", "ndjson", store=root)
        assert {row["status"] for row in again.rows[:-1]} <= {"PUT_OK", "NOT_PENDING"}
        ended = sorted(int(body_of(root, op)) for op in in_queue(root, OP))
        assert ended == list(range(COUNT)), "each half has one op message"
        finals = Counter(r.prepared_transaction_offset for r in in_queue(root, "orders"))
        assert finals == (Counter(offsets) if action == "commit" else Counter())
        assert not cli("transaction", "ls", "--format", "ndjson", store=root).rows[:-1]
        assert len(in_queue(root, HALF)) == COUNT
        assert_clean(root, CONFIG)
    else:
        raise AssertionError("the run never ends")
    assert "SERVICE_NOT_AVAILABLE" in seen


def body_of(root: Path, record: Record) -> bytes:
    with MessageStore(root, CONFIG) as store:
        return store.body(record)


@pytest.mark.parametrize("ends", [False, True])
def test_every_allocation_of_a_delivery_may_fail(ends: bool, cli: Cli, tmp_path: Path) -> None:
    def delayed(number: int) -> MessageExtBrokerInner:
        properties = {"DELAY": str(1 + number % 2), "UNIQ_KEY": f"U{number}"}
        return MessageExtBrokerInner("orders", b"%d" % number * 90, properties=properties)

    refused = 0
    for at in range(1, 400, 3):
        root = tmp_path / str(at)
        put(root, [delayed(number) for number in range(COUNT)])
        line = ["schedule", "deliver", "--until", str(system_clock() + 60_000)]
        done, failed = on_a_full_disk(cli, at, line, root, ends)
        if not failed or (ends and not done.code):
            assert done.code == 0
            break
        assert_error(done)
        if done.out:
            rows = [row for row in done.rows if row["type"] == "undelivered"]
            refused += len(rows)
            assert len(rows) == 1, "no other level is tried"
        again = cli(*line, "--skip-delivered", "--format", "ndjson", store=root)
        assert again.code == 0, (done, again)
        keys = sorted(record.properties["UNIQ_KEY"] for record in in_queue(root, "orders"))
        assert keys == [f"U{number}" for number in range(COUNT)]
        assert_clean(root, CONFIG)
    else:
        raise AssertionError("the run never ends")
    assert refused


def keys_in_log(root: Path) -> list[str]:
    with MessageStore(root, CONFIG) as store:
        entries = store.commit_log.walk()
        return [one.properties["KEYS"] for one in entries if isinstance(one, Record)]


def left_to_do(done: Done, count: int) -> int:
    """How many of the lines are not to be put again, by what stderr and the last row say."""
    went_on = re.search(r"[Gg]o on from line (\d+)", done.err)
    if went_on:
        assert done.rows[-1]["next_line"] == int(went_on[1])
        return int(went_on[1]) - 1
    if re.search("[Dd]o not put (it|them) again", done.err):
        return count
    assert "try again" in done.err and "is stored" not in done.err, done.err
    return 0


def lines_of(count: int) -> list[str]:
    """So many messages, and lines that have none."""
    lines = []
    for number in range(count):
        lines += [""] * (number % 5 == 3)
        lines += ['{"type":"blank"}'] * (number % 7 == 2)
        lines.append(json.dumps({"topic": "orders", "body": "x" * 60, "keys": f"k{number}"}))
    return lines


OPTIONS = [[], ["--batch", "1"], ["--batch", "4"], ["--flush", "async"]]


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_who_goes_on_where_a_sync_failed_has_each_message_once(
    cli: Cli, tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has what was not answered."""
    count, source, failures = 40, tmp_path / "lines", 0
    real = os.fdatasync
    for at in range(1, 60):
        root = tmp_path / str(at)
        put(root, [MessageExtBrokerInner("orders", b"", properties={"KEYS": "first"})])
        calls = itertools.count(1)

        def fails_once(descriptor: int, calls: Iterator[int] = calls, at: int = at) -> None:
            if next(calls) == at:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            real(descriptor)

        lines = lines_of(count)
        source.write_text("\n".join(lines))
        line = ["put", "--from", source, *options, "--format", "ndjson"]
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fails_once)
            done = cli(*line, store=root)
        if not done.code:
            assert len(keys_in_log(root)) == count + 1
            if next(calls) < at:
                break
            continue
        failures += 1
        assert done.code == 5, done
        source.write_text("\n".join(lines[left_to_do(done, len(lines)) :]))
        again = cli(*line, store=root)
        assert again.code == 0, (done, again)
        assert keys_in_log(root) == ["first", *(f"k{number}" for number in range(count))], done.err
        assert_clean(root, CONFIG)
    else:
        raise AssertionError("the run never ends")
    assert failures


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_who_puts_again_what_stderr_says_has_each_message_once(
    cli: Cli, tmp_path: Path, options: list[str]
) -> None:
    """Also where the disk is too full for the end of the command, too."""
    count = 40
    lines = lines_of(count)
    source = tmp_path / "lines"
    kinds = Counter[str]()
    for at in range(1, 400, 3):
        root = tmp_path / str(at)
        put(root, [MessageExtBrokerInner("orders", b"", properties={"KEYS": "first"})])
        source.write_text("\n".join(lines))
        line = ["put", "--from", source, *options]
        done, failed = on_a_full_disk(cli, at, line, root)
        if not failed:
            assert done.code == 0
            break
        assert_error(done)
        first = left_to_do(done, len(lines))
        kinds["logged" if re.search("[Dd]o not put", done.err) else "go on"] += 1
        source.write_text("\n".join(lines[first:]))
        again = cli(*line, "--format", "ndjson", store=root)
        assert again.code == 0, (done, again)
        expected = ["first", *(f"k{number}" for number in range(count))]
        assert keys_in_log(root) == expected, done.err
        assert_clean(root, CONFIG)
    else:
        raise AssertionError("the run never ends")
    assert kinds["go on"] and (kinds["logged"] or "--batch" in options)


def test_a_single_put_says_whether_the_log_has_it(cli: Cli, tmp_path: Path) -> None:
    said = Counter[bool]()
    for at in range(1, 100):
        root = tmp_path / str(at)
        put(root, [MessageExtBrokerInner("orders", b"", properties={"KEYS": "first"})])
        line = ["put", "--topic", "others", "--body", "x", "--keys", "k"]
        done, failed = on_a_full_disk(cli, at, line, root)
        if not failed:
            break
        assert_error(done)
        is_logged = "k" in keys_in_log(root)
        assert is_logged == bool(re.search("[Dd]o not put it again", done.err)), done.err
        said[is_logged] += 1
    assert said[True] and said[False]
