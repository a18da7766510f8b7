"""``serve`` as it is run: one line when it is ready, a clean stop, and what it will not do."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest

from formats.remotingcodes import RequestCode
from rmqctl.cli.commands import serve
from rmqctl.cli.settings import Settings
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.frames import FrameReader, encode_frame
from tests.conftest import Golden
from tests.golden_data import copy_tree, state
from tests.test_cli.conftest import Cli
from tests.test_safety.test_lock import broker


def ask(port: int, code: int, **fields: str) -> RemotingCommand:
    with socket.create_connection(("127.0.0.1", port), 60) as client:
        client.sendall(encode_frame(RemotingCommand(code, 1, ext_fields=fields)))
        reader = FrameReader()
        while True:
            data = client.recv(1 << 16)
            assert data
            for command in reader.feed(data):
                return command


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_one_line_when_it_is_ready_and_a_clean_stop(
    golden: Golden, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    root, log = golden("broker"), tmp_path / "access.ndjson"
    before = state(root)
    command = [sys.executable, "-m", "rmqctl", "serve", "--read-only", "--listen", "127.0.0.1:0"]
    command += ["--metrics-port", "0", "--access-log", str(log)]
    line = [*command, "--store", str(root), "--format", "ndjson"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            ready = json.loads(run.stdout.readline())
            assert (ready["type"], ready["broker_name"]) == ("listening", "broker-a")
            port = int(ready["address"].rpartition(":")[2])
            place = {"consumerGroup": "cg_orders", "topic": "orders", "queueId": "1"}
            answer = ask(port, RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset="7", **place)
            assert answer.code == 0
            log.rename(tmp_path / "old.ndjson")
            run.send_signal(signal.SIGHUP)
            page = urlopen(f"http://{ready['metrics_address']}/metrics", timeout=60).read()
            assert b'request="UPDATE_CONSUMER_OFFSET",answer="SUCCESS"} 1\n' in page
            assert ask(port, RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
            run.send_signal(number)
            out, err = run.communicate(timeout=100)
        finally:
            run.kill()
    told = f"note: metrics are at http://{ready['metrics_address']}/metrics\n"
    assert (run.returncode, err) == (code, told)
    committed, summary = map(json.loads, out.splitlines())
    assert committed == {
        "type": "committed_offset",
        "group": "cg_orders",
        "topic": "orders",
        "queue_id": 1,
        "stored_offset": 122,
        "committed_offset": 7,
    }
    assert summary == {
        "type": "summary", "connections": 2, "requests": 2, "committed_offsets": 1,
    }  # fmt: skip
    (first,), (second,) = (
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in (tmp_path / "old.ndjson", log)
    )
    assert (first["type"], first["request"]) == ("access", "UPDATE_CONSUMER_OFFSET")
    assert (first["group"], first["topic"], first["answer_code"]) == ("cg_orders", "orders", 0)
    assert (second["request"], second["topic"]) == ("GET_BROKER_CLUSTER_INFO", None)
    assert state(root) == before


SEND = {
    "a": "p", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "5", "h": "0",
    "i": "TAGS\1a", "j": "0",
}  # fmt: skip


def test_what_was_answered_is_there_after_a_kill_and_a_stop_is_clean(tmp_path: Path) -> None:
    root = tmp_path / "store"
    config = MessageStoreConfig(mapped_file_size_commit_log=1 << 16, max_message_size=1 << 14)
    MessageStore(root, config, writable=True, create=True).close()
    command = [sys.executable, "-m", "rmqctl", "serve", "--listen", "127.0.0.1:0", "-v"]
    line = [*command, "--store", str(root), "--format", "ndjson"]
    ways = [(signal.SIGKILL, "async"), (signal.SIGTERM, "sync")]
    for number, (how, flush) in enumerate(ways):
        whole = line if flush == "sync" else [*line, "--flush", flush]
        with subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
            try:
                assert run.stdout is not None
                ready = json.loads(run.stdout.readline())
                assert (ready["read_only"], ready["flush"]) == (False, flush)
                port = int(ready["address"].rpartition(":")[2])
                answer = ask(port, RequestCode.SEND_MESSAGE_V2, **SEND)
                assert (answer.code, answer.ext_fields["queueOffset"]) == (0, str(number))
                run.send_signal(how)
                run.wait(100)
                assert run.stderr is not None
                assert (b"note: ASYNC_FLUSH" in run.stderr.read()) is (flush == "async")
            finally:
                run.kill()
        assert (root / "abort").exists() is (how is signal.SIGKILL)
        with MessageStore(root, config) as store:
            assert len(store.get_message("orders", 0, 0).records) == number + 1
    assert run.returncode == 0
    table = json.loads((root / "config/topics.json").read_text())["topicConfigTable"]
    assert table["orders"]["writeQueueNums"] == 4


def test_a_store_that_takes_no_message_is_served_and_that_is_said(tmp_path: Path) -> None:
    """A broker's start would delete what is behind the damage, a message put now too."""
    root = tmp_path / "store"
    config = MessageStoreConfig(mapped_file_size_commit_log=1 << 16, max_message_size=1 << 14)
    with MessageStore(root, config, writable=True, create=True) as store:
        for number in range(3):
            message = MessageExtBrokerInner("orders", b"%04d" % number, 0)
            assert store.put_message(message).is_ok
    log = root / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes().replace(b"0001", b"000X"))
    command = [sys.executable, "-m", "rmqctl", "serve", "--listen", "127.0.0.1:0"]
    line = [*command, "--store", str(root), "--format", "ndjson"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        try:
            assert run.stdout is not None and run.stderr is not None
            port = int(json.loads(run.stdout.readline())["address"].rpartition(":")[2])
            assert ask(port, RequestCode.SEND_MESSAGE_V2, **SEND).code != 0
            run.send_signal(signal.SIGTERM)
            _, told = run.communicate(timeout=100)
        finally:
            run.kill()
    assert run.returncode == 0
    assert b"note: what clients send will be refused: " in told and b"rmqctl verify" in told


def test_groups_that_would_consume_again_keep_it_from_starting(
    golden: Golden, tmp_path: Path, cli: Cli
) -> None:
    root = copy_tree(golden("broker"), tmp_path / "store")
    offsets = {"offsetTable": {"orders@lost": {"0": 500}}}
    (root / "config/consumerOffset.json").write_text(json.dumps(offsets))
    done = cli("serve", "--read-only", "--listen", "127.0.0.1:0", "--store", root)
    assert done.code == 6 and done.out == ""
    assert "lost of orders, queue 0: 500, and the queue ends at 124" in done.err
    assert "--offsets-beyond-end end" in done.err


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--read-only", "--listen", "here"], 2, "is not HOST:PORT"),
        (["--read-only", "--listen", "127.0.0.1:65536"], 2, "is no port"),
        (["--read-only", "--listen", "192.0.2.1:1"], 5, "cannot listen on 192.0.2.1:1"),
        (["--read-only", "--flush", "sync"], 2, "--read-only takes nothing"),
    ],
)
def test_what_it_will_not_do(
    golden: Golden, cli: Cli, options: list[str], code: int, said: str
) -> None:
    done = cli("serve", "--store", golden("broker"), *options)
    assert done.code == code and said in done.err


