"""What a :class:`~rmqctl.serve.broker.Broker` wants done by whoever has sockets and threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.serve.processors.put import Put, Upkept
from rmqctl.serve.processors.request import Outcome, Request
from rmqctl.serve.wire.command import RemotingCommand

__all__ = [
    "Accessed",
    "Append",
    "Close",
    "Event",
    "Job",
    "Persist",
    "Reading",
    "Send",
    "Trouble",
    "Upkeep",
    "Upkept",
]

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import WritableStore


class Send(NamedTuple):
    """Bytes for a connection."""

    channel: int
    data: bytes


class Close(NamedTuple):
    """A connection to be closed once what was sent before is out."""

    channel: int
    reason: str


class Job(NamedTuple):
    """A look at the store. ``work`` may run in any thread; its result, or the exception that it
    raised, goes to :meth:`Broker.finished`. ``is_brief`` is as of
    :class:`~rmqctl.serve.processors.request.Later`."""

    request: Request
    work: Callable[[], Any]
    then: Callable[[Any, int], Outcome]
    is_brief: bool = False


class Append(NamedTuple):
    """Messages to be stored, in the order of these events; the answer of
    :func:`~rmqctl.serve.processors.put.append_all` goes to :meth:`Broker.finished`."""

    request: Request
    put: Put


class Persist(NamedTuple):
    """The text of a file of ``config/``; :meth:`Broker.not_persisted` when it cannot be written."""

    name: str
    text: str


class Reading(NamedTuple):
    """Whether more is to be read of a connection for now."""

    channel: int
    goes_on: bool


class Accessed(NamedTuple):
    """A request that was answered, for who keeps a log of them: at ``timestamp`` (ms since the
    epoch), after so many milliseconds; ``answer_code`` is None where the connection was closed
    instead."""

    timestamp: int
    peer: str
    command: RemotingCommand
    answer_code: int | None
    sent_bytes: int
    milliseconds: int


class Trouble(NamedTuple):
    """Something that whoever runs the server should know."""

    text: str


class Upkeep(NamedTuple):
    """What a broker does by itself, as the one that writes: ``work`` is for the thread that does,
    and gives the results of what it has stored and what else there is to tell. It, or the exception
    that was raised, goes to :meth:`Broker.upkept`."""

    name: str
    work: Callable[[WritableStore], Upkept]


Event = Send | Close | Job | Append | Persist | Upkeep | Reading | Trouble | Accessed
