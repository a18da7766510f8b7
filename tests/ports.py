"""Ports of the loopback address for servers that come and go."""

from __future__ import annotations

import os
import socket

#: A process has so many ports, of which the engine's driver takes all but the last two (Node.java).
_OWN = 50


def free_ports(count: int) -> list[int]:
    """Ports that nobody else is given meanwhile: they lie below those that the system gives, which
    begin at 32768, and first come those of this process. Who connects to a port above, where
    nobody listens, may even get that very port as its own, and so be connected to itself."""
    found: list[int] = []
    first = 10_000 + os.getpid() % 400 * _OWN
    for base in (*range(first, 30_000, _OWN), *range(10_000, first, _OWN)):
        for port in (base + _OWN - 2, base + _OWN - 1):
            with socket.socket() as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    one.bind(("127.0.0.1", port))
                except OSError:
                    continue
            found.append(port)
            if len(found) == count:
                return found
    raise AssertionError("no port is free")
