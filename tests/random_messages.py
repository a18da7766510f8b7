"""Thousands of random messages of all kinds that a store can have: like those of property tests,
but without shrinking."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator

from formats import constants
from rmqctl.engine.record.message import Host, MessageExtBrokerInner

TOPICS = ("a", "b", "ünïcode-主题", constants.RMQ_SYS_SCHEDULE_TOPIC, "%RETRY%g")
_NAMES = ("KEYS", "TAGS", "UNIQ_KEY", "REAL_TOPIC", "REAL_QID", "WAIT", "日本", 'a"b', "x y")
#: Characters of every plane, control characters, and characters that CSV and JSON escape, but no
#: separators of properties.
_CHARACTERS = "aZ09 ,;:\"'\\/\n\r\t\x1b\x7f\x85é主\u2028\u202e\ufeff\U0001f600"


def text(chance: random.Random, longest: int) -> str:
    return "".join(chance.choices(_CHARACTERS, k=chance.randint(1, longest)))


def host(chance: random.Random) -> Host:
    return chance.randbytes(chance.choice((4, 16))), chance.randint(0, 0xFFFF)


def message(chance: random.Random) -> MessageExtBrokerInner:
    properties = {
        chance.choice(_NAMES): text(chance, 12) for _ in range(chance.choice((0, 1, 2, 5)))
    }
    if chance.random() < 0.1:
        properties[constants.PROPERTY_DELAY_TIME_LEVEL] = chance.choice(("0", "3", "99"))
    body = chance.choice((b"", text(chance, 30).encode(), chance.randbytes(chance.randint(1, 99))))
    sys_flag = chance.choice((0, 0, 0, 2, 4, 8, 12))
    if chance.random() < 0.1:
        body, sys_flag = zlib.compress(body), sys_flag | constants.COMPRESSED_FLAG
    return MessageExtBrokerInner(
        chance.choice(TOPICS),
        body,
        chance.randint(0, 2),
        chance.randint(-(1 << 31), (1 << 31) - 1),
        sys_flag,
        properties,
        None,
        chance.randint(-(1 << 63), (1 << 63) - 1),
        host(chance),
        host(chance),
        chance.randint(-(1 << 31), (1 << 31) - 1),
        chance.randint(-(1 << 63), (1 << 63) - 1),
        chance.random() < 0.5,
    )


def messages(chance: random.Random, count: int) -> Iterator[MessageExtBrokerInner]:
    return (message(chance) for _ in range(count))
