"""``replicate`` and a master on loopback: what is copied, gone on with, refused, and killed."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.pieces import PieceReader
from rmqctl.engine.state import brokerjson, fastjson
from rmqctl.engine.write import replica
from rmqctl.operations.verify import Finding, verify
from rmqctl.serve.processors import table
from rmqctl.serve.processors.request import Outcome, Request, Served
from rmqctl.serve.wire.command import RemotingCommand
from tests.golden_data import tree_content
from tests.test_cli.conftest import Cli
from tests.test_engine.test_pieces import log_bytes
from tests.test_replicate.live import CONFIG, FILE_SIZE, SAYS, LiveMaster, live

Rows = list[dict[str, Any]]


def same(master: Path, copy: Path) -> None:
    """Log and queues byte by byte, and verify has nothing to say."""
    for name in ("commitlog", "consumequeue"):
        assert tree_content(copy / name) == tree_content(master / name), name
    assert [one for one in verify(copy, CONFIG) if isinstance(one, Finding)] == []


def replicate(cli: Cli, master: LiveMaster, copy: Path, *options: str, code: int = 0) -> Rows:
    """Until it has caught up; its rows."""
    done = cli(
        *("replicate", f"127.0.0.1:{master.ha_port}", "--broker", f"127.0.0.1:{master.port}"),
        *("--to", copy, "--until-caught-up", "--format", "ndjson", *options),
    )
    assert done.code == code, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_copy_has_all_of_it_and_goes_on(tmp_path: Path, cli: Cli) -> None:
    copy = tmp_path / "copy"
    with live(tmp_path / "master") as master:
        master.put(60)
        first = replicate(cli, master, copy, "--verify")
        assert first[0]["from_offset"] == 0 and first[0]["master_min_offset"] == 0
        again = replicate(cli, master, copy)
        assert again[-1]["records"] == 0 and again[-1]["caught_up"]
        master.put(30, size=900)
        more = replicate(cli, master, copy)
        assert more[-1]["records"] == 30
        end = master.store.max_offset
    summary = first[-1]
    assert summary["records"] == 60 and summary["errors"] == summary["warnings"] == 0
    assert more[-1]["max_offset"] == more[-1]["master_max_offset"] == end
    same(tmp_path / "master", copy)
    assert not (copy / "abort").exists()
    names = [row["name"] for row in first if row["type"] == "config_written"]
    assert names == [
        "topics.json",
        "consumerOffset.json",
        "delayOffset.json",
        "subscriptionGroup.json",
    ]
    assert [row["name"] for row in again if row["type"] == "config_written"] == []
    assert [r["name"] for r in more if r["type"] == "config_written"] == ["consumerOffset.json"]
    with MessageStore(copy, CONFIG) as store:
        queue = store.consume_queue("orders", 0)
        assert queue is not None
        offsets = brokerjson.consumer_offsets(copy, None)
        assert offsets["orders", "readers"] == {0: queue.max_offset, 1: 0}


@pytest.mark.parametrize("told", ["", "enableLmq=true\n"])
def test_offsets_of_a_master_with_light_queues_are_in_its_file(
    told: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is the text of that file (``LmqConsumerOffsetManager#encode``), and a broker that
    starts on the copy reads no other."""
    code, copy = RequestCode.GET_ALL_CONSUMER_OFFSET, tmp_path / "copy"
    tables: dict[str, Any] = {
        "offsetTable": {"a@g": {0: 3}},
        "lmqOffsetTable": {"%LMQ%a@%LMQ%g": 7},
    }
    monkeypatch.setitem(SAYS, code, lambda one: fastjson.dumps(tables))
    says = SAYS[RequestCode.GET_BROKER_CONFIG]
    monkeypatch.setitem(SAYS, RequestCode.GET_BROKER_CONFIG, lambda one: says(one) + told)
    with live(tmp_path / "master") as master:
        master.put(3)
        rows = replicate(cli, master, copy)
    names = [row["name"] for row in rows if row["type"] == "config_written"]
    assert "lmqConsumerOffset.json" in names and "consumerOffset.json" not in names
    assert brokerjson.read(copy / "config/lmqConsumerOffset.json") == tables
    assert brokerjson.consumer_offsets(copy, True) == {
        ("a", "g"): {0: 3},
        ("%LMQ%a", "%LMQ%g"): {0: 7},
    }


