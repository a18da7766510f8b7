"""Tells why a server cannot listen at an address."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from rmqctl.serve.errors import CannotListen


@contextmanager
def named(host: str, port: int, option: str = "--listen") -> Iterator[None]:
    """Inside, errors of the system become :exc:`CannotListen`, which names ``option``."""
    try:
        yield
    except OSError as error:
        # asyncio's own text tells the address once more.
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else str(error)
        raise CannotListen(address=f"{host}:{port}", reason=reason, option=option) from error


def check_free(host: str, port: int, option: str = "--listen") -> None:
    """Checks that a port is free, by listening there for a moment, at each address of the host.
    Addresses of a family for which the system has no sockets are passed over. So a command that
    changes something before it listens can refuse to begin.

    :raises CannotListen: the system refuses.
    """
    with named(host, port, option):
        places = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        refused: OSError | None = None
        is_one_free = False
        for family, _, _, _, address in places:
            try:
                socket.socket(family).close()
            except OSError as error:
                refused = error  # asyncio passes over such addresses, too.
                continue
            with socket.create_server(address, family=family):
                is_one_free = True
        if refused is not None and not is_one_free:
            raise refused
