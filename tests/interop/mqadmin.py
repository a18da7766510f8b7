"""The subcommands of ``mqadmin`` that are asked of a broker of 4.9.3 and of ``serve``, and the page
that says what comes of it.

    python -m tests.interop.mqadmin            write docs/reference/mqadmin.md
    python -m tests.interop.mqadmin --check    exit code 1 when it is out of date

``tests/interop/test_mqadmin.py`` holds every line to what it claims.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "mqadmin.md"
SIGNS = {"same": "✓", "partly": "◐", "refused": "✗"}

TOPIC, OTHER, GROUP = "orders", "ledger", "watchers"
#: Text of the topic's third message, its key, and its unique key.
KEY, UNIQUE_KEY = "order-2", "7F00000100002A139F2B4E3D0C0A0002"


class Command(NamedTuple):
    """One call of mqadmin. The test replaces ``{broker}`` in the arguments by the broker's address,
    and ``{id}`` by the id of a message that this broker has stored. ``level`` says whether the
    answers are the same, field by field, apart from times, rates and addresses; if not, ``note``
    says how they differ."""

    name: str
    class_name: str
    arguments: str
    level: str = "same"
    note: str = ""
    #: The beginnings of those lines that differ for the reason in the note.
    other_lines: str = ""


COMMANDS = (
    Command("clusterList", "cluster.ClusterListSubCommand", ""),
    Command("brokerStatus", "broker.BrokerStatusSubCommand", "-b {broker}", "partly",
            "the same keys, but for those that name paths"),
    Command("getBrokerConfig", "broker.GetBrokerConfigCommand", "-b {broker}", "partly",
            "names, sizes and switches of the store; no paths, and nothing of a broker's threads"),
    Command("brokerConsumeStats", "broker.BrokerConsumeStatsSubCommad", "-b {broker}"),
    Command("topicList", "topic.TopicListSubCommand", ""),
    Command("topicList -c", "topic.TopicListSubCommand", "-c"),
    Command("topicRoute", "topic.TopicRouteSubCommand", f"-t {TOPIC}"),
    Command("topicStatus", "topic.TopicStatusSubCommand", f"-t {TOPIC}"),
    Command("topicClusterList", "topic.TopicClusterSubCommand", f"-t {TOPIC}"),
    Command("allocateMQ", "topic.AllocateMQSubCommand", f"-t {TOPIC} -i 10.0.0.1,10.0.0.2"),
    Command("statsAll", "stats.StatsAllSubCommand", f"-t {TOPIC}", "partly",
            "counts from its own start on", TOPIC),
    Command("consumerProgress", "consumer.ConsumerProgressSubCommand", f"-g {GROUP}"),
    Command("consumerProgress, all groups", "consumer.ConsumerProgressSubCommand", ""),
    Command("consumerStatus", "consumer.ConsumerStatusSubCommand",
            f"-g {GROUP} -i 127.0.0.1@watched"),
    Command("getConsumerStatus", "offset.GetConsumerStatusCommand", f"-g {GROUP} -t {TOPIC}"),
    Command("consumerConnection", "connection.ConsumerConnectionSubCommand", f"-g {GROUP}"),
    Command("producerConnection", "connection.ProducerConnectionSubCommand",
            f"-g {GROUP} -t {TOPIC}"),
    Command("getConsumerConfig", "consumer.GetConsumerConfigSubCommand", f"-g {GROUP}"),
    Command("queryMsgById", "message.QueryMsgByIdSubCommand", "-i {id}", "same",
            "of messages that `serve` has stored: an id names the broker to ask",
            "(CommitLog|Queue) Offset"),
    Command("queryMsgByKey", "message.QueryMsgByKeySubCommand", f"-t {TOPIC} -k {KEY}"),
    Command("queryMsgByUniqueKey", "message.QueryMsgByUniqueKeySubCommand",
            f"-t {TOPIC} -i {UNIQUE_KEY}", "partly",
            "of messages of the broker itself it says `NOT_CONSUME_YET`: their address is another",
            "MessageTrack"),
    Command("queryMsgByOffset", "message.QueryMsgByOffsetSubCommand",
            f"-t {TOPIC} -b interop -i 0 -o 1", "partly",
            "as `queryMsgByUniqueKey`", "MessageTrack"),
    Command("printMsg", "message.PrintMessageSubCommand", f"-t {TOPIC} -d true"),
    Command("printMsgByQueue", "message.PrintMessageByQueueCommand",
            f"-t {TOPIC} -a interop -i 1 -p true -d true"),
    Command("queryCq", "queue.QueryConsumeQueueCommand", f"-t {TOPIC} -q 0 -i 0 -c 3"),
    Command("resetOffsetByTime", "offset.ResetOffsetByTimeCommand",
            f"-g {GROUP} -t {TOPIC} -s 0 -f true"),
    Command("skipAccumulatedMessage", "offset.SkipAccumulationSubCommand",
            f"-g {GROUP} -t {TOPIC} -f true"),
    Command("sendMessage", "message.SendMessageCommand", f"-t {OTHER} -p hello -k sent"),
    Command("consumeMessage", "message.ConsumeMessageCommand",
            f"-t {OTHER} -b interop -i 0 -o 0 -c 1"),
    Command("checkMsgSendRT", "message.CheckMsgSendRTCommand", f"-t {OTHER} -a 1 -s 10",
            "same", "", "interop 0 true"),
    Command("sendMsgStatus", "broker.SendMsgStatusCommand", "-b {broker} -s 10 -c 1", "refused",
            "sends to the broker's own topic by a name that no route of one name server has"),
    Command("updateTopic", "topic.UpdateTopicSubCommand",
            "-b {broker} -t made -r 2 -w 2", "refused",
            "configuration is not changed over the network; a topic is made with its first "
            "message"),
    Command("updateSubGroup", "consumer.UpdateSubGroupSubCommand",
            "-b {broker} -g made", "refused",
            "configuration is not changed over the network"),
    Command("updateBrokerConfig", "broker.UpdateBrokerConfigSubCommand",
            "-b {broker} -k flushDiskType -v ASYNC_FLUSH", "refused", "never: CVE-2023-33246"),
    Command("cleanExpiredCQ", "broker.CleanExpiredCQSubCommand", "-b {broker}", "refused",
            "never: it deletes files"),
)  # fmt: skip

#: Patterns of what differs between two runs in any case.
_MASKS = (
    (r"(@|Lambda\$\d+/0x)[0-9a-f]+(@[0-9a-f]+)?", "OBJECT"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"127\.0\.0\.1|\d+\.\d+\.\d+\.\d+(?=\s)", "HOST"),
    (r"\d{4}-\d\d-\d\d[ T,]+\d\d:\d\d:\d\d[.,:]?\d*", "TIME"),
    (r"\b1[6-9]\d{11}\b|\b20\d{12}(\d{3})?\b", "TIME"),
    (r"\b[0-9A-F]{32,64}\b", "ID"),
    (r"-?\d+\.\d+(E-?\d+)?", "RATE"),
    (r"MAX_OFFSET=\d+", "COUNT"),
)


def masked(text: str) -> list[str]:
    """The lines of an answer without what differs in any case, sorted: Java's tables come in no
    fixed order."""
    for pattern, word in _MASKS:
        text = re.sub(pattern, word, text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    # A broker makes its own topic of halves when it has looked for them first.
    return sorted(line for line in lines if line and "RMQ_SYS_TRANS_HALF_TOPIC" not in line)


def page() -> str:
    rows = [f"| `{one.name}` | {SIGNS[one.level]} | {one.note} |" for one in COMMANDS]
    return "\n".join(
        (
            "# mqadmin and the dashboard",
            "",
            "What subcommands of `mqadmin` 4.9.3 print that are pointed at"
            " [`rmqctl serve`](../how-to/serve.md), beside a broker of 4.9.3 on the same store,"
            " with the same clients connected. This page is made of the list that the tests go by:"
            " `python -m tests.interop.mqadmin`.",
            "",
            "✓ the same, but for times, rates and addresses · ◐ what the note says is otherwise ·"
            " ✗ refused, and the command says so",
            "",
            "| command | | |",
            "|---|---|---|",
            *rows,
            "",
            "The dashboard asks with the same requests; those of 5.x are answered with 3,"
            " `REQUEST_CODE_NOT_SUPPORTED`.",
            "",
        )
    )


def main(arguments: list[str]) -> int:
    if "--check" in arguments:
        return int(not PAGE.is_file() or PAGE.read_text("utf-8") != page())
    PAGE.write_text(page(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
