"""What Prometheus is told, and the port at which it asks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from formats.remotingcodes import CommandFlag, RequestCode
from rmqctl.engine.messagestore import MessageStore
from rmqctl.errors import CannotRead
from rmqctl.serve.broker import Broker
from rmqctl.serve.errors import CannotListen
from rmqctl.serve.metrics import numbers_of, text_of
from rmqctl.serve.processors.request import Served
from rmqctl.serve.scrape import Scraped
from rmqctl.serve.sockets import Server
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.frames import encode_frame
from tests import golden_data
from tests.conftest import Golden
from tests.test_serve.dialogue import Dialogue

_SAMPLE = re.compile(r'rmqctl_(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\})? (-?[\d.]+)')


@pytest.fixture
def store(golden: Golden) -> Iterator[MessageStore]:
    with MessageStore(golden("broker"), golden_data.broker_conf("broker")) as store:
        yield store


def samples(text: str) -> dict[str, float]:
    """Every line of a page, as the format's grammar has it."""
    found, declared = {}, set()
    for line in text.splitlines():
        if line.startswith("# "):
            word = re.fullmatch(r"# (?:HELP|TYPE) rmqctl_(\w+) .+", line)
            assert word is not None, line
            declared.add(word[1])
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample is not None and sample[1] in declared, line
        found[sample[1] + (f"{{{sample[2]}}}" if sample[2] else "")] = float(sample[3])
    return found


def test_everything_that_counts_is_told(store: MessageStore) -> None:
    dialogue = Dialogue(Served.of(store))
    client = dialogue.client()
    client.heart_beat("workers", "orders")
    client.pull("orders", 0, 0)
    client.ask(4711)
    client.ask(4712)
    found = samples(text_of(numbers_of(dialogue.broker, 1, 3), store))
    assert (found["connections"], found["connections_total"]) == (1, 3)
    assert found['requests_total{request="PULL_MESSAGE",answer="SUCCESS"}'] == 1
    unknown = 'requests_total{request="other",answer="REQUEST_CODE_NOT_SUPPORTED"}'
    assert found[unknown] == 2
    assert found['pulls_total{result="found"}'] == 1 and found["messages_sent_total"] > 0
    assert (found["consumer_groups_online"], found["producer_groups_online"]) == (1, 1)
    assert found["log_max_offset_bytes"] == store.max_offset
    queues = [store.consume_queue("orders", n) for n in range(4)]
    ends = sum(queue.max_offset for queue in queues if queue is not None)
    offsets = dialogue.served.offsets.table()["orders@cg_orders"]
    lag = 'consumer_lag_messages{group="cg_orders",topic="orders"}'
    assert found[lag] == ends - sum(offsets.values())


def test_names_of_a_damaged_file_break_no_line(store: MessageStore) -> None:
    served = Served.of(store)
    served.offsets.commit("orders", 'a"b\\c\nd\x1b', 0, 1)
    found = samples(text_of(numbers_of(Broker(served), 0, 0), store))
    (lag,) = [name for name in found if "a\\" in name]
    assert 'group="a\\"b\\\\c\ufffdd\ufffd"' in lag


def test_answers_of_any_kind_are_one_line_each(store: MessageStore) -> None:
    dialogue = Dialogue(Served.of(store))
    client, looker = dialogue.client(), dialogue.client()
    client.heart_beat("workers", "orders")
    place = {"consumerGroup": "cg_orders", "topic": "orders", "queueId": 1}
    assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **place).code == 0
    dialogue.client().send(RequestCode.QUERY_CONSUMER_OFFSET)
    # A client that was asked may answer any code.
    asked: dict[str, Any] = {"consumerGroup": "workers", "clientId": "10.0.0.9@1"}
    for code in (4711, 4712):
        looker.send(RequestCode.GET_CONSUMER_RUNNING_INFO, **asked)
        answer = RemotingCommand(code, client.asked[-1].opaque, CommandFlag.RESPONSE)
        client.send_bytes(encode_frame(answer))
    assert sorted(one.code for one in looker.answers.values()) == [4711, 4712]
    text = text_of(numbers_of(dialogue.broker, 1, 3), store)
    found = samples(text)
    assert found['requests_total{request="QUERY_CONSUMER_OFFSET",answer="none"}'] == 1
    assert found['requests_total{request="QUERY_CONSUMER_OFFSET",answer="SUCCESS"}'] == 1
    other = 'requests_total{request="GET_CONSUMER_RUNNING_INFO",answer="other"}'
    assert found[other] == 2 and text.count(other) == 1