def test_verify_goes_by_the_masters_own_delay_levels(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels, code = "7s 8s 9s", RequestCode.GET_BROKER_CONFIG
    says = SAYS[code]
    monkeypatch.setitem(SAYS, code, lambda one: f"{says(one)}messageDelayLevel={levels}\n")
    later = MessageExtBrokerInner("orders", b"later", properties={"DELAY": "2"})
    with live(tmp_path / "master", replace(CONFIG, message_delay_level=levels)) as master:
        assert all(one.is_ok for one in master.store.put_messages([later]))
        rows = replicate(cli, master, tmp_path / "copy", "--verify")
        queues = tree_content(tmp_path / "master" / "consumequeue")
    assert rows[-1]["records"] == 1 and rows[-1]["errors"] == rows[-1]["warnings"] == 0
    assert tree_content(tmp_path / "copy" / "consumequeue") == queues


def test_a_log_that_does_not_begin_at_0(tmp_path: Path, cli: Cli) -> None:
    copy = tmp_path / "copy"
    with live(tmp_path / "master") as master:
        master.put(120)
        master.store.commit_log.files.entries[0].path.unlink()
        first = master.store.commit_log.files.entries.pop(0)
        master.store.commit_log.files._offsets.pop(0)
        assert replicate(cli, master, copy)[0]["from_offset"] == first.size
        end = master.store.max_offset
    with MessageStore(copy, CONFIG) as store:
        assert (store.min_offset, store.max_offset) == (first.size, end)
    found = [one.code for one in verify(copy, CONFIG) if isinstance(one, Finding)]
    assert found == ["log-starts-late"]


def test_an_empty_master(tmp_path: Path, cli: Cli) -> None:
    with live(tmp_path / "master") as master:
        assert replicate(cli, master, tmp_path / "copy")[-1]["caught_up"]
        master.put(5)
        assert replicate(cli, master, tmp_path / "copy")[-1]["records"] == 5
    same(tmp_path / "master", tmp_path / "copy")


def test_another_store_is_refused(tmp_path: Path, cli: Cli) -> None:
    copy = tmp_path / "copy"
    with live(tmp_path / "one") as master:
        master.put(20)
        replicate(cli, master, copy)
    before = tree_content(copy / "commitlog")
    with live(tmp_path / "other") as master:
        done = cli(
            *("replicate", f"127.0.0.1:{master.ha_port}", "--to", copy, "--until-caught-up"),
            *("--broker", f"127.0.0.1:{master.port}"),
        )
        assert done.code == 5 and "and the master's log at 0" in done.err
        assert "Copy into a new directory with --to" in done.err
        master.put(30, size=60)
        done = cli(
            *("replicate", f"127.0.0.1:{master.ha_port}", "--to", copy, "--until-caught-up"),
            *("--broker", f"127.0.0.1:{master.port}"),
        )
        assert done.code == 5 and "is no copy of this master" in done.err
    assert tree_content(copy / "commitlog") == before


def without_first_file(master: LiveMaster) -> int:
    """Where the master's log begins then."""
    files = master.store.commit_log.files
    files.entries.pop(0).path.unlink()
    files._offsets.pop(0)
    return master.store.min_offset


def refused(cli: Cli, master: LiveMaster, copy: Path) -> str:
    """What a user is told; the copy's log stays as it is."""
    before = tree_content(copy / "commitlog") if copy.exists() else None
    done = cli(
        *("replicate", f"127.0.0.1:{master.ha_port}", "--to", copy, "--until-caught-up"),
        *("--broker", f"127.0.0.1:{master.port}"),
    )
    assert done.code == 5, done.err
    assert before is None or tree_content(copy / "commitlog") == before
    return done.err


def test_a_log_that_begins_where_the_copy_ends_may_be_a_strangers(tmp_path: Path, cli: Cli) -> None:
    """It has nothing by which one could tell, and what follows would fit."""
    root, copy = tmp_path / "one", tmp_path / "copy"
    with live(root) as master:
        master.put(60)
    with WritableStore(copy, CONFIG, create=True) as store:
        for piece in PieceReader(0, FILE_SIZE, 1 << 16).feed(log_bytes(root, 0, FILE_SIZE)):
            store.writer.append_piece(piece)
        assert store.max_offset == FILE_SIZE
        # Without it the log would end before its blank.
        store.commit_log.files.append_file(FILE_SIZE)
    with live(tmp_path / "other") as master:
        master.put(60)
        assert without_first_file(master) == FILE_SIZE
        told = refused(cli, master, copy)
    assert f"ends at {FILE_SIZE}, and the master's log begins at {FILE_SIZE}" in told
    assert "Copy into a new directory with --to" in told


def test_a_copy_of_messages_in_no_queue_knows_its_master(tmp_path: Path, cli: Cli) -> None:
    """As halves are in the log of old stores; there is a record all the same."""
    copy = tmp_path / "copy"
    for name in ("one", "other"):
        with live(tmp_path / name) as master:
            body = name.ljust(9).encode()
            message = MessageExtBrokerInner("orders", body, 0, sys_flag=4, born_timestamp=5)
            assert master.store.put_message(message).is_ok
            if name == "one":
                replicate(cli, master, copy)
                assert replicate(cli, master, copy)[-1]["caught_up"]
            else:
                assert "the master has not that record there" in refused(cli, master, copy)


def says_of_its_log(monkeypatch: pytest.MonkeyPatch, start: str, end: str) -> None:
    table = f'{{"table":{{"commitLogMinOffset":"{start}","commitLogMaxOffset":"{end}"}}}}'
    monkeypatch.setitem(SAYS, RequestCode.GET_BROKER_RUNTIME_INFO, lambda _: table)


def test_a_log_that_begins_inside_a_file_of_that_size_is_not_begun(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    says_of_its_log(monkeypatch, "4097", "9000")
    with live(tmp_path / "master") as master:
        told = refused(cli, master, tmp_path / "copy")
    assert "begins at 4097, which is no multiple of 4096" in told
    assert "mappedFileSizeCommitLog" in told


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("0", "9999999999999999999"),
        ("9999999999999999999", "9999999999999999999"),
        ("8192", "4096"),
        ("-2", "0"),
        ("0", "9" * 5000),
        ("٠", "0"),
    ],
    ids=lambda text: text[:20],
)
def test_offsets_that_no_log_has_are_refused(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, start: str, end: str
) -> None:
    says_of_its_log(monkeypatch, start, end)
    with live(tmp_path / "master") as master:
        assert "does not answer as a broker" in refused(cli, master, tmp_path / "copy")


