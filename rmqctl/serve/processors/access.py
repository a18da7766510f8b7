"""The permissions that an account needs for each request.

A broker of 4.9.3 asks only for a valid key where batches, replies, messages by offset and all
administration are concerned. Here a request that is in no table is for administrators only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from formats.constants import RETRY_GROUP_TOPIC_PREFIX
from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.serve.processors.request import NoAnswer, Outcome, Request, Served
from rmqctl.serve.processors.send import ANSWER_FIELDS
from rmqctl.serve.state.accounts import Account, Accounts, Perm, allows
from rmqctl.serve.wire.bodies import decode_body, objects, text_in

_TOPIC, _GROUP = "topic", "group"


class Need(NamedTuple):
    """A permission on the topic or group that a field of the request names."""

    kind: str
    field: str
    perm: Perm


def _topic(field: str, perm: Perm) -> Need:
    return Need(_TOPIC, field, perm)


def _group(field: str) -> Need:
    return Need(_GROUP, field, Perm.SUB)


_READS_TOPIC = _topic("topic", Perm.ANY)
_CONSUMES = (_group("consumerGroup"), _topic("topic", Perm.SUB))
#: The needed permissions by request; an empty tuple: any account may make the request.
NEEDS: dict[int, tuple[Need, ...]] = {
    RequestCode.SEND_MESSAGE: (_topic("topic", Perm.PUB),),
    RequestCode.SEND_MESSAGE_V2: (_topic("b", Perm.PUB),),
    RequestCode.SEND_BATCH_MESSAGE: (_topic("b", Perm.PUB),),
    RequestCode.SEND_REPLY_MESSAGE: (_topic("topic", Perm.PUB),),
    RequestCode.SEND_REPLY_MESSAGE_V2: (_topic("b", Perm.PUB),),
    RequestCode.CONSUMER_SEND_MSG_BACK: (_group("group"), _topic("originTopic", Perm.SUB)),
    # The permission of the half's own topic: :func:`may`, when it is read.
    RequestCode.END_TRANSACTION: (),
    RequestCode.PULL_MESSAGE: _CONSUMES,
    RequestCode.LITE_PULL_MESSAGE: _CONSUMES,
    RequestCode.QUERY_MESSAGE: (_topic("topic", Perm.SUB),),
    RequestCode.QUERY_CONSUMER_OFFSET: _CONSUMES,
    RequestCode.UPDATE_CONSUMER_OFFSET: _CONSUMES,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: (_READS_TOPIC,),
    RequestCode.GET_MAX_OFFSET: (_READS_TOPIC,),
    RequestCode.GET_MIN_OFFSET: (_READS_TOPIC,),
    RequestCode.GET_EARLIEST_MSG_STORETIME: (_READS_TOPIC,),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (_group("consumerGroup"),),
    RequestCode.GET_BROKER_RUNTIME_INFO: (),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: (),
    RequestCode.GET_TOPICS_BY_CLUSTER: (),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: (),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: (),
    RequestCode.GET_KV_CONFIG: (),
    RequestCode.GET_KVLIST_BY_NAMESPACE: (),
    RequestCode.GET_TOPIC_STATS_INFO: (_READS_TOPIC,),
    RequestCode.QUERY_CONSUME_QUEUE: (_READS_TOPIC,),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: (_READS_TOPIC,),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: (_group("consumerGroup"),),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: (),
    RequestCode.GET_CONSUME_STATS: (_group("consumerGroup"),),
    RequestCode.QUERY_CONSUME_TIME_SPAN: (_group("group"), _topic("topic", Perm.SUB)),
    RequestCode.VIEW_BROKER_STATS_DATA: (),
}
#: Requests that everybody may make: a name server knows no accounts, and clients ask it before they
#: name theirs.
OPEN = frozenset((RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO))


def refusal(accounts: Accounts, request: Request) -> Outcome:
    """The answer to a request that its sender may not make; None where the sender may.

    :raises NoAnswer: the request must not be answered, for clients take any error for a new group.
    :raises BadRequest: a name in the request cannot be read.
    """
    command, address = request.command, request.channel.peer.rpartition(":")[0]
    if command.code in OPEN or accounts.is_free(address):
        return None
    account = accounts.who(command.ext_fields, command.body, address)
    if isinstance(account, str):
        return _refused(request, account)
    if account.is_admin or accounts.is_trusted(account, address):
        return None
    problem = _missing(account, request)
    return _refused(request, problem) if problem else None


def _missing(account: Account, request: Request) -> str:
    """The permission that an account lacks, in words; empty where it lacks none."""
    code = request.command.code
    if code == RequestCode.VIEW_MESSAGE_BY_ID:
        # Nobody knows the topic before the message is read, and then :func:`may` is asked, too.
        is_allowed = allows(account.default_topic, Perm.SUB)
        return "" if is_allowed else "No default permission for messages of all topics"
    if code in _OF_BODIES:
        needed = list(_OF_BODIES[code](request))
    elif code in NEEDS:
        needed = [(one, request.fields.find(one.field) or "") for one in NEEDS[code]]
    else:
        return f"The account is no administrator, and may not ask {code}"
    for need, name in needed:
        resource = RETRY_GROUP_TOPIC_PREFIX + name if need.kind == _GROUP else name
        # A group owns its retry topic: an account that may consume as the group may read and write
        # that topic.
        perm = need.perm
        if need.kind == _TOPIC and name.startswith(RETRY_GROUP_TOPIC_PREFIX):
            perm = Perm.SUB
        if not account.may(resource, perm):
            return f"No permission {perm.name} for {need.kind} {name[:127]}"
    return ""


def may(served: Served, request: Request, topic: str, perm: Perm) -> bool:
    """Whether the sender of a request has a permission on a topic that the request does not
    name."""
    accounts, command = served.accounts, request.command
    address = request.channel.peer.rpartition(":")[0]
    if accounts is None or accounts.is_free(address):
        return True
    account = accounts.who(command.ext_fields, command.body, address)
    if isinstance(account, str):
        return False
    return accounts.is_trusted(account, address) or account.may(topic, perm)


def _refused(request: Request, problem: str) -> Outcome:
    if request.command.code == RequestCode.QUERY_CONSUMER_OFFSET:
        raise NoAnswer(problem)
    remark = f"org.apache.rocketmq.acl.common.AclException: {problem}"
    return request.command.answer(ResponseCode.SYSTEM_ERROR, remark, ANSWER_FIELDS)


# --- what stands in bodies -------------------------------------------------------------------


def _of_heartbeat(request: Request) -> Iterator[tuple[Need, str]]:
    body = decode_body(request.command.body)
    for consumer in objects(body, "consumerDataSet"):
        yield _group("groupName"), text_in(consumer, "groupName")
        for one in objects(consumer, "subscriptionDataSet"):
            yield _topic("topic", Perm.SUB), text_in(one, "topic")


def _of_lock(request: Request) -> Iterator[tuple[Need, str]]:
    body = decode_body(request.command.body)
    yield _group("consumerGroup"), text_in(body, "consumerGroup")


def _of_check(request: Request) -> Iterator[tuple[Need, str]]:
    body = decode_body(request.command.body)
    yield _group("group"), text_in(body, "group")


def _of_leaving(request: Request) -> Iterator[tuple[Need, str]]:
    """The permissions for leaving a group: none is needed to leave as a producer."""
    group = request.fields.find("consumerGroup")
    if group:
        yield _group("consumerGroup"), group


_OF_BODIES: dict[int, Callable[[Request], Iterator[tuple[Need, str]]]] = {
    RequestCode.HEART_BEAT: _of_heartbeat,
    RequestCode.UNREGISTER_CLIENT: _of_leaving,
    RequestCode.LOCK_BATCH_MQ: _of_lock,
    RequestCode.UNLOCK_BATCH_MQ: _of_lock,
    RequestCode.CHECK_CLIENT_CONFIG: _of_check,
}
