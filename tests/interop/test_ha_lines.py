"""HA both ways over a line that is cut and held, and the answers to puts that wait for a slave.

``test_ha.py`` tests HA over a line without faults.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from tests.interop.conftest import StartEngine
from tests.interop.engine import Engine, Row
from tests.interop.line import Line
from tests.interop.stores import assert_clean, conf_text, config_of
from tests.interop.test_broker import message, write_config
from tests.interop.test_ha import (
    ONLY_4_9_3,
    SLAVES,
    Copying,
    assert_same_files,
    await_log,
    end_of,
    rows,
    settled,
    sizes,
)
from tests.interop.test_serve import row_of, serving
from tests.ports import free_ports

#: Milliseconds that a slave, or a copy, gets to connect.
PATIENCE = 120_000


class Slave:
    """A broker in a Java process of its own, which may be killed."""

    def __init__(self, base: Path, version: str, values: Row, name: str) -> None:
        self.root = base / "slave"
        self._base, self._version, self._values, self._name = base, version, values, name
        self._engine: Engine | None = None

    def start(self, names: str, line: Line) -> None:
        """:param names: the name server that tells it who is its master."""
        if self._engine is None:
            self._engine = Engine(self._version, self._base / "slave.log")
        values = self._values | {"haMasterAddress": line.address}
        values.pop("brokerRole", None)
        self._engine.ask(
            "slave", root=str(self.root), config=values, address=names, name=self._name
        )

    def await_log(self, end: int) -> None:
        assert self._engine is not None
        assert self._engine.ask("slaveAwait", end=end, millis=PATIENCE) == end

    def stop(self) -> None:
        assert self._engine is not None
        self._engine.ask("slaveStop")

    def kill(self) -> None:
        if self._engine is not None:
            self._engine.kill()
            self._engine = None


#: Gives a slave with these settings, whose master has this name.
StartSlave = Callable[[Row, str], Slave]


@pytest.fixture
def slave_of(built: None, version: str, tmp_path: Path) -> Iterator[StartSlave]:
    made: list[Slave] = []

    def make(values: Row, name: str) -> Slave:
        base = tmp_path / f"slave-of-{name}"
        base.mkdir()
        made.append(Slave(base, version, values, name))
        return made[-1]

    yield make
    for one in made:
        one.kill()


def statuses(engine: Engine, address: str, messages: list[Row]) -> set[str]:
    answers = engine.ask("clientSend", address=address, messages=messages)
    return {one.get("status", str(one)) for one in answers}


def made_store(root: Path, values: Row) -> None:
    MessageStore(root, config_of(values), writable=True, create=True).close()
    write_config(root)


@ONLY_4_9_3
@pytest.mark.proves("serve-ha")
def test_a_slave_comes_back_to_a_store_that_is_served(
    start_engine: StartEngine, slave_of: StartSlave, chance: random.Random, tmp_path: Path
) -> None:
    """The slave connects again when its line was cut in a frame's head or body, when it was stopped
    or killed while messages are sent, and when its master was stopped."""
    engine, values = start_engine(), sizes(chance)
    master, conf = tmp_path / "master", tmp_path / "broker.conf"
    conf.write_text(conf_text(values) + "brokerName=served\n", "utf-8")
    made_store(master, values)
    slave = slave_of(values, "served")
    port, ha_port = free_ports(2)
    at = ("--listen", f"127.0.0.1:{port}", "--ha", "--ha-listen", f"127.0.0.1:{ha_port}")

    def send(first: int, count: int = 20) -> int:
        assert statuses(engine, f"127.0.0.1:{port}", rows(first, count)) == {"SEND_OK"}
        return end_of(master, values)

    with Line(f"127.0.0.1:{ha_port}") as line:
        with serving(master, conf, *at) as server:
            slave.start(server.address, line)
            slave.await_log(send(0))
            for n, where in enumerate(("head", "body"), 1):
                line.cuts.append(where)
                slave.await_log(send(100 * n))
            assert line.been_cut == ["head", "body"]
            slave.stop()
            end = send(300)
            slave.start(server.address, line)
            slave.await_log(end)
            with ThreadPoolExecutor(1) as beside:
                sending = beside.submit(send, 400, 60)
                await_log(slave.root, values, end + 1)
                slave.kill()
                end = sending.result()
            slave.start(server.address, line)
            slave.await_log(end)
            assert server.stop() == 0
        with serving(master, conf, *at) as server:
            slave.await_log(send(500))
            assert server.stop() == 0
        slave.stop()
    assert_same_files(master, slave.root)
    assert_clean(slave.root, config_of(values))


@SLAVES
@pytest.mark.proves("replicate")
def test_a_copy_comes_back_to_its_master(
    start_engine: StartEngine, chance: random.Random, tmp_path: Path
) -> None:
    """The copy connects again when its line was cut in a frame's head or body, and when the master
    was killed."""
    engine, values = start_engine(), sizes(chance)
    root, copy = tmp_path / "store", tmp_path / "copy"
    root.mkdir()
    write_config(root)
    engine.ask("broker", root=str(root), config=values)
    broker, ha = engine.ask("places")
    with Line(broker) as asked, Line(ha) as line:
        settled(engine, root, values, 0)
        copying = Copying([asked.address, line.address], copy, stderr=subprocess.PIPE)
        try:
            assert json.loads(copying.out.readline())["type"] == "joined"
            await_log(copy, values, end_of(root, values))
            for n, where in enumerate(("head", "body"), 1):
                line.cuts.append(where)
                await_log(copy, values, settled(engine, root, values, 100 * n))
            assert line.been_cut == ["head", "body"]
            engine.kill()
            engine = start_engine()
            engine.ask("broker", root=str(root), config=values)
            asked.leads_to, line.leads_to = engine.ask("places")
            await_log(copy, values, settled(engine, root, values, 300))
        finally:
            copying.process.terminate()
            out, said = copying.process.communicate()
    kinds = [json.loads(row)["type"] for row in out.splitlines()]
    assert kinds.count("joined") >= 3
    assert "note: the master has closed the connection. It is tried again each 5 seconds" in said
    engine.ask("stop")
    assert copying.process.returncode == 0
    assert_same_files(copy, root)
    assert_clean(copy, config_of(values))


#: The answers that a producer gets from a SYNC_MASTER in each situation.
SITUATIONS = {
    "nobody is there": {"SLAVE_NOT_AVAILABLE"},
    "a slave follows": {"SEND_OK"},
    "its line is held, and nobody waits": {"SEND_OK"},
    "its line is held": {"FLUSH_SLAVE_TIMEOUT"},
    "its line flows": {"SEND_OK"},
    "its line is closed": {"SLAVE_NOT_AVAILABLE"},
    "it is back": {"SEND_OK"},
}


def told_by_a_sync_master(
    engine: Engine, names: str, root: Path, values: Row, slave: Slave, line: Line
) -> dict[str, set[str]]:
    """Brings about all :data:`SITUATIONS`, and gives the answers in each."""
    told: dict[str, set[str]] = {}

    def send(when: str, *messages: Row) -> int:
        told[when] = statuses(engine, names, list(messages))
        return end_of(root, values)

    end = send("nobody is there", *rows(0, 2))
    slave.start(names, line)
    slave.await_log(end)
    slave.await_log(send("a slave follows", *rows(10, 10)))
    line.hold()
    send("its line is held, and nobody waits", row_of(message(30, 0, WAIT="false")))
    end = send("its line is held", *rows(31, 1))
    line.release()
    slave.await_log(end)
    slave.await_log(send("its line flows", *rows(40, 10)))
    line.close()
    end = send("its line is closed", *rows(60, 2))
    line.allow()
    slave.await_log(end)
    slave.await_log(send("it is back", *rows(70, 10)))
    slave.stop()
    return told


@ONLY_4_9_3
@pytest.mark.proves("serve-ha")
def test_what_puts_are_told_that_wait_for_a_slave(
    start_engine: StartEngine, slave_of: StartSlave, chance: random.Random, tmp_path: Path
) -> None:
    """``serve`` gives the same answers as a SYNC_MASTER of RocketMQ."""
    engine = start_engine()
    # A put that need not wait for a slave is answered sooner than this, even on a busy machine.
    values = sizes(chance) | {"brokerRole": "SYNC_MASTER", "slaveTimeout": 8000}
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    conf = tmp_path / "broker.conf"
    conf.write_text(conf_text(values) + "brokerName=served\n", "utf-8")
    made_store(ours, values)
    port, ha_port = free_ports(2)
    at = ("--listen", f"127.0.0.1:{port}", "--ha", "--ha-listen", f"127.0.0.1:{ha_port}")
    slave = slave_of(values, "served")
    with serving(ours, conf, *at) as server, Line(f"127.0.0.1:{ha_port}") as line:
        told = told_by_a_sync_master(engine, server.address, ours, values, slave, line)
        assert server.stop() == 0
    assert_same_files(ours, slave.root)
    assert told == SITUATIONS
    slave.kill()

    theirs.mkdir()
    write_config(theirs)
    engine.ask("broker", root=str(theirs), config=values)
    slave = slave_of(values, "interop")
    with Line(engine.ask("places")[1]) as line:
        names = engine.ask("address")
        by_broker = told_by_a_sync_master(engine, names, theirs, values, slave, line)
    engine.ask("stop")
    assert_same_files(theirs, slave.root)
    assert told == by_broker
