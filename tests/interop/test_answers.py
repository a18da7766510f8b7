"""Random questions to both sides: SQL filters, a consumer's pulls, a broker's JSON."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

from rmqctl.engine.filters.sql import SqlFilter
from rmqctl.engine.filters.tags import MessageFilter, TagFilter
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.state import fastjson
from rmqctl.errors import ConfigFileUnreadable, FilterSyntaxError
from tests.interop.commands import only
from tests.interop.engine import Engine, EngineStore, Row
from tests.interop.stores import TOPICS, Messages, config_of, settings
from tests.test_engine.test_sqlfilter import answer

# --- filters ---------------------------------------------------------------------------------

NAMES = ("a", "b", "$c_1", "TAGS")
LITERALS = ("5", "0", "-7", "+3", "2147483648", "9L", "5.5", "1E2", ".5", "'x'", "'5'", "'it''s'")
VALUES: tuple[str, ...] = (
    "5",
    "-7",
    "+3",
    "6.0",
    "2147483648",
    "x",
    "it's",
    "",
    " 5 ",
    "NaN",
    "-0.0",
    "1e2",
    "TRUE",
)
VALUES += ("Infinity", "0x1p3", "5f", "٣", "9223372036854775807", "tag", "true ")


class Expressions:
    """Random expressions by the grammar; some have a word too many."""

    def __init__(self, chance: random.Random, version: str) -> None:
        self._chance = chance
        self._has_text_tests = version != "4.9.3"

    def take(self) -> str:
        words = self._logic(self._chance.randint(0, 3)).split(" ")
        if self._chance.random() < 0.2:
            strays = (
                *NAMES,
                *LITERALS,
                "(",
                ")",
                "AND",
                "not",
                "IS",
                "IN",
                ",",
                "=",
                "BETWEEN",
                "%",
            )
            at = self._chance.randrange(len(words))
            words[at : at + self._chance.randint(0, 1)] = [self._chance.choice(strays)]
        return self._chance.choice((" ", "\n", " /* c */ ")).join(words)

    def _logic(self, depth: int) -> str:
        kind = self._chance.random()
        if depth == 0 or kind < 0.2:
            return self._comparison()
        if kind < 0.4:
            return f"NOT {self._logic(depth - 1)}"
        if kind < 0.5:
            return f"( {self._logic(depth - 1)} )"
        return f"{self._logic(depth - 1)} {self._any('AND', 'OR', 'or')} {self._logic(depth - 1)}"

    def _comparison(self) -> str:
        kind = self._chance.random()
        maybe_not = self._any("", "NOT ")
        if self._has_text_tests and self._chance.random() < 0.2:
            test = self._any("CONTAINS", "STARTSWITH", "endswith")
            text = self._any("'x'", "'5'", "'it''s'", "''", "'.'")
            return f"{self._operand()} {maybe_not}{test} {text}"
        if kind < 0.5:
            signs = ("=", "<>", "<", "<=", ">", ">=")
            return f"{self._operand()} {self._any(*signs)} {self._operand()}"
        if kind < 0.65:
            return f"{self._any(*NAMES)} IS {maybe_not}NULL"
        if kind < 0.8:
            strings = [self._any("'x'", "'5'", "'it''s'", "''") for _ in range(2)]
            return f"{self._any(*NAMES)} {maybe_not}IN ( {' , '.join(strings)} )"
        if kind < 0.95:
            ends = f"{self._operand()} AND {self._operand()}"
            return f"{self._operand()} {maybe_not}BETWEEN {ends}"
        return self._any("TRUE", "FALSE", "NULL", "a")

    def _operand(self) -> str:
        chosen = self._chance.random()
        if chosen < 0.5:
            return self._any(*NAMES)
        return self._any(*LITERALS) if chosen < 0.9 else self._any("TRUE", "FALSE", "NULL")

    def _any(self, *choices: str) -> str:
        return self._chance.choice(choices)


def our_answers(expression: str, properties: list[dict[str, str]]) -> list[str] | None:
    answers = [answer(expression, one) for one in properties]
    return None if answers[0] == "syntax" else answers


def without_tail(expression: str) -> str | None:
    """The complete expression with which a refused one begins, if there is one."""
    try:
        SqlFilter(expression)
    except FilterSyntaxError as error:
        if "the end" not in str(error) or not isinstance(error.position, int):
            return None
        return expression[: error.position - 1]
    return expression


def test_filters(engine: Engine, version: str, chance: random.Random) -> None:
    """Both sides refuse the same expressions, and give the same answers by the others: true, false,
    unknown, or a failure."""
    expressions = [Expressions(chance, version).take() for _ in range(1500)]
    properties = [
        {name: chance.choice(VALUES) for name in NAMES if chance.random() < 0.8} for _ in range(12)
    ]
    said = engine.ask("matches", expressions=expressions, properties=properties)
    kinds: set[str] = set()
    for expression, theirs in zip(expressions, said, strict=True):
        ours = our_answers(expression, properties)
        if ours is None and theirs is not None:  # the engine ignores words behind an expression
            complete = without_tail(expression)
            assert complete is not None, expression
            ours = our_answers(complete, properties)
        assert ours == theirs, expression
        kinds.update(theirs or ["syntax"])
    assert kinds == {"true", "false", "null", "throws", "syntax"}


# --- pulls -----------------------------------------------------------------------------------

#: Tags with the same hash are neighbours: a broker compares only the hash.
TAGS = (
    "*",
    "tag",
    "Aa||BB",
    " tag || 标签",
    "Aa || BB || tag",
    "nothing",
    "tag || *",
    "| tag",
    "",
)
SQL = ("a IS NULL", "TAGS = 'tag'", "KEYS IS NOT NULL AND TAGS <> 'tag'", "trace IS NOT NULL")


def limits(chance: random.Random) -> Row:
    return {
        "maxTransferBytesOnMessageInMemory": chance.choice((300, 2000, 1 << 18)),
        "maxTransferCountOnMessageInMemory": chance.choice((1, 7, 32)),
        "maxTransferBytesOnMessageInDisk": chance.choice((300, 1000, 1 << 16)),
        "maxTransferCountOnMessageInDisk": chance.choice((1, 3, 8)),
        "accessMessageInMemoryMaxRatio": chance.choice((0, 40)),
    }


def our_filter(pull: Row) -> MessageFilter | None:
    if pull["type"] is None:
        return None
    return (TagFilter if pull["type"] == "TAG" else SqlFilter)(pull["expression"])


def our_row(store: MessageStore, pull: Row) -> Row:
    where = (pull["topic"], pull["queueId"], pull["offset"], pull["maxMsgNums"])
    found = store.get_message(*where, our_filter(pull))
    return {
        "status": found.status.value,
        "nextBeginOffset": found.next_begin_offset,
        "suggestPullingFromSlave": found.suggest_pulling_from_slave,
        "physicalOffsets": [record.physical_offset for record in found.records],
    }


def pulls(chance: random.Random, store: EngineStore) -> list[Row]:
    made = []
    for queue in store.ends()["queue"]:
        for _ in range(60):
            kind = chance.choice((None, "TAG", "SQL92"))
            expressions = {None: ("",), "TAG": TAGS, "SQL92": SQL}[kind]
            made.append(
                {
                    "topic": queue["topic"],
                    "queueId": queue["queueId"],
                    "offset": chance.randint(-1, queue["maxOffset"] + 2),
                    "maxMsgNums": chance.choice((1, 2, 8, 32, 1000)),
                    "type": kind,
                    "expression": chance.choice(expressions),
                }
            )
    return made


@only("4.9.3")
def test_pulls(engine: Engine, chance: random.Random, tmp_path: Path) -> None:
    """Pulls from every place, with all limits of an answer and both kinds of filters, are answered
    alike."""
    values: Row = {**settings(chance, light_queues=False), **limits(chance)}
    root, statuses = tmp_path / "store", set()
    store = engine.open(root, values)
    messages = Messages(chance, values, engine.version).take(500)
    for message in messages:
        message.topic = TOPICS[chance.randrange(2)]
    store.put(messages)
    asked = pulls(chance, store)
    said = engine.ask("pull", store=store.name, pulls=asked)
    with MessageStore(root, config_of(values)) as reader:
        for pull, theirs in zip(asked, said, strict=True):
            assert our_row(reader, pull) == theirs, pull
            statuses.add(theirs["status"])
    store.shutdown()
    assert {"FOUND", "NO_MATCHED_MESSAGE", "OFFSET_OVERFLOW_BADLY"} <= statuses


# --- a broker's JSON -------------------------------------------------------------------------

STRINGS = (
    "",
    "topic@group",
    "%RETRY%g",
    "主题",
    'quote"',
    "back\\slash",
    "\x7f\x85\u2028/",
    "\t\n\x01",
)
STRAYS = ("'", '"', "{", "}", "[", "]", ",", ":", "/**/", "0", "-", "1e5", "\\u00e9", "\x00", "tru")


def value(chance: random.Random, depth: int = 3) -> Any:
    kind = chance.random()
    if depth and kind < 0.5:
        keys = chance.sample(STRINGS, chance.randrange(4))
        return {key: value(chance, depth - 1) for key in keys}
    if depth and kind < 0.65:
        return {chance.randrange(16): chance.randrange(1 << 40) for _ in range(chance.randrange(4))}
    if depth and kind < 0.75:
        return [value(chance, depth - 1) for _ in range(chance.randrange(3))]
    # Gson, with which the driver answers, takes multiples of 2^64 for text: so the largest is odd.
    return chance.choice((*STRINGS, 0, -1, 1 << 62, (1 << 70) + 1, 2.5, True, False, None))


def as_a_broker_keeps_it(value: Any) -> Any:
    """A value as fastjson keeps and writes it: without nulls, and with keys as text."""
    if isinstance(value, dict):
        kept = {str(k): as_a_broker_keeps_it(v) for k, v in value.items()}
        return {key: item for key, item in kept.items() if item is not None}
    if isinstance(value, list):
        return [as_a_broker_keeps_it(item) for item in value]
    return value


@only("4.9.3")
def test_json_of_a_broker(engine: Engine, chance: random.Random) -> None:
    """JSON that rmqctl reads has the same value for fastjson, and both write it alike."""
    texts = []
    for _ in range(1500):
        text = fastjson.dumps({"offsetTable": value(chance)})
        if chance.random() < 0.5:
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice(STRAYS) + text[at + chance.randint(0, 2) :]
        texts.append(text)
    said = engine.ask("json", texts=texts)
    read = 0
    for text, theirs in zip(texts, said, strict=True):
        try:
            ours = as_a_broker_keeps_it(fastjson.parse(text, duplicates=[]))
        except ConfigFileUnreadable:
            continue  # stricter than fastjson, as documented
        assert theirs is not None, text
        assert ours == theirs["value"], text
        read += 1
        if not re.search(r"\[|null|[0-9][.e]", text):
            assert fastjson.dumps(ours) == theirs["text"], text
    assert 500 < read < 1400
