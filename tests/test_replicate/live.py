"""A master on loopback, in a thread of the test: a store that is served, with an HA port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.messagestore import WritableStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.serve.broker import Broker
from rmqctl.serve.hasockets import HaServer
from rmqctl.serve.processors import table
from rmqctl.serve.processors.request import Processor, Request, Served
from rmqctl.serve.sockets import Server
from rmqctl.serve.state.accounts import Accounts
from rmqctl.serve.wire.command import RemotingCommand

FILE_SIZE = 4096
CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=FILE_SIZE,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=20,
    max_index_num=60,
    max_message_size=2048,
)
#: What this master says of itself, by the code of the request.
SAYS: dict[int, Callable[[LiveMaster], str]] = {
    RequestCode.GET_BROKER_CONFIG: lambda master: (
        f"brokerName=broker-a\nbrokerRole={master.role}\nstorePathRootDir=C:\\nowhere\n{master.more}"
        f"mappedFileSizeCommitLog={FILE_SIZE}\nmappedFileSizeConsumeQueue=400\n"
        "maxHashSlotNum=20\nmaxIndexNum=60\nmaxMessageSize=2048\n"
    ),
    RequestCode.GET_BROKER_RUNTIME_INFO: lambda master: (
        f'{{"table":{{"commitLogMinOffset":"{master.store.min_offset}",'
        f'"commitLogMaxOffset":"{master.store.max_offset}"}}}}'
    ),
    RequestCode.GET_ALL_TOPIC_CONFIG: lambda master: (
        '{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":'
        '{"orders":{"perm":6,"readQueueNums":3,"topicName":"orders","writeQueueNums":3}}}'
    ),
    RequestCode.GET_ALL_CONSUMER_OFFSET: lambda master: (
        f'{{"offsetTable":{{"orders@readers":{{0:{master.consumed()},1:0}}}}}}'
    ),
    RequestCode.GET_ALL_DELAY_OFFSET: lambda master: '{"offsetTable":{3:1}}',
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: lambda master: (
        '{"dataVersion":{"counter":1,"timestamp":2},"subscriptionGroupTable":{}}'
    ),
}


class LiveMaster:
    """A master; ``port`` answers requests, ``ha_port`` feeds slaves."""

    def __init__(
        self,
        root: Path,
        config: MessageStoreConfig = CONFIG,
        accounts: Accounts | None = None,
        *,
        answers_first: bool = False,
    ) -> None:
        self.root, self._accounts, self._answers_first = root, accounts, answers_first
        self.role: str = config.broker_role
        #: Further lines of its configuration.
        self.more: str = ""
        self.store: WritableStore = WritableStore(root, config, create=True)
        #: 0 before the start: a free one is taken.
        self.port = self.ha_port = 0
        self.troubles: list[str] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        served = Served.of(self.store, accounts=self._accounts, answers_first=self._answers_first)
        self._server = Server(Broker(served), self.troubles.append)
        slaves = HaServer(self._server)
        address = await self._server.listen("127.0.0.1", self.port)
        self.port = int(address.rpartition(":")[2])
        await slaves.listen("127.0.0.1", self.ha_port)
        self.ha_port = int(slaves.address.rpartition(":")[2])
        self.slaves = slaves
        self._ready.set()
        await self._server.run()
        await slaves.close()

    def put(self, count: int, size: int = 100) -> None:
        """Stores messages, on disk when this returns."""
        messages = []
        for number in range(count):
            body, own = b"%d " % number * (size // 4), {"KEYS": f"k{number}", "TAGS": "a"}
            messages.append(MessageExtBrokerInner("orders", body, number % 3, properties=own))
        assert all(one.is_ok for one in self.store.put_messages(messages))

    def consumed(self) -> int:
        """A group has consumed its first queue to the end."""
        queue = self.store.consume_queue("orders", 0)
        return 0 if queue is None else queue.max_offset

    def cut(self) -> None:
        """Closes all connections of slaves."""

        def cut() -> None:
            for task in list(self.slaves._tasks):
                task.cancel()

        self._loop.call_soon_threadsafe(cut)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._server.stop)
            self._thread.join(60)
        self.store.close()


@contextmanager
def live(
    root: Path,
    config: MessageStoreConfig = CONFIG,
    ports: tuple[int, int] = (0, 0),
    accounts: Accounts | None = None,
    *,
    answers_first: bool = False,
) -> Iterator[LiveMaster]:
    """A master while the block runs; ``ports`` are those that it answers on, and its HA port."""
    master = LiveMaster(root, config, accounts, answers_first=answers_first)
    with pytest.MonkeyPatch.context() as patch:
        for code, says in SAYS.items():
            patch.setitem(table.PROCESSORS, code, _processor(master, says))
        try:
            master.port, master.ha_port = ports
            master.start()
            yield master
        finally:
            master.stop()


def _processor(master: LiveMaster, says: Callable[[LiveMaster], str]) -> Processor:
    def answer(served: Served, request: Request) -> RemotingCommand:
        return request.command.answer(ResponseCode.SUCCESS, body=says(master).encode())

    return answer
