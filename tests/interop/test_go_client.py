"""RocketMQ's client for Go with a broker of 4.9.3 and with ``serve``: a program with this client
gets the same answers from both, field by field, and leaves the same store."""

from __future__ import annotations

import os
import socket
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.frames import FrameReader, encode_frame
from tests.interop import goclient
from tests.interop.commands import only
from tests.interop.conftest import StartEngine
from tests.interop.engine import Row
from tests.interop.goclient import GaveUp, GoClient, GoError
from tests.interop.stores import assert_clean, conf_text, config_of
from tests.interop.test_broker import QUEUES, TOPIC
from tests.interop.test_serve import (
    LEDGER,
    make_store,
    records,
    serving,
    shape,
    without_origin,
)

pytestmark = only("4.9.3")

BROKER = "interop"
VALUES: Row = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "maxMessageSize": 65536,
    "flushDiskType": "ASYNC_FLUSH",
}
#: How often a dialogue is begun at most; it is repeated when a client failed.
TRIES = 6
PATIENCE = 120
#: What a producer says of a half message (a constant of the client) → how many records this makes.
COMMIT, ROLLBACK, UNKNOWN = 1, 2, 3
STATES = {COMMIT: 3, ROLLBACK: 2, UNKNOWN: 1}


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return goclient.build()
    except goclient.NotAvailable as problem:
        if os.environ.get("RMQCTL_GO") == "require":
            raise
        pytest.skip(str(problem))


class Places(NamedTuple):
    """The addresses of the name server, where clients find the broker, and of the broker itself."""

    names: str
    broker: str


class Told(NamedTuple):
    """The answers that clients got, by what they did; the offsets that groups have committed; and
    the store's records."""

    answers: dict[str, Any]
    committed: dict[str, list[int]]
    stored: list[Row]


Running = Callable[[Path], AbstractContextManager[Places]]


def row(number: int, queue_id: int, topic: str = TOPIC, **properties: str) -> Row:
    body = f"body {number} ".encode() * (number % 3 * 100 + 1)
    own = {"TAGS": f"tag{number % 2}", "KEYS": f"order-{number}"}
    key = {"UNIQ_KEY": f"7F00000100002A139F2B4E3D0C0A{number:04X}"}
    return {
        "topic": topic,
        "queueId": queue_id,
        "body": b64encode(body).decode(),
        "properties": own | key | properties,
    }


#: The way of sending → the messages. The delayed one is due in half an hour.
SENT: dict[str, list[Row]] = {
    "sync": [*(row(n, n % QUEUES) for n in range(6)), row(6, 0, DELAY="16")],
    "async": [row(n, n % QUEUES) for n in range(10, 14)],
    "oneway": [row(n, n % QUEUES) for n in range(20, 22)],
    "batch": [row(n, 1) for n in range(30, 33)],
}
#: The number of messages in each queue, without the delayed one.
ENDS = [6, 9]
#: The tag of the one message that a consumer sends back.
AGAIN = row(40, 0, TAGS="again")


def ask(place: str, code: RequestCode, **fields: object) -> RemotingCommand:
    """Sends one request without a client, and gives the answer."""
    host, _, port = place.rpartition(":")
    texts = {name: str(value) for name, value in fields.items()}
    reader = FrameReader()
    with socket.create_connection((host, int(port)), PATIENCE) as own:
        own.sendall(encode_frame(RemotingCommand(code, 1, ext_fields=texts)))
        while data := own.recv(1 << 16):
            for answer in reader.feed(data):
                return answer
    raise AssertionError("the connection was closed")


def offsets_of(place: str, code: RequestCode, **fields: object) -> list[int]:
    """An offset for each queue of the topic; -1 where there is none."""
    answers = [ask(place, code, topic=TOPIC, queueId=n, **fields) for n in range(QUEUES)]
    return [
        int(one.ext_fields["offset"]) if one.code == ResponseCode.SUCCESS else -1 for one in answers
    ]


def wait_for(what: Callable[[], bool], why: str) -> None:
    """Waits for something to become true. :raises GaveUp: it does not."""
    end = time.monotonic() + PATIENCE
    while not what():
        if time.monotonic() > end:
            raise GaveUp(why)
        time.sleep(0.02)


