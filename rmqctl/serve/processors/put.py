"""How messages get into the store: one writer, which takes what is there and flushes once for all
of it (RocketMQ's put lock and ``GroupCommitService`` in one)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.engine.record.message import MessageExtBrokerInner, PutMessageResult
from rmqctl.errors import RmqctlError

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import WritableStore
    from rmqctl.serve.processors.request import Outcome


class Put(NamedTuple):
    """Messages to be stored, or one batch of them. ``then`` makes the answer of their results, of
    which a batch has one."""

    messages: list[MessageExtBrokerInner]
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
    answers: list[PutAnswer] = []
    # Batches are put one by one, messages together.
    runs = groupby(enumerate(puts), lambda one: one[0] if one[1].is_batch else -1)
    for _, run in runs:
        answers += _append(store, [put for _, put in run])
    stored = [one for answer in answers if isinstance(answer, list) for one in answer if one.stored]
    if stored:
        try:
            store.flush_structures(("commitlog",))
        except (RmqctlError, OSError) as error:
            return [error] * len(puts)
    return answers


def _append(store: WritableStore, puts: list[Put]) -> list[PutAnswer]:
    """Appends without a flush; a batch, or any number of other messages."""
    try:
        if puts[0].is_batch:
            return [[store.put_batch(puts[0].messages, flush=False)]]
        messages = [message for put in puts for message in put.messages]
        results = iter(store.put_messages(messages, flush=False))
    except (RmqctlError, OSError) as error:
        return [error] * len(puts)
    return [[next(results) for _ in put.messages] for put in puts]
