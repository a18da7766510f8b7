"""HA both ways: a slave of RocketMQ follows ``serve --ha``, and ``replicate`` follows a master of
RocketMQ."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.state import brokerjson
from tests.golden_data import tree_content
from tests.interop.conftest import StartEngine
from tests.interop.engine import Engine, Row
from tests.interop.stores import assert_clean, conf_text, config_of, settings
from tests.interop.test_broker import QUEUES, message, write_config
from tests.interop.test_serve import row_of, serving
from tests.ports import free_ports

#: The only version here that has accounts of this kind.
ONLY_4_9_3 = pytest.mark.parametrize(
    "version",
    [pytest.param("4.9.3", marks=pytest.mark.xdist_group("interop-4.9.3"))],
    indirect=True,
)


#: A slave of 5.3.3 takes long to find its master, so that it is tested at night only.
SLAVES = pytest.mark.parametrize(
    "version",
    [
        pytest.param("4.9.3", marks=pytest.mark.xdist_group("interop-4.9.3")),
        pytest.param(
            "5.3.3", marks=[pytest.mark.nightly, pytest.mark.xdist_group("interop-5.3.3")]
        ),
    ],
    indirect=True,
)


def sizes(chance: random.Random) -> Row:
    """Settings with log files so small that a new one begins after some messages."""
    return settings(chance, light_queues=False) | {
        "mappedFileSizeCommitLog": 1 << 15,
        "maxMessageSize": 1 << 14,
        "flushDiskType": "ASYNC_FLUSH",
    }


def rows(first: int, count: int) -> list[Row]:
    return [row_of(message(n, n % QUEUES)) for n in range(first, first + count)]


def assert_same_files(ours: Path, theirs: Path) -> None:
    """Compares log and queues byte by byte, without the empty files that RocketMQ makes in
    advance."""
    for name in ("commitlog", "consumequeue"):
        one, other = tree_content(ours / name), tree_content(theirs / name)
        used = [
            {path: pages for path, (_, pages) in tree.items() if pages} for tree in (one, other)
        ]
        assert used[0] == used[1], name


def end_of(root: Path, values: Row) -> int:
    with MessageStore(root, config_of(values)) as store:
        return store.max_offset


@SLAVES
@pytest.mark.proves("serve-ha")
def test_a_slave_follows_a_store_that_is_served(
    start_engine: StartEngine, chance: random.Random, tmp_path: Path
) -> None:
    """The slave follows into new log files, and when its master was killed and started again."""
    engine, values = start_engine(), sizes(chance)
    master, slave = tmp_path / "master", tmp_path / "slave"
    conf = tmp_path / "broker.conf"
    conf.write_text(conf_text(values) + "brokerName=served\n", "utf-8")
    MessageStore(master, config_of(values), writable=True, create=True).close()
    write_config(master)

    def send(address: str, first: int) -> None:
        answers = engine.ask("clientSend", address=address, messages=rows(first, 40))
        assert {one["status"] for one in answers} == {"SEND_OK"}
        end = end_of(master, values)
        assert engine.ask("slaveAwait", end=end, millis=120_000) == end

    port, ha_port = free_ports(2)
    at = ("--listen", f"127.0.0.1:{port}", "--ha", "--ha-listen", f"127.0.0.1:{ha_port}")
    try:
        with serving(master, conf, *at) as server:
            engine.ask(
                "slave", root=str(slave), config=values, address=server.address, name="served"
            )
            send(server.address, 0)
            send(server.address, 100)
            # The kill has left this file.
        with serving(master, conf, *at) as server:
            send(server.address, 200)
            assert server.stop() == 0
    finally:
        engine.ask("slaveStop")
    assert_same_files(master, slave)
    assert_clean(slave, config_of(values))
    assert len(list((master / "commitlog").iterdir())) == 3


class Copying:
    """``rmqctl replicate`` in a process of its own."""

    def __init__(
        self, places: list[str], copy: Path, *options: str, stderr: int | None = None
    ) -> None:
        command = [sys.executable, "-m", "rmqctl", "replicate", places[1], "--broker", places[0]]
        line = [*command, "--to", str(copy), "--format", "ndjson", *options]
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert self.process.stdout is not None
        self.out: IO[str] = self.process.stdout

    def rows(self) -> list[Row]:
        """All rows that it printed; it must have ended by itself."""
        out, _ = self.process.communicate(timeout=200)
        assert self.process.returncode == 0
        return [json.loads(line) for line in out.splitlines()]


def await_log(copy: Path, values: Row, end: int) -> None:
    patience = time.monotonic() + 120
    while end_of(copy, values) < end:
        assert time.monotonic() < patience, "the copy does not come"
        time.sleep(0.05)


def settled(engine: Engine, root: Path, values: Row, first: int) -> int:
    """Sends messages to the broker; gives the offset at which its log ends then."""
    answers = engine.ask("send", messages=rows(first, 40))
    assert {one["status"] for one in answers} == {"SEND_OK"}
    return end_of(root, values)


@pytest.mark.proves("replicate")
def test_a_copy_follows_a_master(
    start_engine: StartEngine, chance: random.Random, tmp_path: Path
) -> None:
    """The copy begins with a log of several files, and goes on into new files, after a kill of its
    own, and after a restart of the master."""
    engine, values = start_engine(), sizes(chance)
    root, copy = tmp_path / "store", tmp_path / "copy"
    root.mkdir()
    write_config(root)
    engine.ask("broker", root=str(root), config=values)
    try:
        places = engine.ask("places")
        for first in (0, 40, 80):
            settled(engine, root, values, first)
        copying = Copying(places, copy)
        try:
            joined = json.loads(copying.out.readline())
            await_log(copy, values, settled(engine, root, values, 120))
        finally:
            copying.process.kill()
            copying.process.communicate()
        settled(engine, root, values, 200)
        engine.ask("stop")
        engine.ask("broker", root=str(root), config=values)
        settled(engine, root, values, 300)
        done = Copying(engine.ask("places"), copy, "--until-caught-up", "--verify").rows()
        assert done[-1]["caught_up"] and done[-1]["errors"] == 0
    finally:
        engine.ask("stop")
    assert (joined["type"], joined["from_offset"], joined["broker_name"]) == (
        "joined",
        0,
        "interop",
    )
    assert joined["master_max_offset"] > 2 * values["mappedFileSizeCommitLog"]
    assert_same_files(copy, root)
    assert_clean(copy, config_of(values))
    topics = [brokerjson.read(one / "config" / brokerjson.TOPICS) for one in (copy, root)]
    assert topics[0] == topics[1]


ACCOUNTS = """
accounts:
- {accessKey: shopkeeper, secretKey: of-the-shop, admin: false}
"""


@ONLY_4_9_3
@pytest.mark.proves("replicate")
def test_a_copy_follows_a_master_with_accounts(
    start_engine: StartEngine, chance: random.Random, tmp_path: Path
) -> None:
    engine, values = start_engine(), sizes(chance)
    root, copy = tmp_path / "store", tmp_path / "copy"
    accounts, keys = tmp_path / "conf/plain_acl.yml", tmp_path / "tools.yml"
    accounts.parent.mkdir()
    accounts.write_text(ACCOUNTS)
    keys.write_text("accessKey: shopkeeper\nsecretKey: of-the-shop\n")
    root.mkdir()
    write_config(root)
    # The driver's producer has no account, so the broker is first started without accounts.
    engine.ask("broker", root=str(root), config=values)
    settled(engine, root, values, 0)
    engine.ask("stop")
    engine.ask("broker", root=str(root), config=values | {"aclHome": str(tmp_path)})
    try:
        places = engine.ask("places")
        nobody = Copying(places, copy, "--until-caught-up", stderr=subprocess.PIPE)
        _, said = nobody.process.communicate(timeout=200)
        assert nobody.process.returncode == 5
        assert "AclException" in said and "--acl-file" in said
        # The second time it has records already, and compares the last with the master's.
        for _ in range(2):
            options = ("--acl-file", str(keys), "--until-caught-up", "--verify")
            done = Copying(places, copy, *options).rows()
            assert done[-1]["caught_up"] and done[-1]["errors"] == 0
    finally:
        engine.ask("stop")
    assert_same_files(copy, root)
    assert_clean(copy, config_of(values))