def await_records(root: Path, count: int) -> None:
    """Waits until the log has so many records.

    :raises GaveUp: there are more: a client that got no answer when it sent a message back has sent
        it again.
    """

    def has_come() -> bool:
        found = len(records(root, VALUES))
        if found > count:
            raise GaveUp(f"{found} records, and not {count}")
        return found == count

    wait_for(has_come, f"there are not {count} records")


def dialogue(client: GoClient, places: Places, root: Path) -> Told:
    """Does all that the program can do with a broker whose store is empty.

    :raises GaveUp: a client waited in vain for an answer, or for messages.
    """
    answers: dict[str, Any] = {}
    at: dict[str, Any] = {"address": places.names, "broker": BROKER}
    stored = 0

    def sent(what: str, rows: list[Row], makes: int, do: str = "send", **more: Any) -> None:
        nonlocal stored
        answers[what] = client.ask(do, messages=rows, **at, **more)
        # The end of a transaction is not answered, nor are messages that are sent one way.
        stored += makes
        await_records(root, stored)

    def got(what: str, do: str, count: int, **more: Any) -> None:
        answers[what] = rows = client.ask(do, count=count, **at, **more)
        if len(rows) < count:
            raise GaveUp(f"{len(rows)} messages came, and not {count}")

    for how, rows in SENT.items():
        # Of two requests without an answer, a broker's threads may store the second one first.
        for some in [[one] for one in rows] if how == "oneway" else [rows]:
            sent(how, some, len(some), how=how)
    sent("again", [AGAIN], 1, how="sync")
    for state in (COMMIT, ROLLBACK):
        sent(
            f"transact {state}",
            [row(50 + state, 0, LEDGER)],
            STATES[state],
            "transact",
            state=state,
        )
    ends = [ENDS[0] + 1, ENDS[1]]
    wait_for(
        lambda: offsets_of(places.broker, RequestCode.GET_MAX_OFFSET) == ends,
        f"the queues do not end at {ends}",
    )
    at |= {"topic": TOPIC, "expression": "*"}
    got("push", "consume", sum(ends), group="go-push")
    got("in order", "consume", sum(ends), group="go-in-order", orderly=True)
    got("poll", "poll", sum(ends), group="go-poll")
    for offset in (0, 4):
        place = {"queueId": 1, "offset": offset, "group": f"go-pull-{offset}"}
        answers[f"pull {offset}"] = client.ask("pull", count=3, **at, **place)
    at["expression"] = "tag1 || none"
    got("tagged", "consume", sum(map(has_tag1, all_sent())), group="go-tagged")
    at["expression"] = "again"
    got("failed", "consume", 1, group="stumbling", failing=True)
    await_records(root, stored := stored + 1)
    committed = {
        group: await_committed(client, places.broker, group, ends)
        for group in ("go-push", "go-in-order", "go-poll")
    }
    # This comes last: a broker stores an event when a pull is beyond the end.
    half = [row(50 + UNKNOWN, 0, LEDGER)]
    sent(f"transact {UNKNOWN}", half, STATES[UNKNOWN], "transact", state=UNKNOWN)
    found = [shape(root, one, VALUES) for one in records(root, VALUES)]
    place = {"queueId": 1, "offset": 100, "group": "go-pull-100"}
    answers["pull 100"] = client.ask("pull", count=3, **at, **place)
    client.ask("close")
    return Told(answers, committed, found)


def all_sent() -> list[Row]:
    return [one for rows in SENT.values() for one in rows if "DELAY" not in one["properties"]]


def has_tag1(one: Row) -> bool:
    return bool(one["properties"]["TAGS"] == "tag1")


def await_committed(client: GoClient, place: str, group: str, ends: list[int]) -> list[int]:
    """Waits until these offsets are committed, for a client does not wait for the answer to a
    commit; gives them."""

    def has_come() -> bool:
        client.ask("commit")
        return offsets_of(place, RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=group) == ends

    wait_for(has_come, f"{group} does not commit {ends}")
    return ends


