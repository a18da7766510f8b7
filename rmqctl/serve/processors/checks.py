"""Asks producers about half messages that they have not ended
(``TransactionalMessageServiceImpl#check``).

As by a broker, a half about which a producer is asked is put back at the end of its queue. So is a
half within its immunity time, so that those behind it are looked at.

One rule differs. A broker counts each check of a half, also one without a connected producer or
before its time. It gives the half up after fifteen minutes without its producer, and at once when
it is older than ``fileReservedTime``. Here a check counts only if a producer was asked, for the
store may have been without its producers for days.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from formats import constants
from formats.remotingcodes import RequestCode
from formats.text import encode_properties
from rmqctl.engine.record.message import EncodedMessage, MessageExtBrokerInner, PutMessageResult
from rmqctl.engine.record.record import Record
from rmqctl.engine.services import transaction
from rmqctl.engine.services.remade import check_remade, put_remade
from rmqctl.serve.processors.put import Upkept
from rmqctl.serve.processors.request import Served

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import WritableStore

#: ``transactionCheckInterval``, in milliseconds.
CHECK_INTERVAL = 60_000
#: How many halves one round checks; a broker limits a round to a minute.
_MOST = 1000
#: ``TopicValidator.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC``.
_GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"


class _Asked(NamedTuple):
    """A half that was put back, with the question for its producer."""

    group: str
    fields: dict[str, object]
    body: bytes


class _Half(NamedTuple):
    queue_offset: int
    record: Record
    group: str
    #: Whether the half itself says how long it is not to be asked about.
    is_early: bool


class Checks:
    """The checks of one server. Halves are in queue 0, where 4.9.3 stores them."""

    name = "transactions"

    def __init__(self, served: Served) -> None:
        self._served = served
        self._checked = 0
        self._turns = 0

    def is_due(self, now: int) -> bool:
        """Whether it is time for a round. If so, the round counts as begun. The first round waits
        one interval, so that producers can connect."""
        if not self._checked:
            self._checked = now
        served = self._served
        if now - self._checked < CHECK_INTERVAL or not (
            served.clients.producers or served.owed_ops
        ):
            return False
        self._checked = now
        return True

    def round(self) -> _Round:
        """The next round, over the halves as they are now."""
        find = self._served.offsets.find
        offsets = (
            find(topic, transaction.CHECK_GROUP, 0) or 0
            for topic in (transaction.HALF_TOPIC, transaction.OP_TOPIC)
        )
        served = self._served
        present = frozenset(served.clients.producers)
        return _Round(self, present, dict(served.owed_ops), *offsets)

    def settle(
        self, progress: transaction.CheckProgress, asked: list[_Asked], paid: list[int]
    ) -> None:
        """Notes how far a round has come and which op messages are owed no more, and asks the
        producers."""
        served = self._served
        for half in paid:
            served.owed_ops.pop(half, None)
        for topic, offset in zip(
            (transaction.HALF_TOPIC, transaction.OP_TOPIC), progress, strict=True
        ):
            if offset:
                served.offsets.commit(topic, transaction.CHECK_GROUP, 0, offset)
        for one in asked:
            members = list(served.clients.producers.get(one.group, {}).values())
            if members:
                self._turns += 1
                channel = members[self._turns % len(members)].channel
                code = RequestCode.CHECK_TRANSACTION_STATE
                served.send(channel, code, one.fields, one.body)


class _Round:
    """One round over the halves, run by the thread that writes."""

    def __init__(
        self,
        checks: Checks,
        present: frozenset[str],
        owed: dict[int, MessageExtBrokerInner],
        half: int,
        op: int,
    ) -> None:
        self._checks = checks
        self._present = present
        self._owed = owed
        self._start = transaction.CheckProgress(half, op)

    def __call__(self, store: WritableStore) -> Upkept:
        """:raises CannotWrite: the disk failed."""
        now = store.clock()
        kept = Upkept([], [])
        paid = self._pay(store, kept)
        ops = list(transaction.op_messages(store, 0, self._start.op))
        ended = {half for one in ops for half in one.ends}.union(self._owed)
        pending = list(_pending(store, self._start.half, ended, now))
        present = [n for n, one in enumerate(pending) if self._is_asked(one)]
        # Halves behind the last one whose producer can be asked stay where they are.
        asked: list[_Asked] = []
        passed = pending[present[-1]].queue_offset + 1 if present else self._start.half
        for one in pending[: present[-1] + 1 if present else 0]:
            result, question = self._renew(store, one)
            if not result.is_logged:
                kept.troubles.append(f"a half message is not put back: {result.status.value}")
                passed = one.queue_offset
                break
            kept.stored.append(result)
            asked += [question] if question is not None else []
        if kept.stored:
            store.flush_log()
        # The progress also passes ended halves in front of the first one that is not.
        first = next((one.queue_offset for one in pending if one.queue_offset >= passed), None)
        while passed in ended and (first is None or passed < first):
            passed += 1
        done = takewhile(lambda one: all(half < passed for half in one.ends), ops)
        op = max((one.record.queue_offset + 1 for one in done), default=self._start.op)
        progress = transaction.CheckProgress(max(passed, self._start.half), op)
        return kept._replace(then=lambda: self._checks.settle(progress, asked, paid))

    def _pay(self, store: WritableStore, kept: Upkept) -> list[int]:
        """Stores op messages that are owed; returns the halves that these end. One that may be on
        its way already is stored twice, which does no harm."""
        paid = []
        for half, op in self._owed.items():
            result = store.put_message(op, flush=False)
            if not result.is_logged:
                kept.troubles.append(f"an op message is not put: {result.status.value}")
                break
            kept.stored.append(result)
            paid.append(half)
        return paid

    def _is_asked(self, half: _Half) -> bool:
        return half.group in self._present and not half.is_early

    def _renew(self, store: WritableStore, half: _Half) -> tuple[PutMessageResult, _Asked | None]:
        """Puts a half back, or gives it up. Returns the question for its producer, if any."""
        record = half.record
        properties, body = record.properties, store.body(record)
        times = transaction.check_times(properties)
        if half.is_early:
            # By it an op message that names the first one is known (checkPrepareQueueOffset).
            name = transaction.PROPERTY_ORIGINAL_QUEUE_OFFSET
            properties.setdefault(name, str(half.queue_offset))
        if not self._is_asked(half):
            return put_remade(store, _again(record, body, properties)), None
        if times >= store.config.transaction_check_max:
            given_up = replace(
                _again(record, body, properties),
                topic=_GIVEN_UP_TOPIC,
                flag=record.flag,
                reconsume_times=record.reconsume_times,
            )
            return put_remade(store, given_up), None
        properties[transaction.PROPERTY_CHECK_TIMES] = str(times + 1)
        message = _again(record, body, properties)
        result = put_remade(store, message)
        return result, _question(store, message, half, result)


def _pending(store: WritableStore, start: int, ended: set[int], now: int) -> Iterator[_Half]:
    """The halves that nobody has ended, up to the first that is too young to be asked about and
    does not itself say from when on."""
    for queue_offset, record in transaction.records_of(store, transaction.HALF_TOPIC, 0, start):
        if queue_offset in ended:
            continue
        properties = record.properties
        if transaction.original_queue_offset(properties) in ended:
            continue
        age = now - record.born_timestamp
        patience = transaction.time_out_of(properties, store.config.transaction_time_out)
        says_itself = transaction.PROPERTY_IMMUNITY_SECONDS in properties
        if record.store_timestamp >= now or (0 <= age < patience and not says_itself):
            return
        if queue_offset - start >= _MOST:
            return
        group = properties.get(constants.PROPERTY_PRODUCER_GROUP, "")
        yield _Half(queue_offset, record, group, says_itself and age < patience)


def _again(record: Record, body: bytes, properties: Mapping[str, str]) -> MessageExtBrokerInner:
    """The half as it is put once more (``renewHalfMessageInner``). A broker loses its flag then."""
    wait = {constants.PROPERTY_WAIT_STORE_MSG_OK: "false"}
    return MessageExtBrokerInner(
        record.topic,
        body,
        record.queue_id,
        0,
        record.sys_flag,
        {**properties, **wait},
        encode_properties(dict(properties)),
        record.born_timestamp,
        (record.born_address, record.born_port),
        (record.store_address, record.store_port),
    )


def _question(
    store: WritableStore, message: MessageExtBrokerInner, half: _Half, result: PutMessageResult
) -> _Asked | None:
    """The question for a producer (``sendCheckMessage``): the half as the message that it will
    become, and its present place. None where the half could not be committed."""
    stored = result.stored
    if stored is None or transaction.commit_problem(half.record) is not None:
        return None
    properties = message.properties
    real = replace(
        message,
        topic=properties[constants.PROPERTY_REAL_TOPIC],
        queue_id=int(properties[constants.PROPERTY_REAL_QUEUE_ID]),
        properties_bytes=encode_properties(properties),
    )
    encoded = check_remade(store, real)
    if not isinstance(encoded, EncodedMessage):
        return None
    unique = properties.get(constants.PROPERTY_UNIQ_KEY, "")
    fields: dict[str, object] = {
        "tranStateTableOffset": stored.queue_offset,
        "commitLogOffset": stored.wrote_offset,
        "msgId": unique,
        "transactionId": unique,
        "offsetMsgId": stored.msg_id,
    }
    body = encoded.record(stored.queue_offset, stored.wrote_offset, stored.store_timestamp)
    return _Asked(half.group, fields, body)
