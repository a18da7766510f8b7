"""The port for Prometheus, with as much of HTTP as that needs."""

from __future__ import annotations

import asyncio

from rmqctl.errors import RmqctlError
from rmqctl.serve.listening import named
from rmqctl.serve.metrics import numbers_of, text_of
from rmqctl.serve.sockets import Server, address_text

#: Seconds that a peer may take for its request and to read the answer, and bytes of the request.
_SECONDS, _MOST_BYTES = 5.0, 8192
#: Most requests at a time; others are closed at once.
_MOST_AT_ONCE = 16
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Scraped:
    """Answers Prometheus about a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._under_way = 0
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> str:
        """Accepts requests from now on; returns the address. :raises CannotListen: the system
        refuses."""
        with named(host, port, "--metrics-port"):
            self._listener = await asyncio.start_server(self._serve, host, port, limit=_MOST_BYTES)
        return address_text(self._listener.sockets[0].getsockname())

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._under_way += 1
        # So that `drain` waits until all of the page is sent, or until the time is over.
        writer.transport.set_write_buffer_limits(0)
        is_taken = False
        try:
            async with asyncio.timeout(_SECONDS):
                if self._under_way <= _MOST_AT_ONCE:
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await self._answer(head))
                    await writer.drain()
                is_taken = True
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # The peer has gone, or has never sent a request.
        except asyncio.CancelledError:
            pass  # The server stops. Raised on, asyncio would print it as an error of the stream.
        finally:
            self._under_way -= 1
            if is_taken:
                writer.close()
            else:
                writer.transport.abort()

    async def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD") or path != b"/metrics":
            return _response("404 Not Found", "text/plain", "ask for /metrics\n")
        numbers = numbers_of(self._server.broker, self._server.count, self._server.connections)
        store = self._server.broker.served.store
        try:
            text = await asyncio.to_thread(text_of, numbers, store)
        except (RmqctlError, OSError) as error:
            self._server.trouble(f"metrics: {error}")
            return _response("503 Service Unavailable", "text/plain", "the store cannot tell\n")
        return _response("200 OK", _TEXT, text if method == b"GET" else "")


def _response(status: str, kind: str, text: str) -> bytes:
    body = text.encode("utf-8", "replace")
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body