def test_a_broker_of_java_that_has_stored_nothing_yet(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a file of the log its min offset is -1 (``CommitLog#getMinOffset``)."""
    says_of_its_log(monkeypatch, "-1", "0")
    with live(tmp_path / "master") as master:
        assert replicate(cli, master, tmp_path / "copy")[-1]["caught_up"]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (RequestCode.GET_BROKER_CONFIG, "mappedFileSizeCommitLog=many\n"),
        (RequestCode.GET_ALL_TOPIC_CONFIG, "{no"),
    ],
)
def test_what_is_wrong_with_an_answer_is_told_without_advice_for_files(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, code: int, text: str
) -> None:
    monkeypatch.setitem(SAYS, code, lambda _: text)
    with live(tmp_path / "master") as master:
        told = refused(cli, master, tmp_path / "copy")
    assert ".." not in told and "own file" not in told and "config check" not in told
    assert "The copy stays as it is" in told


@pytest.mark.parametrize("has_hole", [False, True])
def test_another_store_that_was_killed_loses_nothing(
    tmp_path: Path, cli: Cli, has_hole: bool
) -> None:
    """A broker killed in its first minute: its checkpoint says nothing of what was on disk."""
    store, other = tmp_path / "store", tmp_path / "other"
    with live(other) as one:
        one.put(40)
    if has_hole:
        log = other / "commitlog" / ("0" * 20)
        data = bytearray(log.read_bytes())
        data[1000:1600] = bytes(600)
        log.write_bytes(data)
    (other / "abort").touch()
    (other / "checkpoint").write_bytes(bytes(4096))
    before = tree_content(other / "commitlog")
    with live(store) as master:
        master.put(60)
        done = cli(
            *("replicate", f"127.0.0.1:{master.ha_port}", "--to", other, "--until-caught-up"),
            *("--broker", f"127.0.0.1:{master.port}"),
        )
    assert done.code == 5, done.err
    assert tree_content(other / "commitlog") == before