def told_by(program: Path, base: Path, running: Running) -> tuple[Path, Told]:
    """The store, and what clients were told in the dialogue. When a client failed the dialogue is
    begun anew, with another store: on a busy machine a client may give up, with various errors.

    :raises GoError: it failed each time; this is the last failure.
    """
    for tries in range(TRIES):
        root = base / f"{tries}" / "store"
        root.parent.mkdir(parents=True)
        make_store(root, VALUES)
        (root / "config" / "consumerOffset.json").unlink()
        try:
            with running(root) as places, GoClient(program, root.parent / "go.log") as client:
                told = dialogue(client, places, root)
        except GoError as problem:
            failed = problem
            continue
        return root, told
    raise failed


def comparable(value: Any) -> Any:
    """An answer without what differs between two brokers: ports and times, and the order of
    messages that come from several queues."""
    if isinstance(value, dict):
        return {name: comparable_field(name, one) for name, one in value.items()}
    if isinstance(value, list):
        made = [comparable(one) for one in value]
        if made and "queueOffset" in made[0]:
            made.sort(key=lambda one: (one["topic"], one["queueId"], one["queueOffset"]))
        return made
    return value


def comparable_field(name: str, value: Any) -> Any:
    if name in ("OffsetMsgID", "offsetMsgId"):
        # Host and port, and then the physical offset.
        return [one[-16:] for one in value.split(",")]
    if name in ("bornHost", "storeHost"):
        return value.rpartition(":")[0]
    if name in ("bornTimestamp", "storeTimestamp"):
        return value > 0
    if name == "properties":
        return {key: one for key, one in value.items() if key != "CONSUME_START_TIME"}
    return comparable(value)


def without_order(stored: list[Row]) -> list[Row]:
    """Records with their properties sorted, for the client writes them from a map of Go, which has
    no order."""
    return [one | {"properties_bytes": frozenset(properties_of(one))} for one in stored]


def properties_of(one: Row) -> list[bytes]:
    return without_origin(one["properties_bytes"]).split(b"\x02")


def test_the_client_for_go_is_told_what_a_broker_tells(
    program: Path, start_engine: StartEngine, tmp_path: Path
) -> None:
    engine = start_engine()
    conf = tmp_path / "broker.conf"
    conf.write_text(conf_text(VALUES) + f"brokerName={BROKER}\n", "utf-8")

    @contextmanager
    def ours(root: Path) -> Iterator[Places]:
        # The driver's broker does not ask its producers about transactions either.
        with serving(root, conf, "--no-checks") as server:
            yield Places(server.address, server.address)
            assert server.stop() == 0

    @contextmanager
    def theirs(root: Path) -> Iterator[Places]:
        engine.ask("broker", root=str(root), config=VALUES)
        try:
            yield Places(engine.ask("address"), engine.ask("places")[0])
        finally:
            engine.ask("stop")

    try:
        _, they = told_by(program, tmp_path / "theirs", theirs)
    except GaveUp as problem:
        pytest.skip(f"the client for Go does not wait for as long as this machine takes: {problem}")
    our_root, we = told_by(program, tmp_path / "ours", ours)
    for what, answer in they.answers.items():
        assert comparable(we.answers[what]) == comparable(answer), what
    assert we.answers.keys() == they.answers.keys()
    assert we.committed == they.committed
    stored = zip(without_order(we.stored), without_order(they.stored), strict=True)
    for our, their in stored:
        # Shows the differences only.
        assert our.items() - their.items() == their.items() - our.items() == set()
    assert_clean(our_root, config_of(VALUES))
    # Both have not only the same, but what was sent.
    bodies = sorted(one["body"] for one in [*all_sent(), AGAIN])
    for what in ("push", "in order", "poll"):
        assert sorted(one["body"] for one in we.answers[what]) == bodies, what
    for queue_id in range(QUEUES):
        got = [one for one in we.answers["in order"] if one["queueId"] == queue_id]
        assert [one["queueOffset"] for one in got] == list(range(len(got)))
    assert {b64decode(one["body"])[:7] for one in we.answers["tagged"]} == {
        b64decode(one["body"])[:7] for one in all_sent() if has_tag1(one)
    }
