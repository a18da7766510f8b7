"""A line between a slave and its master, which can be cut inside a frame, held, or closed."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from rmqctl.serve.ha.frames import FRAME

_READ_SIZE = 1 << 14


class _Frames:
    """Finds where the line is to be cut in the bytes that a master sends."""

    def __init__(self, cuts: deque[str]) -> None:
        self._cuts = cuts
        self._head = b""
        self._missing = 0

    def passing(self, data: bytes) -> tuple[int, str]:
        """How many bytes, counted from the first of ``data``, still pass, and which cut comes after
        them. An empty name: all of ``data`` passes, and there is no cut."""
        at = 0
        while at < len(data):
            if self._missing:
                step = min(self._missing, len(data) - at)
                at, self._missing = at + step, self._missing - step
                continue
            piece = data[at : at + FRAME.size - len(self._head)]
            at, self._head = at + len(piece), self._head + piece
            if len(self._head) < FRAME.size:
                continue
            _, size = FRAME.unpack(self._head)
            self._head, self._missing = b"", size
            # A heartbeat is a head alone, and has nothing to tear.
            if size and self._cuts:
                where = self._cuts.popleft()
                # If a head comes in pieces, the first ones have passed already.
                return (max(at - 5, 0) if where == "head" else at + size // 2), where
        return len(data), ""


class Line:
    """Forwards connections to ``address`` to another address, ``leads_to``.

    ``cuts`` are the cuts that are still to come, one for each connection: in the ``head`` of a
    frame that has a part of the log, or in its ``body``.
    """

    def __init__(self, leads_to: str) -> None:
        self.leads_to = leads_to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts: deque[str] = deque()
        #: The cuts that were done, in order.
        self.been_cut: list[str] = []
        self._flows, self._is_allowed = threading.Event(), threading.Event()
        self._flows.set()
        self._is_allowed.set()
        self._ends: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        # This wakes the thread that waits in accept().
        _end(self._listener)
        self._is_allowed.set()
        self._listener.close()
        for ends in self._ends:
            for one in ends:
                one.close()

    def hold(self) -> None:
        """Lets nothing pass any more, in either direction, with connections open."""
        self._flows.clear()

    def release(self) -> None:
        """Lets everything pass again, also what was held."""
        self._flows.set()

    def close(self) -> None:
        """Ends all connections; new ones wait for :meth:`allow`. When this returns, the master has
        closed its ends, too."""
        self._is_allowed.clear()
        self._flows.set()
        for near, _ in self._ends:
            _end(near, socket.SHUT_RD)
        accepting, *carrying = self._threads
        for thread in carrying:
            thread.join(60)
        self._threads = [accepting]

    def allow(self) -> None:
        self._is_allowed.set()

    def _begin(self, what: Callable[..., None], *values: object) -> None:
        thread = threading.Thread(target=what, args=values, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        # Ends when the listener is closed.
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._is_allowed.wait()
                host, _, port = self.leads_to.rpartition(":")
                try:
                    far = socket.create_connection((host, int(port)))
                except OSError:
                    # Nothing listens there. A client that learns so at once would try at once
                    # again.
                    time.sleep(0.2)
                    near.close()
                    continue
                self._ends.append((near, far))
                self._begin(self._carry, near, far, None)
                self._begin(self._carry, far, near, _Frames(self.cuts))

    def _carry(self, source: socket.socket, sink: socket.socket, frames: _Frames | None) -> None:
        cut = ""
        while not cut and (data := _received(source)):
            self._flows.wait()
            if frames is not None:
                count, cut = frames.passing(data)
                while len(data) < count and (more := _received(source)):
                    data += more
                data = data[:count]
            # Goes on when nobody takes the bytes: the end of a master's bytes shows that it has
            # closed the connection.
            with suppress(OSError):
                sink.sendall(data)
        if cut:
            self.been_cut.append(cut)
            _end(source)
        _end(sink, socket.SHUT_RDWR if cut else socket.SHUT_WR)


def _received(source: socket.socket) -> bytes:
    """The next bytes of a connection; empty at its end."""
    with suppress(OSError):
        return source.recv(_READ_SIZE)
    return b""


def _end(one: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    with suppress(OSError):
        one.shutdown(how)
