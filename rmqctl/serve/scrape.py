"""The port at which Prometheus asks: enough of HTTP for that, and no more."""

from __future__ import annotations

import asyncio

from rmqctl.errors import RmqctlError
from rmqctl.serve.listening import named
from rmqctl.serve.metrics import numbers_of, text_of
from rmqctl.serve.sockets import Server, address_text

#: So long a peer may take to ask, and as much it may say.
_SECONDS, _MOST_BYTES = 5.0, 8192
#: Others are turned away: whoever asks at the same time asks too often.
_MOST_AT_ONCE = 16
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Scraped:
    """A server as Prometheus sees it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._under_way = 0
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> str:
        """Answers from now on; gives the address. :raises CannotListen: the system refuses."""
        with named(host, port, "--metrics-port"):
            self._listener = await asyncio.start_server(self._serve, host, port, limit=_MOST_BYTES)
        return address_text(self._listener.sockets[0].getsockname())

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._under_way += 1
        # What is left of a page when its time is over is nobody's: it is not to wait for a peer.
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
            pass  # Nobody is there any more, or never asked.
        except asyncio.CancelledError:
            pass  # The server stops. A task of asyncio's streams that ends so is told as a fault.
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
