"""The answers of a name server that knows one cluster with one broker, this one
(``DefaultRequestProcessor`` of the name server)."""

from __future__ import annotations

from typing import Any

from formats.remotingcodes import VERSION_QUOTES_KEYS, ResponseCode
from rmqctl.serve.processors.request import Request, Served
from rmqctl.serve.wire.bodies import encode_body
from rmqctl.serve.wire.command import RemotingCommand


def get_route(served: Served, request: Request) -> RemotingCommand:
    """``getRouteInfoByTopic``. The values and their order change only with the topic, for clients
    log every change."""
    name = request.fields.text("topic")
    topic = served.topics.find_registered(name)
    if topic is None:
        remark = f"No topic route info in name server for the topic: {name[:127]}"
        return request.command.answer(ResponseCode.TOPIC_NOT_EXIST, remark)
    queues = {
        "brokerName": served.names.broker,
        "perm": topic.perm,
        "readQueueNums": topic.read_queue_nums,
        "topicSysFlag": topic.topic_sys_flag,
        "writeQueueNums": topic.write_queue_nums,
    }
    route = {
        "brokerDatas": [_broker(served, request)],
        "filterServerTable": {},
        "queueDatas": [queues],
    }
    body = encode_body(route, quotes_numbers=_quotes_numbers(request))
    return request.command.answer(ResponseCode.SUCCESS, body=body)


def get_cluster(served: Served, request: Request) -> RemotingCommand:
    """``getBrokerClusterInfo``."""
    broker, cluster = served.names.broker, served.names.cluster
    info = {
        "brokerAddrTable": {broker: _broker(served, request)},
        "clusterAddrTable": {cluster: [broker]},
    }
    body = encode_body(info, quotes_numbers=_quotes_numbers(request))
    return request.command.answer(ResponseCode.SUCCESS, body=body)


def get_all_topics(served: Served, request: Request) -> RemotingCommand:
    """``getAllTopicListFromNameserver``."""
    names = [topic.name for topic in served.topics]
    return request.command.answer(ResponseCode.SUCCESS, body=encode_body({"topicList": names}))


def _broker(served: Served, request: Request) -> dict[str, Any]:
    """``BrokerData``. Id 0 is the master's; producers pass over a broker without a master."""
    address = served.address_for(request.channel)
    return {
        "brokerAddrs": {0: address},
        "brokerName": served.names.broker,
        "cluster": served.names.cluster,
    }


def _quotes_numbers(request: Request) -> bool:
    is_asked_for = request.fields.boolean("acceptStandardJsonOnly")
    return is_asked_for or request.command.version >= VERSION_QUOTES_KEYS
