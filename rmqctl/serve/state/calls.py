"""Requests of the server to its clients that wait for an answer (``Broker2Client#callClient``)."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

#: Of one client at a time. It is asked when somebody else wants to know, who could ask a million
#: times of a client that does not answer.
MAX_CALLS = 64


class Pending(NamedTuple, Generic[T]):
    """A call of a client, given up at ``deadline`` (ms)."""

    channel: int
    opaque: int
    deadline: int
    call: T


class Calls(Generic[T]):
    """All that wait."""

    def __init__(self) -> None:
        self._channels: dict[int, dict[int, Pending[T]]] = {}

    def add(self, one: Pending[T]) -> bool:
        """Whether there was room for it."""
        waiting = self._channels.setdefault(one.channel, {})
        if len(waiting) >= MAX_CALLS:
            return False
        waiting[one.opaque] = one
        return True

    def answered(self, channel: int, opaque: int) -> Pending[T] | None:
        """Takes out the call that a client answers; None: nobody waits for that."""
        waiting = self._channels.get(channel, {})
        found = waiting.pop(opaque, None)
        if not waiting:
            self._channels.pop(channel, None)
        return found

    def lost(self, channel: int) -> list[Pending[T]]:
        """Takes out those of a client that has gone."""
        return list(self._channels.pop(channel, {}).values())

    def due(self, now: int) -> list[Pending[T]]:
        """Takes out those whose time is over."""
        everything = [one for calls in self._channels.values() for one in calls.values()]
        over = [one for one in everything if one.deadline <= now]
        for one in over:
            self.answered(one.channel, one.opaque)
        return over
