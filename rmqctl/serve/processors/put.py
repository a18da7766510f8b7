"""How messages get into the store: one writer, which takes what is there and flushes once for all
of it (RocketMQ's put lock and ``GroupCommitService`` in one)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.engine.record.message import PutMessageResult
from rmqctl.engine.write.bulk import Message, full
from rmqctl.errors import RmqctlError

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import WritableStore
    from rmqctl.serve.processors.request import Outcome


class Put(NamedTuple):
    """Messages to be stored, or one batch of them. ``then`` makes the answer of their results, of
    which a batch has one."""

    messages: Sequence[Message]
    is_batch: bool
    then: Callable[[list[PutMessageResult], int], Outcome]


class Upkept(NamedTuple):
    """What came of that: ``troubles`` are sentences for whoever runs the server, ``then`` is to be
    done where the broker is."""

    stored: list[PutMessageResult]
    troubles: list[str]
    then: Callable[[], None] = lambda: None


PutAnswer = list[PutMessageResult] | Exception


def append_all(store: WritableStore, puts: Sequence[Put]) -> list[PutAnswer]:
    """Stores puts in their order, and has all of them on disk before it returns: the results of
    each, or the error of the store or the system that kept it from being stored. For the thread
    that writes."""
    answers = [_append(store, put) for put in puts]
    stored = [one for answer in answers if isinstance(answer, list) for one in answer if one.stored]
    if stored:
        try:
            store.flush_log()
        except (RmqctlError, OSError) as error:
            return [error] * len(puts)
    return answers


def _append(store: WritableStore, put: Put) -> PutAnswer:
    """Appends without a flush."""
    try:
        if put.is_batch:
            return [store.put_batch(put.messages, flush=False)]
        return [store.put_message(one, flush=False) for one in full(put.messages)]
    except (RmqctlError, OSError) as error:
        return error