def test_each_answer_is_told_to_who_keeps_a_log(store: MessageStore) -> None:
    dialogue = Dialogue(Served.of(store, clock=lambda: 1_900_000_000_000), tells_access=True)
    client = dialogue.client()
    client.pull("orders", 0, 0)
    assert client.pull("orders", 0, 124, sysFlag=6) is None
    dialogue.wait(16_000)
    client.send(RequestCode.QUERY_CONSUMER_OFFSET)
    first, parked, closed = dialogue.accessed
    assert (first.command.code, first.answer_code, first.milliseconds) == (11, 0, 0)
    assert first.sent_bytes > 0 and first.timestamp == 1_900_000_000_000
    assert parked.answer_code == 19 and 15_000 <= parked.milliseconds <= 16_000
    assert (closed.command.code, closed.answer_code) == (14, None)


def test_prometheus_asks_and_others_learn_nothing(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles: list[str] = []

    async def ask(port: int, data: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return answer

    async def dialogue() -> None:
        server = Server(Broker(Served.of(store)), troubles.append)
        scraped = Scraped(server)
        address = await scraped.listen("127.0.0.1", 0)
        port = int(address.rpartition(":")[2])
        with pytest.raises(CannotListen):
            await Scraped(server).listen("127.0.0.1", port)
        page = await ask(port, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        head, _, body = page.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
        assert samples(body.decode())["log_max_offset_bytes"] == store.max_offset
        assert (await ask(port, b"HEAD /metrics HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\n")
        for wrong in (b"GET / HTTP/1.1\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n", b"\r\n\r\n"):
            assert (await ask(port, wrong)).startswith(b"HTTP/1.1 404")
        assert await ask(port, b"x" * 9000) == b""
        monkeypatch.setattr("rmqctl.serve.scrape._SECONDS", 0.05)
        assert await ask(port, b"GET") == b""

        def fails(*arguments: object) -> str:
            raise CannotRead(path="log", reason="gone")

        monkeypatch.setattr("rmqctl.serve.scrape._SECONDS", 20)
        monkeypatch.setattr("rmqctl.serve.scrape.text_of", fails)
        assert b" 503 " in await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")
        scraped.close()

    asyncio.run(dialogue())
    assert len(troubles) == 1 and "gone" in troubles[0]


def test_who_takes_no_page_holds_none(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it keep the server from its end, or have it tell of a fault."""
    faults: list[object] = []

    async def until(scraped: Scraped, is_busy: bool) -> None:
        while bool(scraped._under_way) is not is_busy:
            await asyncio.sleep(0)

    async def dialogue() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        scraped = Scraped(Server(Broker(Served.of(store)), faults.append))
        port = int((await scraped.listen("127.0.0.1", 0)).rpartition(":")[2])
        monkeypatch.setattr("rmqctl.serve.scrape._SECONDS", 0.2)
        monkeypatch.setattr("rmqctl.serve.scrape.text_of", lambda *_: "x" * (32 << 20))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await until(scraped, True)
        await until(scraped, False)
        with pytest.raises(ConnectionError):
            assert len(await asyncio.wait_for(reader.read(), 20)) < 32 << 20
            raise ConnectionResetError
        writer.close()
        monkeypatch.setattr("rmqctl.serve.scrape._SECONDS", 20)
        await asyncio.open_connection("127.0.0.1", port)
        await until(scraped, True)
        scraped.close()

    asyncio.run(dialogue())
    assert faults == []
