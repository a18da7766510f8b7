"""TLS of a server: its context, and the count of handshakes under way."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.serve.errors import TlsUnusable

if TYPE_CHECKING:
    import ssl


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """The context of TLS 1.2 and later, which clients of 4.9.3 on a current Java speak.

    :raises TlsUnusable: certificate or key cannot be used.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2

    def no_password() -> str:
        raise TlsUnusable(path=str(key), reason="the key has a password")

    try:
        context.load_cert_chain(certificate, key, no_password)
    except ssl.SSLError as error:
        reason = f"no certificate with the key of {key}: {error.reason or error}"
        raise TlsUnusable(path=str(certificate), reason=reason) from None
    except OSError as error:
        missing = key if certificate.exists() else certificate
        raise TlsUnusable(path=str(missing), reason=error.strerror or str(error)) from None
    return context


class Handshakes:
    """Counts the connections that are in the handshake of TLS: asyncio tells of a connection only
    at its end. A handshake that fails is counted for the longest time that one may take.

    :param longest: milliseconds that a handshake may take.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._begun: deque[int] = deque()

    def count(self, now: int) -> int:
        while self._begun and now - self._begun[0] > self._longest:
            self._begun.popleft()
        return len(self._begun)

    def begin(self, now: int) -> None:
        self._begun.append(now)

    def end(self) -> None:
        """Some handshake has ended. The oldest is taken for it: all take about the same time."""
        if self._begun:
            self._begun.popleft()
