"""Events: what a :class:`~rmqctl.serve.broker.Broker` wants done by its caller, who has sockets and
threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, cast

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
    "joined",
]

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import WritableStore


class Send(NamedTuple):
    """Bytes for a connection."""

    channel: int
    data: bytes


class Close(NamedTuple):
    """A connection that is to be closed when its answers are sent."""

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
    """Whether to go on reading from a connection."""

    channel: int
    goes_on: bool


class Accessed(NamedTuple):
    """A request that was answered, for an access log: at ``timestamp`` (ms since the epoch), after
    so many milliseconds. ``answer_code`` is None where the connection was closed instead."""

    timestamp: int
    peer: str
    command: RemotingCommand
    answer_code: int | None
    sent_bytes: int
    milliseconds: int


class Trouble(NamedTuple):
    """Something that the operator should know. Of a ``cause`` that many requests meet not each one
    is told; without it the text itself is the cause."""

    text: str
    cause: str = ""


class Upkeep(NamedTuple):
    """Work that a broker does by itself, and that writes: ``work`` is for the writer, and returns
    what it has stored and what is to be told. This, or the exception that it raised, goes to
    :meth:`Broker.upkept`."""

    name: str
    work: Callable[[WritableStore], Upkept]


Event = Send | Close | Job | Append | Persist | Upkeep | Reading | Trouble | Accessed

#: Bytes of answers that are sent together; a longer one goes alone.
_MOST_JOINED = 64 << 10


def joined(events: list[Event]) -> list[Event]:
    """The events, with answers to the same connection that follow each other joined, unless they
    are long. So a peer that has sent many requests at once is woken once."""
    found: list[Event] = []
    for channel, run in groupby(events, _told):
        if channel is None:
            found += run
            continue
        pieces: list[bytes] = []
        size = 0
        for event in cast("Iterator[Send]", run):
            if pieces and size + len(event.data) > _MOST_JOINED:
                found.append(Send(channel, b"".join(pieces)))
                pieces, size = [], 0
            pieces.append(event.data)
            size += len(event.data)
        found.append(Send(channel, b"".join(pieces)))
    return found


def _told(event: Event) -> int | None:
    """The connection that gets bytes; None: it is another event."""
    return event.channel if isinstance(event, Send) else None
