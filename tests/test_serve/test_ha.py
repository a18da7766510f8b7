"""A master and its slaves without a network: who gets which bytes when, and who waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.messagestore import WritableStore
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.serve.broker import Append
from rmqctl.serve.ha.frames import FRAME, REPORT, BadFrame, FramePart, FrameReader, ReportReader
from rmqctl.serve.ha.holding import Held, Holding
from rmqctl.serve.ha.master import Frame, LogRange, Master
from rmqctl.serve.processors.request import Served
from tests.test_serve.dialogue import Client, Dialogue

FILE_SIZE = 100_000
SYNC = MessageStoreConfig(broker_role="SYNC_MASTER")


class Log:
    """A log of which only the ends matter."""

    def __init__(self, start: int = 0, end: int = 0) -> None:
        self.range = LogRange(start, end)

    def __call__(self) -> LogRange:
        return self.range


def master_of(log: Log, config: MessageStoreConfig = SYNC, *networks: str) -> Master[str]:
    return Master(log, FILE_SIZE, config, tuple(ip_network(one) for one in networks))


def joined(log: Log, report: int) -> Master[str]:
    master = master_of(log)
    assert master.connected(1, "10.0.0.1", 0) == ""
    assert master.next_frame(1, 0) is None
    assert master.received(1, REPORT.pack(report), 0) == ""
    return master


def frames(master: Master[str], now: int = 0) -> list[Frame]:
    return list(iter(lambda: master.next_frame(1, now), None))


@pytest.mark.parametrize(
    ("report", "start"), [(0, 200_000), (1, 1), (100_000, 100_000), (250_001, 250_001)]
)
def test_where_a_slave_begins(report: int, start: int) -> None:
    sent = frames(joined(Log(0, 250_001), report))
    place = start
    for frame in sent:
        assert frame.physical_offset == place
        place += frame.size
        assert frame.size <= 32_768
        assert frame.physical_offset // FILE_SIZE == (place - 1) // FILE_SIZE
    assert place == 250_001


def test_a_sign_of_life_comes_when_there_is_nothing_else() -> None:
    log = Log(0, 10)
    master = joined(log, 10)
    assert master.next_frame(1, 5000) is None
    assert master.next_frame(1, 5001) == Frame(10, 0)
    assert master.next_frame(1, 5002) is None
    log.range = LogRange(0, 30)
    assert master.next_frame(1, 5003) == Frame(10, 20)
    assert master.next_frame(1, 10_003) is None


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (-1, "it reports -1"),
        (251, "it reports 251, and the log ends at 250"),
        (1 << 62, "the log ends at 250"),
        (20, "it wants the log from 20, and that begins at 100"),
    ],
)
def test_what_a_slave_cannot_have_ends_its_connection(report: int, why: str) -> None:
    master = master_of(Log(100, 250))
    master.connected(1, "10.0.0.1", 0)
    assert why in master.received(1, REPORT.pack(report), 0)
    # Nothing of it counts as copied.
    assert master.acked == 0


def test_a_slave_that_says_nothing_is_named() -> None:
    master = joined(Log(0, 10), 10)
    assert master.silent(20_000) == []
    assert master.silent(20_001) == [1]
    master.lost(1)
    assert master.silent(90_000) == []


def test_slaves_come_from_where_they_may() -> None:
    master = master_of(Log(), SYNC, "10.1.0.0/16", "::1")
    allowed = [master.connected(n, host, 0) == "" for n, host in enumerate(
        ("10.1.2.3", "10.2.0.1", "::1", "::ffff:10.1.9.9", "fe80::1%eth0", "nonsense")
    )]  # fmt: skip
    assert allowed == [True, False, True, True, False, False]


def test_of_several_reports_the_last_one_counts_and_halves_wait() -> None:
    reader = ReportReader()
    data = REPORT.pack(1) + REPORT.pack(2) + REPORT.pack(3)
    assert reader.feed(data[:20]) == 2
    assert reader.feed(b"") is None
    assert reader.feed(data[20:]) == 3


def test_puts_wait_for_a_slave() -> None:
    log = Log(0, 100)
    master = master_of(log)
    assert master.wait(100, "nobody there", 0) is PutMessageStatus.SLAVE_NOT_AVAILABLE
    master = joined(log, 50)
    assert master.wait(50, "there", 0) is PutMessageStatus.PUT_OK
    assert master.wait(60, "a", 0) is None
    assert master.wait(80, "b", 10) is None
    assert master.due(1) == []
    master.received(1, REPORT.pack(70), 100)
    assert master.due(100) == [("a", PutMessageStatus.PUT_OK)]
    assert master.due(3009) == []
    assert master.due(3010) == [("b", PutMessageStatus.FLUSH_SLAVE_TIMEOUT)]
    log.range = LogRange(0, 1 << 40)
    assert master.wait(1 << 39, "far", 0) is PutMessageStatus.SLAVE_NOT_AVAILABLE


# --- frames ----------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 5, 13, 1000])
def test_frames_are_read_whatever_the_bits_they_come_in(step: int) -> None:
    data = b"".join(
        FRAME.pack(place, len(body)) + body
        for place, body in ((7, b"abc"), (10, b""), (10, b"defghij"), (17, b"k"))
    )
    reader = FrameReader(7, FILE_SIZE)
    parts: list[FramePart] = []
    for at in range(0, len(data), step):
        parts += reader.feed(data[at : at + step])
    assert b"".join(part.data for part in parts) == b"abcdefghijk"
    assert FramePart(10, b"") in parts
    assert reader.expected == 18


@pytest.mark.parametrize(
    ("place", "size", "why"),
    [
        (8, 1, "a frame for 8 came where 7 had to"),
        (7, -1, "a frame of -1 bytes"),
        (7, FILE_SIZE - 6, "at most 99993"),
        (7, 0x7FFFFFFF, "at most 99993"),
    ],
)
def test_frames_that_cannot_be_followed(place: int, size: int, why: str) -> None:
    with pytest.raises(BadFrame, match=why):
        list(FrameReader(7, FILE_SIZE).feed(FRAME.pack(place, size)))


# --- with a broker ---------------------------------------------------------------------------

SEND: dict[str, Any] = {
    "a": "p", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "5", "h": "0",
    "i": "TAGS\1a", "j": "0",
}  # fmt: skip


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    config = replace(SYNC, mapped_file_size_commit_log=1 << 16, max_message_size=1 << 14)
    with WritableStore(tmp_path / "store", config, create=True, clock=lambda: 7) as store:
        yield Served.of(store)


def of_a_sync_master(served: Served) -> tuple[Dialogue, Client, Master[Held[Append]]]:
    """A broker whose log has a slave that has everything so far."""
    dialogue, store = Dialogue(served), served.store
    assert isinstance(store, WritableStore)
    log = store.commit_log
    master: Master[Held[Append]] = Master(
        lambda: LogRange(0, log.flushed_where), log.file_size, SYNC
    )
    dialogue.broker.holding = Holding(master)
    master.connected(1, "10.0.0.1", dialogue.now)
    assert not master.received(1, REPORT.pack(log.flushed_where), dialogue.now)
    return dialogue, dialogue.client(), master


def test_a_send_is_answered_when_a_slave_has_it(served: Served) -> None:
    dialogue, client, master = of_a_sync_master(served)
    number = client.send(RequestCode.SEND_MESSAGE_V2, b"x", **SEND)
    without = client.ask(RequestCode.SEND_MESSAGE_V2, b"x", **SEND | {"i": "WAIT\1false"})
    assert without.code == ResponseCode.SUCCESS
    assert number not in client.answers
    end = served.store.max_offset
    master.received(1, REPORT.pack(end), dialogue.now)
    dialogue.do(dialogue.broker.replicated(dialogue.now))
    assert client.answers.pop(number).code == ResponseCode.SUCCESS


def test_a_slave_that_does_not_report_in_time(served: Served) -> None:
    dialogue, client, master = of_a_sync_master(served)
    number = client.send(RequestCode.SEND_MESSAGE_V2, b"x", **SEND)
    dialogue.wait(2000)
    assert number not in client.answers
    dialogue.wait(1000)
    answer = client.answers.pop(number)
    assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    # It is stored all the same, and the answer says where.
    assert answer.ext_fields["queueOffset"]
    master.lost(1)
    alone = client.ask(RequestCode.SEND_MESSAGE_V2, b"x", **SEND)
    assert alone.code == ResponseCode.SLAVE_NOT_AVAILABLE


def test_a_stop_answers_those_that_wait(served: Served) -> None:
    dialogue, client, _ = of_a_sync_master(served)
    first = client.send(RequestCode.SEND_MESSAGE_V2, b"x", **SEND)
    dialogue.do(dialogue.broker.stop(dialogue.now))
    assert client.answers.pop(first).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    late = client.ask(RequestCode.SEND_MESSAGE_V2, b"x", **SEND)
    assert late.code == ResponseCode.FLUSH_SLAVE_TIMEOUT


def test_a_slave_is_told_its_master(served: Served) -> None:
    client = Dialogue(served).client()
    own = {"brokerName": served.names.broker, "brokerAddr": "10.0.0.9:10921"}
    fields = {**own, "clusterName": "c", "haServerAddr": "10.0.0.9:10922", "brokerId": 1}
    code = RequestCode.REGISTER_BROKER
    assert client.ask(code, **fields).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    served.ha_port = 10912
    answer = client.ask(code, **fields)
    assert answer.ext_fields == {
        "masterAddr": "10.0.0.7:10911",
        "haServerAddr": "10.0.0.7:10912",
    }
    for other in ({"brokerId": 0}, {"brokerName": "another"}):
        assert client.ask(code, **fields | other).code == ResponseCode.NO_PERMISSION
    assert client.ask(RequestCode.UNREGISTER_BROKER, **fields).code == ResponseCode.SUCCESS
