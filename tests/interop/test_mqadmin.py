"""``mqadmin`` looks at a broker and at ``serve`` on the same store, and sees the same."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path

from tests.interop.commands import only
from tests.interop.conftest import StartEngine
from tests.interop.engine import Engine
from tests.interop.mqadmin import (
    COMMANDS,
    GROUP,
    OTHER,
    PAGE,
    TOPIC,
    Command,
    masked,
    page,
)
from tests.interop.stores import conf_text, settings
from tests.interop.test_broker import QUEUES
from tests.interop.test_serve import make_store, row_of, serving, with_id

SENT = 6


def test_the_page_is_that_of_the_list() -> None:
    assert PAGE.read_text("utf-8") == page(), "Next: python -m tests.interop.mqadmin"


def look(engine: Engine, address: str, commands: list[Command]) -> list[str]:
    """What every command prints, while a consumer and a producer are connected."""
    (sent,) = engine.ask(
        "clientSend", address=address, messages=[row_of(with_id(50, 0), topic=OTHER)]
    )
    engine.ask("connect", address=address, topic=TOPIC, group=GROUP, count=0)
    (listed,) = engine.ask("admin", address=address, commands=[["cluster.ClusterListSubCommand"]])
    broker = next(word for word in listed.split() if word.startswith("127.0.0.1:"))
    await_rates(engine, address, broker)
    calls = [
        [one.class_name, *one.arguments.format(broker=broker, id=sent["msgId"]).split()]
        for one in commands
    ]
    # This is asked first, for a client applies offsets that a command has reset ten seconds later.
    status = {
        n: status_of_client(engine, address, calls[n])
        for n, one in enumerate(commands)
        if one.name == "getConsumerStatus"
    }
    texts: list[str] = engine.ask("admin", address=address, commands=calls)
    texts = [status.get(n, text) for n, text in enumerate(texts)]
    engine.ask("disconnect")
    return texts


def status_of_client(engine: Engine, address: str, call: list[str]) -> str:
    """What ``call`` prints, which has the broker ask its client. The broker waits for the client's
    answer for five seconds, and the command waits as long for the broker
    (``Broker2Client#getConsumeStatus``), so that on a busy machine it may get no answer in time;
    then it is called again."""
    for _ in range(60):
        (said,) = engine.ask("admin", address=address, commands=[call])
        if said.count("@watched") == QUEUES:
            return str(said)
        time.sleep(0.05)
    raise AssertionError(said)


def await_rates(engine: Engine, address: str, broker: str) -> None:
    """Waits until the broker answers a question about itself: not before it has measured its rates
    for the first time, a second after its start."""
    command = ["broker.BrokerStatusSubCommand", "-b", broker]
    for _ in range(1200):
        (said,) = engine.ask("admin", address=address, commands=[command])
        if "commitLogMaxOffset" in said:
            return
        time.sleep(0.05)
    raise AssertionError(said)


def all_committed(engine: Engine) -> dict[str, dict[str, int]]:
    """The consumer offsets, once the broker has all of them; a client does not wait for that."""
    for _ in range(1200):
        offsets: dict[str, dict[str, int]] = engine.ask("offsets")
        if sum(offsets.get(f"{TOPIC}@{GROUP}", {}).values()) == SENT:
            return offsets
        time.sleep(0.05)
    raise AssertionError(offsets)


@only("4.9.3")
def test_mqadmin_sees_of_serve_what_it_sees_of_a_broker(
    start_engine: StartEngine, chance: random.Random, tmp_path: Path
) -> None:
    engine = start_engine()
    values = settings(chance, light_queues=False) | {"mappedFileSizeCommitLog": 1 << 20}
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text(conf_text(values) + "brokerName=interop\n", "utf-8")
    make_store(root, values)
    (root / "config" / "consumerOffset.json").unlink()
    engine.ask("broker", root=str(root), config=values)
    address = engine.ask("address")
    rows = [row_of(with_id(n, n % QUEUES)) for n in range(SENT)]
    engine.ask("clientSend", address=address, messages=rows)
    engine.ask("connect", address=address, topic=TOPIC, group=GROUP, count=SENT)
    engine.ask("disconnect")
    offsets = all_committed(engine)
    # Commands that ``serve`` refuses are not sent to the broker, which would do them.
    asked = [one for one in COMMANDS if one.level != "refused"]
    theirs = look(engine, address, asked)
    engine.ask("stop")
    # Both commands and the consumer set offsets, and which of them is last may differ.
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    with serving(root, conf) as server:
        ours = look(engine, server.address, list(COMMANDS))
        assert server.stop() == 0
    said = dict(zip(COMMANDS, map(masked, ours), strict=True))
    for command, their in zip(asked, map(masked, theirs), strict=True):
        check(command, their, said.pop(command))
    assert {one.level for one in said} == {"refused"}
    for command, our in said.items():
        assert any("failed: " in line or "Exception" in line for line in our), (command.name, our)


def check(command: Command, theirs: list[str], ours: list[str]) -> None:
    """Checks that our answer is the same as the broker's, or differs as the list says."""
    if command.other_lines:
        theirs, ours = (
            [one for one in lines if not re.match(command.other_lines, one)]
            for lines in (theirs, ours)
        )
    if command.level == "same" or command.other_lines:
        assert ours == theirs, command.name
        return
    # Our answer has no line that the broker's does not have.
    names = {line.split()[0] for line in theirs}
    assert ours and {line.split()[0] for line in ours} <= names, command.name
