"""What a slave asks its master by remoting: what the master is, and the files of ``config/``
(``SlaveSynchronize``).

Each dialogue is a generator: it yields a request, is sent the answer, and returns what it found.
The caller has the connection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from formats.constants import LONG_MAX
from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.engine.state import brokerjson, fastjson
from rmqctl.engine.state.laterversions import is_rocksdb_type, topics_of_batches
from rmqctl.errors import NeedsConsent, RmqctlError
from rmqctl.replicate.errors import MasterAsksWho, MasterNotCopied, MasterRefused
from rmqctl.serve.wire.command import RemotingCommand, java_text

T = TypeVar("T")
Dialogue = Generator[RemotingCommand, RemotingCommand, T]

#: In place of the address in errors of this module, which does not know it.
THE_MASTER = "the master"
#: The ``brokerRole`` of a master whose puts wait for slaves.
SYNC_MASTER = "SYNC_MASTER"
#: In the remark of an answer by which a broker with ACL refuses who asks.
_ACL = "AclException"
#: Fields that 5.x sends with its topics, but keeps in another file: the queues of static topics
#: (``TopicConfigAndMappingSerializeWrapper``).
_NOT_OF_THE_FILE = ("mappingDataVersion", "topicQueueMappingDetailMap", "topicQueueMappingInfoMap")
#: An offset in an answer, as text: no Java long has more digits.
_OFFSET = re.compile(r"-1|[0-9]{1,19}", re.ASCII)
#: Prefixes of properties that are not taken over from a master: they are about its machine or
#: role.
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
    """Files of ``config/``, and the range of the master's log after they were fetched: offsets in
    the files are not ahead of it."""

    files: list[ConfigFile]
    log_range: tuple[int, int]


def _ask(code: RequestCode, **fields: object) -> Dialogue[RemotingCommand]:
    """Asks for the answer to a request. :raises MasterRefused: the master refuses."""
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
    """Asks for configuration, runtime info and topics.

    :raises MasterRefused: the master does not answer, or not with what a broker answers.
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
    """Checks, by what a master says of itself, that it can be joined.

    :param joins_sync: also join a master whose puts wait for slaves.
    :raises MasterRefused: it cannot be joined.
    :raises NeedsConsent: its puts would wait for the copy.
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
    """Why a master cannot be joined, and what to do instead; empty: it can be."""
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
    """Whether a broker cannot answer because it has just started: until its statistics are sampled
    for the first time, a second after the start, it fails to tell its rates
    (``StoreStatsService#getPutTps``)."""
    return (
        request.code == RequestCode.GET_BROKER_RUNTIME_INFO
        and answer.code == ResponseCode.SYSTEM_ERROR
        and "NoSuchElementException" in (answer.remark or "")
    )


def log_range() -> Dialogue[tuple[int, int]]:
    """Asks where the master's log begins and ends. Both offsets fit into a Java long.

    :raises MasterRefused: the master does not say, or what it says cannot be.
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
    """Asks for the bytes of the record at a physical offset; None: the master has none there.

    :raises MasterAsksWho: the account may not ask for it.
    """
    try:
        answer = yield from _ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=physical_offset)
    except MasterAsksWho:
        raise
    except MasterRefused:
        return None
    return answer.body


def config_files() -> Dialogue[list[ConfigFile]]:
    """Asks for topics, consumer offsets, delay offsets and groups, in the order of ``syncAll``; the
    files are as a broker writes them. A slave in Java keeps offsets that its master has deleted; a
    copy has exactly what the master has.

    :raises MasterRefused: the master does not answer, or not with JSON.
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
            if name == brokerjson.CONSUMER_OFFSET and brokerjson.LMQ_OFFSET_TABLE in value:
                # All offsets of a master with light queues (``LmqConsumerOffsetManager``).
                name = brokerjson.LMQ_CONSUMER_OFFSET
            files.append(ConfigFile(name, fastjson.dumps(value)))
    return files


def _value(body: bytes) -> Any:
    """The object in a body that fastjson has written. :raises MasterRefused: there is none."""
    try:
        value = fastjson.parse(body.decode(), path="an answer of the master", duplicates=[])
    except UnicodeDecodeError:
        raise MasterRefused(address=THE_MASTER, reason="an answer is no UTF-8") from None
    except RmqctlError as error:
        reason = f"an answer is no JSON: {_reason(error)}"
        raise MasterRefused(address=THE_MASTER, reason=reason) from error
    if not isinstance(value, dict):
        raise MasterRefused(address=THE_MASTER, reason="an answer is no JSON object")
    return value


def _reason(error: RmqctlError) -> str:
    """The reason of an error, without its advice, which is for files on this machine."""
    return str(error.values.get("reason", error)).rstrip(".")


def run(dialogue: Dialogue[T], ask: Callable[[RemotingCommand], RemotingCommand]) -> T:
    """Runs a dialogue with a function that sends a request and waits for its answer."""
    try:
        request = next(dialogue)
        while True:
            request = dialogue.send(ask(request))
    except StopIteration as stop:
        found: T = stop.value
        return found
