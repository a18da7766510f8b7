"""What a :class:`~rmqctl.serve.broker.Broker` wants done by whoever has sockets and threads."""

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

#: Bytes of answers that are sent together; a longer one goes alone.
_MOST_JOINED = 64 << 10


def joined(events: list[Event]) -> list[Event]:
    """The events, in which answers for one connection that follow each other are one, unless they
    are long: a peer that has asked much at once is woken once, and takes them together."""
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
