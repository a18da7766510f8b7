"""Small stores, and the command line run inside the test's process."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqctl.cli.main import run
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf

BROKER_CONF = """\
mappedFileSizeCommitLog=2048
mappedFileSizeConsumeQueue=2000
maxHashSlotNum=50
maxIndexNum=200
"""
CONFIG: MessageStoreConfig = parse_broker_conf(BROKER_CONF)
BORN = 1_700_000_000_000
#: For ``python -c``: rmqctl without a bar on a terminal, however long its work takes.
WITHOUT_A_BAR = """
from rmqctl.__main__ import main
from rmqctl.cli import progress
progress._LATE_SECONDS = float("inf")
main()
"""
NASTY = "\x1b[31mred\x07 \x9b \u202egnp.exe"


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> str:
        self.flush()
        data = self.buffer.getvalue()  # type: ignore[attr-defined]
        return re.sub(r"\x1b\[[0-9;]*m", "", data.decode())


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of ndjson output."""
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Done]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """``cli("queues", store=path)`` runs a command line."""
    for name in ("RMQCTL_STORE", "RMQCTL_BROKER_CONF"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str | Path, store: Path | None = None) -> Done:
        line = [str(argument) for argument in arguments]
        if store is not None:
            conf = store.parent / "broker.conf"
            conf.write_text(BROKER_CONF)
            line += ["--store", str(store), "--broker-conf", str(conf)]
        written = io.BytesIO(), io.BytesIO()
        out, err = (io.TextIOWrapper(one, "utf-8") for one in written)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = run(line)
            out.flush()
            err.flush()
        texts = [one.getvalue().decode() for one in written]
        return Done(code, *texts)

    return call


def message(number: int, **more: Any) -> MessageExtBrokerInner:
    given: dict[str, Any] = {
        "topic": "orders",
        "body": f"body {number}".encode(),
        "queue_id": number % 2,
        "properties": {"KEYS": f"order-{number} all", "TAGS": "paid" if number % 3 else "due"},
        "born_timestamp": BORN + number,
    }
    return MessageExtBrokerInner(**(given | more))


def put_at(root: Path, times: list[int]) -> None:
    """Makes a store with a message for each of these store times (ms), each in a file of the log of
    its own."""
    clock = iter(times)
    with MessageStore(root, CONFIG, writable=True, create=True, clock=lambda: next(clock)) as store:
        for number in range(len(times)):
            assert store.put_message(message(number, body=b"x" * 1500)).is_ok
        assert len(store.commit_log.files.entries) == len(times)


@pytest.fixture
def store(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 messages over several log files and two topics, one of them with nasty properties.

    A copy, at a tenth of what it takes to put them.
    """
    made = tmp_path_factory.getbasetemp() / "store-of-60"
    if not made.exists():
        put_sixty(made.with_suffix(".new"))
        made.with_suffix(".new").rename(made)
    return Path(shutil.copytree(made, tmp_path / "store"))


def put_sixty(path: Path) -> None:
    clock = iter(range(BORN + 1000, BORN + 10**6))
    with MessageStore(
        path, CONFIG, writable=True, create=True, clock=lambda: next(clock)
    ) as opened:
        opened.put_messages([message(number) for number in range(59)])
        nasty = {"KEYS": "k", "note": NASTY}
        opened.put_message(
            message(0, topic="nasty\u202etopic", body=b"\xff\x1b[2J", properties=nasty)
        )


def state(path: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a path: its bytes and its modification time."""
    return {
        str(file.relative_to(path)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }
