"""Requests that are refused whatever the options: configuration and deletion by network, secrets,
and reads that write."""

from __future__ import annotations

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.serve.processors.request import Request, Served
from rmqctl.serve.wire.command import RemotingCommand

#: By the first two, brokers and name servers were taken over (CVE-2023-33246, CVE-2023-37582).
NEVER = frozenset(
    (
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
        RequestCode.REGISTER_FILTER_SERVER,
        RequestCode.REGISTER_MESSAGE_FILTER_CLASS,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.TRIGGER_DELETE_FILES,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.QUERY_CORRECTION_OFFSET,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
    )
)
#: Requests that store a message.
WRITING = frozenset(
    (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
    )
)


def never(served: Served, request: Request) -> RemotingCommand:
    remark = f"request type {request.command.code} is never done by rmqctl"
    return request.command.answer(ResponseCode.NO_PERMISSION, remark)


def read_only(served: Served, request: Request) -> RemotingCommand:
    """The answer of a broker without the permission to write; a producer tries the next broker."""
    # A producer of Java looks for a region in every answer to a send.
    fields = {"MSG_REGION": "DefaultRegion", "TRACE_ON": True}
    remark = f"the broker[{served.address_for(request.channel)}] is served read-only by rmqctl"
    return request.command.answer(ResponseCode.NO_PERMISSION, remark, fields)


def not_supported(served: Served, request: Request) -> RemotingCommand:
    """``AdminBrokerProcessor#getUnknownCmdResponse``, its blank included."""
    remark = f" request type {request.command.code} not supported"
    return request.command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)


def busy(served: Served, request: Request) -> RemotingCommand:
    """The answer while more is sent than the disk takes. A producer in Java tells its caller at
    once, and tries no other broker (``NettyRemotingAbstract#processRequestCommand``)."""
    fields = {"MSG_REGION": "DefaultRegion", "TRACE_ON": True}
    remark = "[OVERLOAD]system busy, start flow control for a while"
    return request.command.answer(ResponseCode.SYSTEM_BUSY, remark, fields)
