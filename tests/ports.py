"""Ports of the loopback address for the servers of tests."""

from __future__ import annotations

import os
import socket

#: How many ports each test process has. The engine's driver takes all but the last two (Node.java).
_OWN = 50


def free_ports(count: int) -> list[int]:
    """Free ports that no other process gets meanwhile: they are below the ephemeral ports of the
    system, which begin at 32768, and each process begins with other ones. With an ephemeral port, a
    client that connects while nothing listens may get the same port, and be connected to itself."""
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
