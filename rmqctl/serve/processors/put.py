"""Stores messages. One writer takes all that wait and flushes once for all of them (RocketMQ's put
lock and ``GroupCommitService`` in one), or with ASYNC_FLUSH leaves that to
``FlushRealTimeService``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.engine.record.message import PutMessageResult
from rmqctl.engine.state.brokerjson import is_of_backup
from rmqctl.engine.state.persist import persist
from rmqctl.engine.write.bulk import Message, full
from rmqctl.errors import RmqctlError

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import WritableStore
    from rmqctl.serve.processors.request import Outcome


class Put(NamedTuple):
    """Messages, or one batch of messages, to be stored. ``then`` makes the answer from their
    results; a batch has one result."""

    messages: Sequence[Message]
    is_batch: bool
    then: Callable[[list[PutMessageResult], int], Outcome]


class Upkept(NamedTuple):
    """The outcome of upkeep: ``troubles`` are sentences for the operator, ``then`` is to be called
    in the broker's thread."""

    stored: list[PutMessageResult]
    troubles: list[str]
    then: Callable[[], None] = lambda: None


PutAnswer = list[PutMessageResult] | Exception


def append_all(store: WritableStore, puts: Sequence[Put]) -> list[PutAnswer]:
    """Stores puts in their order, and has all of them on disk before it returns, unless the store
    answers first. Returns for each put its results, or the error of the store or the system with
    which it failed. For the thread that writes."""
    flusher = store.writer.flusher
    try:
        # Once the disk has failed no later flush makes up for it. A producer that is told of the
        # failure sends again.
        flusher.check_log()
        answers = [_append(store, put) for put in puts]
        if any(one.stored for answer in answers if isinstance(answer, list) for one in answer):
            if flusher.answers_first:
                flusher.wakeup()
            else:
                store.flush_log()
    except (RmqctlError, OSError) as error:
        return [error] * len(puts)
    return answers


def keep(store: WritableStore, name: str, text: str, *, is_own: bool = False) -> None:
    """Writes a file of ``config/``. The messages that it speaks of are forced to disk first: else,
    after a loss of power, a group's offset could lie behind the end of its queue.

    :param is_own: this process has written the file before, so it is not looked at whether it is
        broken. The ``.bak`` of a broken file stays: it is the last good copy until the file is
        replaced.
    :raises CannotWrite, OSError: the disk failed.
    """
    if store.writer.flusher.answers_first:
        store.flush_log()
    keep_backup = not is_own and is_of_backup(store.root, name)
    persist(store.root, name, text, keep_backup=keep_backup)


def _append(store: WritableStore, put: Put) -> PutAnswer:
    """Appends without a flush."""
    try:
        if put.is_batch:
            return [store.put_batch(put.messages, flush=False)]
        return [store.put_message(one, flush=False) for one in full(put.messages)]
    except (RmqctlError, OSError) as error:
        return error
