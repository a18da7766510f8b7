"""What a slave asks its master by remoting: who it is, and the files of ``config/``
(``SlaveSynchronize``).

Each dialogue is a generator: it gives a request, is sent the answer, and returns what it found.
Whoever runs it has the connection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from formats.constants import LONG_MAX
from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.engine.state import brokerjson
from rmqctl.engine.state.laterversions import is_rocksdb_type, topics_of_batches
from rmqctl.errors import NeedsConsent, RmqctlError
from rmqctl.replicate.errors import MasterAsksWho, MasterNotCopied, MasterRefused
from rmqctl.serve.wire.command import RemotingCommand, java_text

T = TypeVar("T")
Dialogue = Generator[RemotingCommand, RemotingCommand, T]

#: In an error of this module, which knows no address.
THE_MASTER = "the master"
#: Of ``brokerRole``: one whose puts wait for slaves.
SYNC_MASTER = "SYNC_MASTER"
#: In the remark of an answer to one that a broker with ACL does not know, or who may not.
_ACL = "AclException"
#: What 5.x sends with its topics, and keeps elsewhere: the queues of static topics
#: (``TopicConfigAndMappingSerializeWrapper``).
_NOT_OF_THE_FILE = ("mappingDataVersion", "topicQueueMappingDetailMap", "topicQueueMappingInfoMap")
#: An offset in an answer, as digits: of more there is no Java long.
_OFFSET = re.compile(r"-1|[0-9]{1,19}", re.ASCII)
#: What is not taken over of a master's configuration: it is about its machine, or its role.
_OWN = ("storePath", "readOnlyCommitLogStorePaths", "brokerRole", "transientStorePool", "warm")


class MasterFacts(NamedTuple):
    """What a master says of itself. ``config`` has what shapes its files, ``batch_topics`` the
    topics with batch queues (5.x)."""

    role: str
    broker_name: str
    config: MessageStoreConfig
    min_offset: int
    max_offset: int
    batch_topics: tuple[str, ...]


class ConfigFile(NamedTuple):
    """The text of a file of ``config/``, as a slave writes it."""

    name: str
    text: str


class Snapshot(NamedTuple):
    """Files of ``config/``, and where the master's log ended after they were asked for: offsets in
    them are no further."""

    files: list[ConfigFile]
    log_range: tuple[int, int]


def _ask(code: RequestCode, **fields: object) -> Dialogue[RemotingCommand]:
    """:raises MasterRefused: the answer is none."""
    values = {name: java_text(value) for name, value in fields.items()}
    answer = yield RemotingCommand(code, ext_fields=values)
    if answer.code != ResponseCode.SUCCESS:
        reason = (
            f"to {code.name} ({int(code)}): code {answer.code}, {(answer.remark or '')[:200]!r}"
        )
        asks_who = _ACL in (answer.remark or "")
        raise (MasterAsksWho if asks_who else MasterRefused)(address=THE_MASTER, reason=reason)
    return answer


def facts() -> Dialogue[MasterFacts]:
    """Configuration, runtime info and topics.

    :raises MasterRefused: it does not say, or nonsense.
    """
    answer = yield from _ask(RequestCode.GET_BROKER_CONFIG)
    # Java writes these lines without an escape, which a file of properties would need.
    lines = (line.partition("=") for line in answer.body.decode("utf-8", "replace").splitlines())
    values = {name: value for name, _, value in lines if name}
    kept = {name: value for name, value in values.items() if not name.startswith(_OWN)}
    escaped = (f"{name}={value}\n".replace("\\", "\\\\") for name, value in kept.items())
    try:
        config = parse_broker_conf("".join(escaped), "the master's configuration")
    except RmqctlError as error:
        reason = f"its configuration cannot be read: {_reason(error)}"
        raise MasterRefused(address=THE_MASTER, reason=reason) from error
    start, end = yield from log_range()
    role = values.get("brokerRole", "ASYNC_MASTER")
    topics = yield from _ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    batches = topics_of_batches(_value(topics.body)) if topics.body else ()
    return MasterFacts(
        role, values.get("brokerName", ""), config, start, end, tuple(sorted(batches))
    )


def check(facts: MasterFacts, broker: str, *, joins_sync: bool) -> None:
    """Whether a master can be joined that says so of itself.

    :param joins_sync: also one whose puts wait for slaves.
    :raises MasterRefused: it cannot. :raises NeedsConsent: its puts would wait for the copy.
    """
    why_not = _why_not(facts)
    if why_not:
        raise MasterNotCopied(address=broker, reason=why_not)
    if facts.role == SYNC_MASTER and not joins_sync:
        raise NeedsConsent(
            reason=f"{broker} is a SYNC_MASTER: as its only slave the copy would have "
            "producers wait up to three seconds a message until it has caught up."
        )


def _why_not(facts: MasterFacts) -> str:
    """Why a master cannot be joined, and what to do; empty: it can."""
    if facts.role == "SLAVE":
        return "it is a slave: give its master"
    config, why = facts.config, ""
    if config.enable_controller_mode or config.enable_d_leger_commit_log:
        who = "a controller" if config.enable_controller_mode else "a DLedger group"
        why = f"{who} has it send its log in another form"
    elif is_rocksdb_type(config) or config.config_manager_version.lower() == "v2":
        why = "it keeps queues or topics in RocksDB, and a slave's copy has them in files"
    elif facts.batch_topics:
        topic = facts.batch_topics[0][:127]
        why = f"its topic {topic!r} has batch queues, which are not made of the log here"
    return why and f"{why} (`rmqctl backup create` copies such a store when its broker is stopped)"


def is_starting(request: RemotingCommand, answer: RemotingCommand) -> bool:
    """Whether a broker says nothing of itself because it has just started: before it has looked at
    its own rates for the first time, a second after its start, it fails to tell them
    (``StoreStatsService#getPutTps``)."""
    return (
        request.code == RequestCode.GET_BROKER_RUNTIME_INFO
        and answer.code == ResponseCode.SYSTEM_ERROR
        and "NoSuchElementException" in (answer.remark or "")
    )


def log_range() -> Dialogue[tuple[int, int]]:
    """Where the master's log begins and ends: two offsets that a Java long can be.

    :raises MasterRefused: it does not say, or says what is no log.
    """
    answer = yield from _ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    table = brokerjson.table_of(_value(answer.body), "table")
    found = [table.get(name) for name in ("commitLogMinOffset", "commitLogMaxOffset")]
    texts = [one for one in found if isinstance(one, str) and _OFFSET.fullmatch(one)]
    if len(texts) < 2:
        raise MasterRefused(
            address=THE_MASTER,
            reason="GET_BROKER_RUNTIME_INFO (28) does not say where its log lies",
        )
    # A broker that has never had a file says -1 (CommitLog#getMinOffset).
    start, end = (max(int(text), 0) for text in texts)
    if not start <= end <= LONG_MAX:
        reason = f"a log from {start} to {end} can be nobody's"
        raise MasterRefused(address=THE_MASTER, reason=reason)
    return start, end


def record_at(physical_offset: int) -> Dialogue[bytes | None]:
    """The bytes of the record at an offset; None: the master has none there.

    :raises MasterAsksWho: whether it has is nothing for who asks.
    """
    try:
        answer = yield from _ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=physical_offset)
    except MasterAsksWho:
        raise
    except MasterRefused:
        return None
    return answer.body


