"""Heartbeats, and the members of groups (``ClientManageProcessor``,
``ConsumerManageProcessor``)."""

from __future__ import annotations

from typing import Any

from formats.constants import RETRY_GROUP_TOPIC_PREFIX
from formats.remotingcodes import ResponseCode
from rmqctl.errors import FilterSyntaxError
from rmqctl.serve.processors.request import Request, Served
from rmqctl.serve.state.clients import MAX_GROUPS, ConsumerData, Member
from rmqctl.serve.state.subscription import Subscription, decode_subscription
from rmqctl.serve.wire.bodies import decode_body, encode_body, objects, text_in
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.fields import BadRequest, checked_group


def heart_beat(served: Served, request: Request) -> RemotingCommand:
    """``heartBeat``: the whole request is understood before any part of it takes effect."""
    body = decode_body(request.command.body)
    consumers = [_consumer(served, one) for one in objects(body, "consumerDataSet")]
    producers = [_group(served, one) for one in objects(body, "producerDataSet")]
    if served.clients.groups_of(request.channel) + len(consumers) + len(producers) > 2 * MAX_GROUPS:
        raise BadRequest(f"one connection is of more than {MAX_GROUPS} groups")
    command = request.command
    member = Member(
        request.channel,
        text_in(body, "clientID")[:255],
        command.language,
        command.version,
        request.now,
    )
    for consumer in consumers:
        config = served.groups.known(consumer.group)
        if config is not None:
            served.topics.enter(RETRY_GROUP_TOPIC_PREFIX + consumer.group, config.retry_queue_nums)
        if served.clients.register_consumer(consumer, member):
            _notify(served, consumer.group)
    for producer in producers:
        served.clients.register_producer(producer, member)
    return command.answer(ResponseCode.SUCCESS)


def unregister_client(served: Served, request: Request) -> RemotingCommand:
    """``unregisterClient``: leaves one group; the other groups of the connection stay."""
    producer = request.fields.find_group("producerGroup", served.groups)
    if producer is not None:
        request.fields.text("clientID")
        served.clients.unregister_producer(producer, request.channel)
    consumer = request.fields.find_group("consumerGroup", served.groups)
    if consumer is not None and served.clients.unregister_consumer(consumer, request.channel):
        _notify(served, consumer)
    return request.command.answer(ResponseCode.SUCCESS)


def _notify(served: Served, group: str) -> None:
    """Tells the members of a group of a change, unless the group's settings forbid it. A group that
    the broker does not know, and whose pulls it refuses, is told as well."""
    config = served.groups.known(group)
    if config is None or config.notify_consumer_ids_changed_enable:
        served.notify_members(group)


def check_client(served: Served, request: Request) -> RemotingCommand:
    """``checkClientConfig``, which a consumer with an SQL92 filter sends at its start. A broker
    refuses such consumers unless ``enablePropertyFilter`` is on; here they are always served."""
    body = decode_body(request.command.body)
    subscription = body.get("subscriptionData")
    if isinstance(subscription, dict):
        try:
            decode_subscription(subscription, served.topics).message_filter()
        except FilterSyntaxError as error:
            code = ResponseCode.SUBSCRIPTION_PARSE_FAILED
            return request.command.answer(code, str(error))
    return request.command.answer(ResponseCode.SUCCESS)


def get_consumer_list(served: Served, request: Request) -> RemotingCommand:
    """``getConsumerListByGroup``. A group without members is answered with an error, which is what
    a client takes an empty list for anyway."""
    name = request.fields.group("consumerGroup", served.groups)
    group = served.clients.consumers.get(name)
    if group is None:
        remark = f"no consumer for this group, {name}"
        return request.command.answer(ResponseCode.SYSTEM_ERROR, remark)
    body = encode_body({"consumerIdList": group.client_ids})
    return request.command.answer(ResponseCode.SUCCESS, body=body)


def _group(served: Served, value: dict[str, Any]) -> str:
    return checked_group("groupName", text_in(value, "groupName"), served.groups)


def _consumer(served: Served, value: dict[str, Any]) -> ConsumerData:
    subscriptions: tuple[Subscription, ...] = tuple(
        decode_subscription(one, served.topics) for one in objects(value, "subscriptionDataSet")
    )
    return ConsumerData(
        _group(served, value),
        _word(value, "consumeType"),
        _word(value, "messageModel"),
        _word(value, "consumeFromWhere"),
        subscriptions,
    )


def _word(value: dict[str, Any], name: str) -> str:
    """The name of an enum's value; empty where the value is no text."""
    found = value.get(name)
    return found[:64] if isinstance(found, str) else ""