@pytest.mark.parametrize(
    ("conf", "option", "holds"),
    [
        ("", None, "SYNC_FLUSH"),
        ("flushDiskType=ASYNC_FLUSH\n", None, "ASYNC_FLUSH"),
        ("flushDiskType=SYNC_FLUSH\n", None, "SYNC_FLUSH"),
        ("flushDiskType=ASYNC_FLUSH\n", "sync", "SYNC_FLUSH"),
        ("", "async", "ASYNC_FLUSH"),
    ],
)
def test_what_is_answered_first_is_said_by_somebody(
    conf: str, option: str | None, holds: str, tmp_path: Path
) -> None:
    """A broker that is told nothing answers before the disk has a message; this one does not."""
    file = tmp_path / "broker.conf"
    file.write_text(conf)
    settings = Settings(tmp_path / "store", str(file), "table", quiet=False, verbose=False)
    changed = replace(settings.config, **serve._changes(settings, option, False))
    assert changed.flush_disk_type == holds


@pytest.mark.parametrize("option", ["--access-log", "--metrics-port", "--ha-listen"])
def test_it_ends_when_something_beside_it_cannot_be_had(
    option: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that writes would keep the process for good. Others come between, too."""
    monkeypatch.setattr(serve, "_check_free", lambda *_: None)
    root, threads = tmp_path / "store", threading.enumerate()
    config = MessageStoreConfig(mapped_file_size_commit_log=1 << 16, max_message_size=1 << 14)
    MessageStore(root, config, writable=True, create=True).close()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        more = {
            "--access-log": [str(tmp_path / "none" / "log")],
            "--metrics-port": [str(port)],
            "--ha-listen": [f"127.0.0.1:{port}", "--ha"],
        }
        done = cli("serve", "--listen", "127.0.0.1:0", "--store", root, option, *more[option])
    left = [one for one in threading.enumerate() if one not in threads]
    assert done.code in (4, 5) and left == []
    # The option that is to be another one, and not that of the clients' port.
    assert option == "--access-log" or done.err.endswith(f"another place with {option}.\n")
    assert not (root / "abort").exists()


@pytest.mark.parametrize(
    ("options", "option"),
    [
        (["--listen", "127.0.0.1:{port}"], "--listen"),
        (["--listen", "127.0.0.1:{above}", "--vip-port"], "--listen"),
        (["--listen", "127.0.0.1:0", "--metrics-port", "{port}"], "--metrics-port"),
        (["--listen", "127.0.0.1:0", "--ha", "--ha-listen", "127.0.0.1:{port}"], "--ha-listen"),
    ],
)
def test_where_others_listen_a_crashed_store_stays_as_it_is(
    golden: Golden, cli: Cli, tmp_path: Path, options: list[str], option: str
) -> None:
    """To open it for writing would bring it in order first."""
    root = copy_tree(golden("crash"), tmp_path / "store")
    before = state(root)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        where = [one.format(port=port, above=port + 2) for one in options]
        result = cli("serve", *where, "--store", str(root))
    told = f"cannot listen on 127.0.0.1:{port}: Address already in use. "
    assert result.code == 5 and told in result.err
    assert result.err.endswith(f"Give another place with {option}.\n")
    assert state(root) == before


def test_no_access_log_in_the_store(golden: Golden, cli: Cli, tmp_path: Path) -> None:
    root, link = golden("broker"), tmp_path / "link"
    link.symlink_to(root / "config")
    for place in (root / "access.log", link / "access.log", root / "commitlog" / "0"):
        done = cli("serve", "--store", root, "--read-only", "--access-log", str(place))
        assert done.code == 2 and "lies in the store" in done.err.replace("\n", " ")
        assert not place.exists()


def test_accounts_are_not_asked_for_at_the_ha_port(
    golden: Golden, cli: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts:\n- {accessKey: rocketmq2, secretKey: '12345678'}\n")
    line = ["serve", "--store", golden("broker"), "--read-only", "--listen", "192.0.2.1:1"]
    done = cli(*line, "--acl-file", file, "--ha")
    assert "the HA port knows no accounts" in done.err
    done = cli(*line, "--acl-file", file, "--ha", "--ha-allow", "10.0.0.1")
    assert "HA port" not in done.err


def test_a_port_that_others_reach_is_noted(golden: Golden, cli: Cli) -> None:
    done = cli("serve", "--store", golden("broker"), "--read-only", "--listen", "192.0.2.1:1")
    assert "nothing is authenticated" in done.err


def test_who_writes_beside_it_is_noted(golden: Golden, cli: Cli, tmp_path: Path) -> None:
    """It serves the store as it was at its start."""
    root = copy_tree(golden("broker"), tmp_path / "store")
    (root / "lock").touch()
    line = ("serve", "--store", root, "--read-only", "--listen", "192.0.2.1:1")
    assert "open for writing" not in cli(*line).err
    with broker(root):
        done = cli(*line)
    assert "has the store open for writing: what it stores from now on is not served" in done.err
