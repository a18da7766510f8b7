"""A producer ends its half message (``EndTransactionProcessor``)."""

from __future__ import annotations

from formats import constants
from formats.remotingcodes import ResponseCode
from rmqctl.engine.record.message import PutMessageResult
from rmqctl.engine.record.record import Record
from rmqctl.engine.services.transaction import (
    commit_message,
    commit_problem,
    half_problem,
    op_message,
)
from rmqctl.serve.processors.access import may
from rmqctl.serve.processors.look import record_with_body
from rmqctl.serve.processors.put import Put
from rmqctl.serve.processors.request import Later, Outcome, Request, Served
from rmqctl.serve.state.accounts import Perm
from rmqctl.serve.wire.fields import BadRequest, Fields


def end_transaction(served: Served, request: Request) -> Outcome:
    """A commit stores the message for its consumers, and then the op message that ends the half; a
    rollback stores only the op message. A producer sends this one-way, and waits for no answer.

    Between the two messages of a commit the op message is owed (``Served.owed_ops``), also where
    the disk has no room for it: a second commit stores only that. A broker asks the producer again
    then, and stores the message a second time.
    """
    fields, command = request.fields, request.command
    kind = fields.int32("commitOrRollback")
    if kind == constants.TRANSACTION_NOT_TYPE:
        return None  # The producer does not know the outcome yet. A broker asks it again later.
    commits = kind == constants.TRANSACTION_COMMIT_TYPE
    if not commits and kind != constants.TRANSACTION_ROLLBACK_TYPE:
        raise BadRequest(f"commitOrRollback field wrong: {kind}")
    fields.text("producerGroup")
    offset = fields.int64("commitLogOffset")
    fields.int64("tranStateTableOffset")

    def then(found: tuple[Record, bytes] | None, now: int) -> Outcome:
        problem = "Find prepared transaction message failed"
        if found is not None:
            problem = _problem(found[0], fields, commits)
            topic = found[0].properties.get(constants.PROPERTY_REAL_TOPIC, "")
            if not problem and not may(served, request, topic, Perm.PUB):
                # Offsets can be guessed, and a rollback by an outsider loses somebody's message.
                problem = f"No permission PUB for topic {topic[:127]}"
        if found is None or problem:
            return command.answer(ResponseCode.SYSTEM_ERROR, problem)
        half, body = found
        owed = served.owed_ops.get(half.queue_offset)
        if owed is not None and not commits:
            return command.answer(ResponseCode.SYSTEM_ERROR, "The transaction is committed already")

        def ended(results: list[PutMessageResult], now: int) -> Outcome:
            if results[0].is_logged:
                served.owed_ops.pop(half.queue_offset, None)
            return answer(results)

        op = owed or op_message(half, served.now())
        if owed is not None or not commits:
            return Put([op], False, ended)

        def committed(results: list[PutMessageResult], now: int) -> Outcome:
            if not results[0].is_logged:
                return answer(results)
            served.owed_ops[half.queue_offset] = op
            return Put([op], False, ended)

        final = commit_message(half, body)
        served.save_topic(final)
        return Put([final], False, committed)

    def answer(results: list[PutMessageResult]) -> Outcome:
        if results[0].is_logged:
            return command.answer(ResponseCode.SUCCESS)
        return command.answer(ResponseCode.SYSTEM_ERROR, results[0].status.value)

    return Later(lambda: record_with_body(served.store, offset), then)


def _problem(half: Record, fields: Fields, commits: bool) -> str:
    """Why a half is not the one that the producer means, or cannot be ended
    (``checkPrepareMessage``); empty where it can be ended."""
    problem = half_problem(half) or (commit_problem(half) if commits else None)
    if problem is not None:
        return problem
    if half.properties[constants.PROPERTY_PRODUCER_GROUP] != fields.text("producerGroup"):
        return "The producer group wrong"
    if half.queue_offset != fields.int64("tranStateTableOffset"):
        return "The transaction state table offset wrong"
    return ""
