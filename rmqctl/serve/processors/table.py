"""The table of processors by request code."""

from __future__ import annotations

from formats.remotingcodes import RequestCode
from rmqctl.serve.processors import (
    clients,
    connections,
    consumed,
    locks,
    look,
    names,
    offsets,
    progress,
    pull,
    refused,
    reply,
    runtime,
    send,
    sendback,
    slaves,
    tables,
    transactions,
)
from rmqctl.serve.processors.request import Processor

PROCESSORS: dict[int, Processor] = {
    RequestCode.REGISTER_BROKER: slaves.register_broker,
    RequestCode.UNREGISTER_BROKER: slaves.unregister_broker,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: names.get_route,
    RequestCode.GET_BROKER_CLUSTER_INFO: names.get_cluster,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: names.get_all_topics,
    RequestCode.PULL_MESSAGE: pull.pull_message,
    # What a lite consumer of 5.x asks instead.
    RequestCode.LITE_PULL_MESSAGE: pull.pull_message,
    RequestCode.QUERY_MESSAGE: look.query_message,
    RequestCode.VIEW_MESSAGE_BY_ID: look.view_message,
    RequestCode.QUERY_CONSUMER_OFFSET: offsets.query_offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: offsets.update_offset,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offsets.search_offset,
    RequestCode.GET_MAX_OFFSET: offsets.get_max_offset,
    RequestCode.GET_MIN_OFFSET: offsets.get_min_offset,
    RequestCode.GET_EARLIEST_MSG_STORETIME: offsets.get_earliest_time,
    RequestCode.LOCK_BATCH_MQ: locks.lock_queues,
    RequestCode.UNLOCK_BATCH_MQ: locks.unlock_queues,
    RequestCode.HEART_BEAT: clients.heart_beat,
    RequestCode.UNREGISTER_CLIENT: clients.unregister_client,
    RequestCode.CHECK_CLIENT_CONFIG: clients.check_client,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: clients.get_consumer_list,
    # Administration that only reads.
    RequestCode.GET_ALL_TOPIC_CONFIG: tables.get_all_topic_config,
    RequestCode.GET_BROKER_CONFIG: tables.get_broker_config,
    RequestCode.GET_BROKER_RUNTIME_INFO: runtime.get_runtime_info,
    RequestCode.GET_ALL_CONSUMER_OFFSET: tables.get_all_consumer_offset,
    RequestCode.GET_ALL_DELAY_OFFSET: tables.get_all_delay_offset,
    RequestCode.GET_KV_CONFIG: tables.get_kv_config,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: tables.get_all_groups,
    RequestCode.GET_TOPIC_STATS_INFO: progress.get_topic_stats,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: connections.get_consumer_connections,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: connections.get_producer_connections,
    RequestCode.GET_CONSUME_STATS: progress.get_consume_stats,
    RequestCode.GET_KVLIST_BY_NAMESPACE: tables.get_kv_list,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: connections.reset_offset,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: consumed.get_consumer_status,
    RequestCode.GET_TOPICS_BY_CLUSTER: tables.get_topics_by_cluster,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: progress.who_consumes,
    RequestCode.QUERY_CONSUME_TIME_SPAN: progress.get_consume_time_span,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: tables.get_system_topics_of_names,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: tables.get_system_topics,
    RequestCode.GET_CONSUMER_RUNNING_INFO: connections.get_running_info,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: connections.consume_directly,
    RequestCode.VIEW_BROKER_STATS_DATA: runtime.view_stats,
    RequestCode.GET_BROKER_CONSUME_STATS: progress.get_broker_consume_stats,
    RequestCode.QUERY_CONSUME_QUEUE: progress.query_consume_queue,
}
#: Requests that need a store open for writing.
WRITERS: dict[int, Processor] = {
    RequestCode.SEND_MESSAGE: send.send_message,
    RequestCode.SEND_MESSAGE_V2: send.send_message,
    RequestCode.SEND_BATCH_MESSAGE: send.send_message,
    RequestCode.SEND_REPLY_MESSAGE: reply.send_reply,
    RequestCode.SEND_REPLY_MESSAGE_V2: reply.send_reply,
    RequestCode.CONSUMER_SEND_MSG_BACK: sendback.send_message_back,
    RequestCode.END_TRANSACTION: transactions.end_transaction,
}
#: Every request that has an answer of its own, a refusal included.
KNOWN = frozenset(map(int, (*PROCESSORS, *WRITERS, *refused.NEVER)))


def processor_of(code: int, *, writes: bool) -> Processor:
    """The processor of a request code. The refused requests are looked up first, so that no entry
    of the tables can allow one.

    :param writes: whether the store is open for writing.
    """
    if code in refused.NEVER:
        return refused.never
    if code in refused.WRITING:
        return WRITERS.get(code, refused.not_supported) if writes else refused.read_only
    return PROCESSORS.get(code, refused.not_supported)
