"""Questions to the broker whose store is copied, over a connection of their own."""

from __future__ import annotations

import socket
import time
from typing import NamedTuple, TypeVar

from rmqctl.replicate import questions
from rmqctl.replicate.credentials import Credentials
from rmqctl.replicate.errors import MasterRefused, MasterUnreachable
from rmqctl.replicate.questions import Dialogue
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.frames import FrameReader, encode_frame
from rmqctl.serve.wire.header import FrameError

T = TypeVar("T")

#: Seconds for a connection, and for an answer.
CONNECT_SECONDS = _ANSWER_SECONDS = 5.0
#: Seconds that a broker gets after its start to answer, and seconds between two tries then.
_START_SECONDS, _START_WAIT = 10.0, 0.1
READ_SIZE = 1 << 18


class Target(NamedTuple):
    """Host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Asker:
    """A remoting connection to the broker, for one thread. It is made when it is needed.

    :param credentials: the account that signs requests, for a broker with ACL.
    """

    def __init__(self, target: Target, credentials: Credentials | None = None) -> None:
        self._target = target
        self._credentials = credentials
        self._socket: socket.socket | None = None
        self._reader = FrameReader()
        self._opaque = 0

    def run(self, dialogue: Dialogue[T]) -> T:
        """Runs a dialogue. :raises MasterUnreachable, MasterRefused: it does not come to its
        end."""
        try:
            return questions.run(dialogue, self._ask)
        except OSError as error:
            self.close()
            reason = error.strerror or str(error) or type(error).__name__
            raise MasterUnreachable(address=str(self._target), reason=reason) from error
        except FrameError as error:
            self.close()
            raise MasterRefused(address=str(self._target), reason=str(error)) from error

    def _ask(self, request: RemotingCommand) -> RemotingCommand:
        end = time.monotonic() + _START_SECONDS
        while True:
            answer = self._ask_once(request)
            if not questions.is_starting(request, answer) or time.monotonic() > end:
                return answer
            time.sleep(_START_WAIT)

    def _ask_once(self, request: RemotingCommand) -> RemotingCommand:
        if self._socket is None:
            self._socket = socket.create_connection(self._target, CONNECT_SECONDS)
            self._reader = FrameReader()
        self._opaque += 1
        self._socket.settimeout(_ANSWER_SECONDS)
        numbered = RemotingCommand(
            request.code, self._opaque, ext_fields=request.ext_fields, body=request.body
        )
        if self._credentials is not None:
            numbered = self._credentials.signed(numbered)
        self._socket.sendall(encode_frame(numbered))
        end = time.monotonic() + _ANSWER_SECONDS
        while time.monotonic() < end:
            data = self._socket.recv(READ_SIZE)
            if not data:
                raise OSError(0, "the broker has closed the connection")
            for answer in list(self._reader.feed(data)):
                if answer.is_response and answer.opaque == self._opaque:
                    return answer
        raise TimeoutError(0, "no answer has come in time")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