def test_what_a_loss_of_power_has_torn_comes_again(tmp_path: Path, cli: Cli) -> None:
    """Nothing in a record tells that its last bytes are not what was stored; the master does."""
    root, copy = tmp_path / "master", tmp_path / "copy"
    with live(root) as master:
        master.put(12)
        replicate(cli, master, copy)
        master.put(6)
        with MessageStore(copy, CONFIG) as store:
            end = store.max_offset
        data = log_bytes(root, end, master.store.max_offset)
        at = data.rindex(b"KEYS", 0, data.rindex(b"KEYS"))
        torn = data[:at] + bytes(4) + data[at + 4 :]
        unforced = WritableStore(copy, CONFIG)
        for piece in PieceReader(end, FILE_SIZE, 1 << 16).feed(torn):
            unforced.writer.append_piece(piece)
        unforced.abandon()
        rows = replicate(cli, master, copy, "--verify")
        assert rows[0]["from_offset"] > end and rows[-1]["records"] == 2
    same(root, copy)


def test_what_is_between_is_deleted(tmp_path: Path, cli: Cli) -> None:
    copy = tmp_path / "copy"
    with live(tmp_path / "master") as master:
        master.put(5)
        replicate(cli, master, copy)
        master.put(120)
        files = master.store.commit_log.files
        for _ in range(2):
            files.entries.pop(0).path.unlink()
            files._offsets.pop(0)
        done = cli(
            *("replicate", f"127.0.0.1:{master.ha_port}", "--to", copy, "--until-caught-up"),
            *("--broker", f"127.0.0.1:{master.port}"),
        )
        assert done.code == 5 and "the master's log begins at 8192" in done.err


def test_a_master_that_gives_no_topics_is_told(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else ``--until-caught-up`` would wait for them without end, and without a word."""

    def refuses(served: Served, request: Request) -> RemotingCommand:
        return request.command.answer(ResponseCode.NO_PERMISSION, "not for you")

    with live(tmp_path / "master") as master:
        master.put(5)
        # Undone within: the master has put its own into the table, which it takes out again.
        with monkeypatch.context() as patch:
            patch.setitem(table.PROCESSORS, RequestCode.GET_ALL_TOPIC_CONFIG, refuses)
            done = cli(
                *("replicate", f"127.0.0.1:{master.ha_port}"),
                *("--broker", f"127.0.0.1:{master.port}"),
                *("--to", tmp_path / "copy", "--until-caught-up"),
            )
    assert done.code == 5 and "not for you" in done.err
    assert not (tmp_path / "copy" / "abort").exists()


def test_a_master_that_has_just_started_is_waited_for(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    tells = table.PROCESSORS[RequestCode.GET_BROKER_RUNTIME_INFO]
    asked = 0

    def early(served: Served, request: Request) -> Outcome:
        nonlocal asked
        asked += 1
        if asked <= 2:
            remark = "java.util.NoSuchElementException, java.base/java.util.LinkedList.getLast"
            return request.command.answer(ResponseCode.SYSTEM_ERROR, remark)
        return tells(served, request)

    with live(tmp_path / "master") as master:
        master.put(5)
        with monkeypatch.context() as patch:
            patch.setitem(table.PROCESSORS, RequestCode.GET_BROKER_RUNTIME_INFO, early)
            assert replicate(cli, master, tmp_path / "copy")[-1]["caught_up"]


def test_a_sync_master_wants_consent(tmp_path: Path, cli: Cli) -> None:
    from dataclasses import replace

    with live(tmp_path / "master", replace(CONFIG, broker_role="SYNC_MASTER")) as master:
        replicate(cli, master, tmp_path / "copy", code=6)
        assert not (tmp_path / "copy").exists()
        assert replicate(cli, master, tmp_path / "copy", "--yes")[-1]["caught_up"]


def test_a_disk_that_is_full_is_no_copy_in_use(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 is for who waits, or asks for rights, and tries again; and so says the help."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with live(tmp_path / "master") as master:
        master.put(5)
        monkeypatch.setattr(replica, "append_piece", full)
        told = refused(cli, master, tmp_path / "copy")
    assert "No space left on device" in told
    for command in ("replicate", "serve"):
        shown = " ".join(cli(command, "--help").out.split())
        exits = shown.partition("Exit status")[2]
        assert "disk" not in exits.partition(" 4 ")[2].partition(" 5 ")[0]
        assert "is full or fails" in exits.partition(" 5 ")[2]


def test_nobody_there(tmp_path: Path, cli: Cli) -> None:
    done = cli("replicate", "127.0.0.1:2", "--to", tmp_path / "copy", "--until-caught-up")
    assert done.code == 5 and "no connection to 127.0.0.1:1: Connection refused" in done.err
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("place", ["HOST", "127.0.0.1:0", ":10912"])
def test_no_address(tmp_path: Path, cli: Cli, place: str) -> None:
    assert cli("replicate", place, "--to", tmp_path / "copy").code == 2
