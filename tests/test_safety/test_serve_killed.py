"""``serve`` is killed while clients send: what was answered is there, and the store is sound."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.verify.findings import Finding
from rmqctl.operations.verify.run import verify
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.frames import FrameReader, encode_frame

CONFIG = MessageStoreConfig(mapped_file_size_commit_log=1 << 16, max_message_size=1 << 13)
CLIENTS, ROUNDS, DEEP_ROUNDS = 4, 2, 50
SEND = {
    "a": "p", "b": "orders", "c": "TBW102", "d": "4", "f": "0", "g": "5", "h": "0", "i": "KEYS\1k",
}  # fmt: skip


class Senders:
    """Clients that send one message after the other, until ``enough`` are answered."""

    def __init__(self, port: int, round_number: int, enough: int) -> None:
        self.answered: set[bytes] = set()
        self.is_enough = threading.Event()
        self._enough = enough
        place = ("127.0.0.1", port)
        self._threads = [
            threading.Thread(target=self._send, args=(place, f"{round_number}-{number}", number))
            for number in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)

    def _send(self, place: tuple[str, int], name: str, queue_id: int) -> None:
        reader = FrameReader()
        with socket.create_connection(place, 60) as own:
            for number in range(1_000_000):
                body = f"{name}-{number}".encode()
                fields = SEND | {"e": str(queue_id)}
                command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=body)
                try:
                    own.sendall(encode_frame(command))
                    answers: list[RemotingCommand] = []
                    while not answers:
                        data = own.recv(1 << 16)
                        if not data:
                            return
                        answers = list(reader.feed(data))
                except ConnectionError:
                    return
                if answers[0].code == ResponseCode.SYSTEM_BUSY:
                    # The machine had no time for it: a client tries again, or another broker.
                    continue
                assert answers[0].code == 0, answers[0].remark
                self.answered.add(body)
                if len(self.answered) >= self._enough:
                    self.is_enough.set()


@pytest.mark.slow
def test_what_was_answered_before_a_kill_is_there(
    tmp_path: Path, chance: random.Random, is_deep: bool
) -> None:
    root = tmp_path / "store"
    MessageStore(root, CONFIG, writable=True, create=True).close()
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=65536\nmaxMessageSize=8192\n")
    command = [sys.executable, "-m", "rmqctl", "serve", "--listen", "127.0.0.1:0"]
    line = [*command, "--store", str(root), "--broker-conf", str(conf), "--format", "ndjson"]
    answered: set[bytes] = set()
    for number in range(DEEP_ROUNDS if is_deep else ROUNDS):
        # A kill takes nothing from the log, whether that is on disk or not.
        how = ["--flush", ("async", "sync")[number % 2]]
        with subprocess.Popen(
            [*line, *how], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as run:
            assert run.stdout is not None
            port = int(json.loads(run.stdout.readline())["address"].rpartition(":")[2])
            senders = Senders(port, number, chance.randint(20, 400))
            is_enough = senders.is_enough.wait(600)
            run.kill()
            senders.join()
        assert is_enough
        answered |= senders.answered
        with MessageStore(root, CONFIG, writable=True) as store:
            walked = [one for one in store.commit_log.walk() if isinstance(one, Record)]
            assert answered <= {store.body(record) for record in walked}
        assert [found for found in verify(root, CONFIG) if isinstance(found, Finding)] == []
