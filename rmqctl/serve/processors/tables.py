"""The tables of topics, groups and offsets for which ``mqadmin``, the dashboard and slaves ask a
broker and a name server (``AdminBrokerProcessor``)."""

from __future__ import annotations

from typing import Any

from formats.remotingcodes import ResponseCode
from rmqctl.engine.settings.properties import properties_text
from rmqctl.engine.state import brokerjson
from rmqctl.serve.processors.request import Later, Outcome, Request, Served
from rmqctl.serve.wire.bodies import encode_body
from rmqctl.serve.wire.command import RemotingCommand


def get_all_topic_config(served: Served, request: Request) -> RemotingCommand:
    """``getAllTopicConfig``."""
    return _answer(request, served.topics.table())


def get_all_groups(served: Served, request: Request) -> RemotingCommand:
    """``getAllSubscriptionGroup``."""
    return _answer(request, served.groups.table())


def get_all_consumer_offset(served: Served, request: Request) -> RemotingCommand:
    """``getAllConsumerOffset``, with the offsets that clients have committed here."""
    return _answer(request, served.offsets.encoded())


def get_all_delay_offset(served: Served, request: Request) -> Outcome:
    """``getAllDelayOffset``."""

    def answer(table: dict[int, int], now: int) -> Outcome:
        return _answer(request, {"offsetTable": table})

    return Later(lambda: brokerjson.delay_offsets(served.store.root), answer)


def get_broker_config(served: Served, request: Request) -> RemotingCommand:
    """``getBrokerConfig``: the settings that shape the store, and the broker's names. A broker also
    tells its paths, and whatever else its file holds."""
    names = served.names
    values: dict[str, object] = {
        "brokerName": names.broker,
        "brokerClusterName": names.cluster,
        "brokerId": 0,
        "mappedFileSizeCommitLog": served.store.commit_log.file_size,
        "mappedFileSizeConsumeQueue": served.store.queues.file_size,
    }
    properties = served.store.config.properties() | values
    del properties["storeType"]  # Brokers of 4.9.3 have none.
    text = properties_text(properties)
    version = encode_body(served.topics.table()["dataVersion"]).decode()
    fields = {"version": version}
    return request.command.answer(ResponseCode.SUCCESS, None, fields, text.encode())


def get_system_topics(served: Served, request: Request) -> RemotingCommand:
    """``getSystemTopicListFromBroker`` (``TopicValidator#getSystemTopicSet``)."""
    return _answer(request, {"topicList": sorted(served.system_topics)})


# --- of the name server ----------------------------------------------------------------------


def get_system_topics_of_names(served: Served, request: Request) -> RemotingCommand:
    """``getSystemTopicListFromNs``: the names of clusters and brokers, which are also topics."""
    names = list(dict.fromkeys((served.names.cluster, served.names.broker)))
    address = served.address_for(request.channel)
    return _answer(request, {"brokerAddr": address, "topicList": names})


def get_topics_by_cluster(served: Served, request: Request) -> RemotingCommand:
    """``getTopicsByCluster``; empty for any other cluster than this one."""
    is_own = request.fields.find("cluster") == served.names.cluster
    return _answer(request, {"topicList": [one.name for one in served.topics if is_own]})


def get_kv_config(served: Served, request: Request) -> RemotingCommand:
    """``getKVConfig``: this name server keeps no such configuration."""
    namespace, key = request.fields.text("namespace"), request.fields.text("key")
    remark = f"No config item, Namespace: {namespace[:127]} Key: {key[:127]}"
    return request.command.answer(ResponseCode.QUERY_NOT_FOUND, remark)


def get_kv_list(served: Served, request: Request) -> RemotingCommand:
    """``getKVListByNamespace``."""
    remark = f"No config item, Namespace: {request.fields.text('namespace')[:127]}"
    return request.command.answer(ResponseCode.QUERY_NOT_FOUND, remark)


def _answer(request: Request, value: dict[str, Any]) -> RemotingCommand:
    return request.command.answer(ResponseCode.SUCCESS, body=encode_body(value))
