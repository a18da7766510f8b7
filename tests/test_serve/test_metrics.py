"""What Prometheus is told, and the port at which it asks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from formats.remotingcodes import RequestCode
from rmqctl.engine.messagestore import MessageStore
from rmqctl.errors import CannotListen, CannotRead
from rmqctl.serve.broker import Broker
from rmqctl.serve.metrics import numbers_of, text_of
from rmqctl.serve.processors.request import Served
from rmqctl.serve.scrape import Scraped
from rmqctl.serve.sockets import Server
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
