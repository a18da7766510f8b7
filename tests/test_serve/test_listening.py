"""Where a server may listen, and whom it tells what."""

from __future__ import annotations

import asyncio
import errno
import socket
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.serve.broker import Broker
from rmqctl.serve.errors import CannotListen
from rmqctl.serve.listening import check_free
from rmqctl.serve.processors.request import Served
from rmqctl.serve.sockets import Server


def without(*families: socket.AddressFamily) -> type[socket.socket]:
    """Sockets of a system that has none of these families."""

    class Some(socket.socket):
        def __init__(self, family: int = -1, *more: Any, **named: Any) -> None:
            if family in families:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *more, **named)

    return Some


def addresses(*_: object, **__: object) -> list[tuple[Any, ...]]:
    """A name with an address of either family."""
    stream = socket.SOCK_STREAM
    return [
        (socket.AF_INET6, stream, 6, "", ("::1", 0, 0, 0)),
        (socket.AF_INET, stream, 6, "", ("127.0.0.1", 0)),
    ]


def test_an_address_of_a_family_that_the_system_has_not_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    monkeypatch.setattr(socket, "socket", without(socket.AF_INET6))
    check_free("both", 0)
    monkeypatch.setattr(socket, "socket", without(socket.AF_INET6, socket.AF_INET))
    with pytest.raises(CannotListen, match="Address family"):
        check_free("both", 0)


def test_a_port_that_somebody_has_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(CannotListen):
        check_free("127.0.0.1", other.getsockname()[1])


@pytest.mark.parametrize("problem", [BrokenPipeError(), ValueError("I/O operation on closed file")])
def test_a_server_outlives_who_reads_what_it_says(tmp_path: Path, problem: Exception) -> None:
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        raise problem

    async def run(store: MessageStore) -> None:
        server = Server(Broker(Served.of(store)), tell, detail=tell)
        server.trouble("a disk is full")
        server.detail("somebody has come")

    with MessageStore(tmp_path / "s", writable=True, create=True) as store:
        asyncio.run(run(store))
    assert told == ["a disk is full", "somebody has come"]
