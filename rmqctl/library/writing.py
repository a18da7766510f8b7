"""The puts of a :class:`~rmqctl.library.store.Store`. The module is loaded with the first one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rmqctl.engine.messagestore import WritableStore
from rmqctl.engine.record.fields import NotAMessage, is_other_row
from rmqctl.engine.write.bulk import Message as ToPut
from rmqctl.errors import NotWritable, PutRefused, UsageError
from rmqctl.library.message import Message
from rmqctl.operations.change.messagefields import message_from_fields
from rmqctl.operations.change.messagemaker import MessageMaker

if TYPE_CHECKING:
    from rmqctl.engine.record.message import PutMessageResult
    from rmqctl.library.store import Store


def writable_engine(store: Store) -> WritableStore:
    """:raises NotWritable: the store is open for reading. :raises ValueError: it is closed."""
    engine = store.engine
    if not isinstance(engine, WritableStore):
        raise NotWritable(path=str(store.path))
    return engine


def put_one(store: Store, fields: dict[str, Any], body: bytes) -> Message:
    """:meth:`Store.put` of checked arguments."""
    engine = writable_engine(store)
    message = replace(message_from_fields(fields), body=body)
    result = engine.put_message(message)
    if not result.is_ok or result.stored is None:
        raise _refused(replace(result, topic=result.topic or message.topic), 0, result.is_logged)
    return Message(store, engine.look_message_by_offset(result.stored.wrote_offset))


def put_all(
    store: Store,
    messages: Iterable[Message | Mapping[str, Any]],
    *,
    ignore_body_crc: bool,
    ignore_unknown: bool,
) -> int:
    """:meth:`Store.put_all`."""
    engine = writable_engine(store)
    maker = MessageMaker(ignore_body_crc=ignore_body_crc, ignore_unknown=ignore_unknown)
    stored = 0
    try:
        for bulk in engine.append_stream(_made(messages, maker)):
            stored += len(bulk.stored)
            if bulk.refused is not None:
                raise _refused(bulk.refused, stored, bulk.logged)
    except NotAMessage as error:
        option = f"; {error.ignored_by}=True takes it" if error.ignored_by else ""
        raise UsageError(reason=f"{error}{option}. {stored} before it are stored.") from None
    return stored


def _made(messages: Iterable[Message | Mapping[str, Any]], maker: MessageMaker) -> Iterator[ToPut]:
    for message in messages:
        given = message.to_dict() if isinstance(message, Message) else message
        fields = dict(given)
        if not is_other_row(fields, ignore_unknown=maker.ignore_unknown):
            yield maker.make(fields)


def _refused(result: PutMessageResult, stored: int, logged: int) -> PutRefused:
    """The error of a refused message. ``logged``: so many, from that one on, are in the log."""
    then = f"go on with {'the next' if logged else 'this'} message"
    return PutRefused(
        topic=result.topic,
        status=result.status.value,
        why=f" ({result.reason})" if result.reason else "",
        stored=stored,
        in_log=stored + logged,
        then=then if logged < 2 else f"go on behind these {logged}",
    )