def config_files() -> Dialogue[list[ConfigFile]]:
    """Topics, consumer offsets, delay offsets and groups, in the order of ``syncAll``, as a broker
    writes them. A slave of Java keeps what its master has deleted of the offsets; a copy has what
    the master has.

    :raises MasterRefused: it does not say, or no JSON.
    """
    files = []
    for code, name in (
        (RequestCode.GET_ALL_TOPIC_CONFIG, brokerjson.TOPICS),
        (RequestCode.GET_ALL_CONSUMER_OFFSET, brokerjson.CONSUMER_OFFSET),
        (RequestCode.GET_ALL_DELAY_OFFSET, brokerjson.DELAY_OFFSET),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, brokerjson.SUBSCRIPTION_GROUP),
    ):
        answer = yield from _ask(code)
        if not answer.body:
            continue
        if name == brokerjson.DELAY_OFFSET:
            # The text of the file itself (``ScheduleMessageService#encode``).
            _value(answer.body)
            files.append(ConfigFile(name, answer.body.decode()))
        else:
            value = _value(answer.body)
            for more in _NOT_OF_THE_FILE:
                value.pop(more, None)
            files.append(ConfigFile(name, brokerjson.dumps(value)))
    return files


def _value(body: bytes) -> Any:
    """The value of a body of fastjson's. :raises MasterRefused: it is none."""
    try:
        value = brokerjson.parse(body.decode(), path="an answer of the master", duplicates=[])
    except UnicodeDecodeError:
        raise MasterRefused(address=THE_MASTER, reason="an answer is no UTF-8") from None
    except RmqctlError as error:
        reason = f"an answer is no JSON: {_reason(error)}"
        raise MasterRefused(address=THE_MASTER, reason=reason) from error
    if not isinstance(value, dict):
        raise MasterRefused(address=THE_MASTER, reason="an answer is no JSON object")
    return value


def _reason(error: RmqctlError) -> str:
    """What is wrong, without the advice for files that are one's own."""
    return str(error.values.get("reason", error)).rstrip(".")


def run(dialogue: Dialogue[T], ask: Callable[[RemotingCommand], RemotingCommand]) -> T:
    """Has a dialogue by a function that sends a request and waits for its answer."""
    try:
        request = next(dialogue)
        while True:
            request = dialogue.send(ask(request))
    except StopIteration as stop:
        found: T = stop.value
        return found
