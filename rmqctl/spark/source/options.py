"""The options of the data source: their names, their values, and where they apply.

They have the names of Spark's Kafka source if they mean the same. Spark passes them as strings, and
ignores the case of the names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NamedTuple

from formats.constants import INT_MAX, LONG_MAX
from rmqctl.rows.columns import STRUCTURES, default_names
from rmqctl.spark.source.pushdown import Bounds, QueueOffsets, decode

#: Special offsets in the text of offsets by queue: the oldest message, and behind the newest one.
EARLIEST, LATEST = -2, -1
#: Why offsets by queue cannot be used with several stores.
ONE_STORE = "offsets as JSON are those of one store's queues: read each store alone, or give times"
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class Option(NamedTuple):
    """An option. The letters of ``holds_in`` say where it applies: a batch (``b``), a stream
    (``s``), a write (``w``), the write of a stream (``t``)."""

    name: str
    holds_in: str
    meaning: str


OPTIONS = (
    Option("path", "bswt", "the store, a pattern of several, or a list with commas; or URLs"),
    Option("paths", "b", "the same as `load([…])` gives it"),
    Option("brokerConf", "bswt", "a broker.conf: its path, or its text"),
    Option("structure", "bs", "`commitlog` (default), `queue` or `index`"),
    Option("columns", "bs", "the wanted columns with commas; `*`: all, bodies too"),
    Option(
        "checkCrc",
        "bs",
        "`true`: `status` tells of damaged bodies; default, `auto`: if they are read",
    ),
    Option("splitBytes", "bs", "bytes of log a task, such as `64m`; default `256m`"),
    Option("minPartitions", "bs", "of the log at least so many tasks, where it is long enough"),
    Option("parallelism", "bs", "tasks that run at once; default: the cores of the driver's host"),
    Option("failOnDataLoss", "bs", "`true`: damage ends the query; default: damage comes as rows"),
    Option("subscribe", "bs", "topics, with commas: the messages of others are left out"),
    Option("subscribePattern", "bs", "a regular expression that the whole of a topic matches"),
    Option("startingOffsets", "bs", "`earliest`, in a stream `latest`, or JSON by topic and queue"),
    Option("startingTimestamp", "bs", "epoch milliseconds: messages stored then or later"),
    Option("endingOffsets", "b", "`latest`, or JSON by topic and queue; the last one is left out"),
    Option("endingTimestamp", "b", "epoch milliseconds: messages stored before"),
    Option("clockSlackMs", "bs", "by how much store times may go back; `-1`: by anything"),
    Option("where", "b", "conditions as JSON, which `scan` makes"),
    Option("maxBytesPerTrigger", "s", "bytes of log a batch, all stores together, such as `64m`"),
    Option("maxOffsetsPerTrigger", "s", "messages a batch, all stores together"),
    Option("asStored", "wt", "`true`: bodies and flags are written as they are"),
    Option("txnAppId", "wt", "a name: jobs of it append each `txnVersion` once; a stream has one"),
    Option("txnVersion", "w", "a number that grows from job to job of the name"),
    Option("checkpointLocation", "t", "Spark's own: where a stream keeps how far it is"),
)
_BY_FOLDED = {option.name.lower(): option for option in OPTIONS}
_PLACES = {"b": "spark.read", "s": "spark.readStream", "w": "df.write", "t": "df.writeStream"}


def check(options: Iterable[str], place: str) -> None:
    """Checks the names of options for ``place`` (a letter of ``holds_in``).

    :raises ValueError: there is no such option, or it does not apply there.
    """
    for given in options:
        known = _BY_FOLDED.get(given.lower())
        if known is None:
            near = get_close_matches(given.lower(), _BY_FOLDED, 1)
            meant = f" Is {_BY_FOLDED[near[0]].name} meant?" if near else ""
            here = ", ".join(option.name for option in OPTIONS if place in option.holds_in)
            raise ValueError(f"unknown option {given}.{meant} {_PLACES[place]} takes {here}.")
        if place not in known.holds_in:
            takers = " and ".join(_PLACES[letter] for letter in known.holds_in)
            raise ValueError(f"option {known.name} is one of {takers}, not of {_PLACES[place]}")


def wanted_columns(structure: str, names: str | Iterable[str] | None) -> list[str]:
    """The columns with these names, in any case; None: the default columns, ``*``: all.

    :raises ValueError: there is no such structure or column, or one is named twice.
    """
    if names is None or names == "":
        return default_names(structure)
    default_names(structure)  # It raises the error for an unknown structure.
    known = {column.name.lower(): column.name for column in STRUCTURES[structure]}
    asked = names.split(",") if isinstance(names, str) else list(names)
    found: list[str] = []
    for name in (name.strip() for name in asked):
        if name == "*":
            found += known.values()
        elif name.lower() in known:
            found.append(known[name.lower()])
        else:
            raise ValueError(f"{structure} has no column {name!r}, but {', '.join(known.values())}")
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise ValueError(f"columns name {', '.join(twice)} twice: a table has each column once")
    return found


def check_crc(options: Mapping[str, str]) -> bool | None:
    """Whether bodies are checked; None: only if they are read.

    :raises ValueError: the option has an unknown value.
    """
    text = options.get("checkCrc", "auto").lower()
    if text not in ("true", "false", "auto"):
        raise ValueError(f"option checkCrc is true, false or auto, not {options['checkCrc']!r}")
    return None if text == "auto" else text == "true"


def flag(options: Mapping[str, str], name: str, otherwise: bool = False) -> bool:
    """An option that is ``true`` or ``false``. :raises ValueError: it is neither."""
    text = options.get(name, str(otherwise)).lower()
    if text not in ("true", "false"):
        raise ValueError(f"option {name} is true or false, not {options[name]!r}")
    return text == "true"


def number(options: Mapping[str, str], name: str, otherwise: int) -> int:
    """An option that is an integer. :raises ValueError: it is not, or has more than 64 bits."""
    text = options.get(name, "").strip()
    if not text:
        return otherwise
    if not re.fullmatch(r"-?[0-9]{1,19}", text) or abs(int(text)) > LONG_MAX:
        raise ValueError(f"option {name} is a number, not {text!r}")
    return int(text)


def size(options: Mapping[str, str], name: str, otherwise: int) -> int:
    """An option that is a number of bytes, such as ``64m`` or ``1gb``; 0: no limit. :raises
    ValueError: it is invalid."""
    text = options.get(name, "").strip()
    if not text:
        return otherwise
    match = re.fullmatch(r"([0-9]{1,19})\s*([kmgt]?)b?", text.lower())
    if match is None:
        raise ValueError(f"option {name} is a number of bytes such as 64m, not {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def offsets(text: str, name: str) -> QueueOffsets:
    """Queue offsets by topic and queue id, from a text such as ``{"orders": {"0": 23, "1": -2}}``.

    :raises ValueError: the text is invalid.
    """
    wrong = ValueError(
        f'option {name} is JSON such as {{"orders": {{"0": 23, "1": -2}}}} (topic, queue, queue '
        f"offset; -2 is the earliest, -1 the latest), not {text[:80]!r}"
    )
    try:
        by_topic = json.loads(text)
    except (ValueError, RecursionError):
        raise wrong from None
    found: QueueOffsets = {}
    for topic, queues in by_topic.items() if isinstance(by_topic, dict) else [("", None)]:
        for queue_id, offset in queues.items() if isinstance(queues, dict) else [("", None)]:
            is_queue = re.fullmatch(r"[0-9]{1,10}", queue_id) and int(queue_id) <= INT_MAX
            if not is_queue or type(offset) is not int or not EARLIEST <= offset <= LONG_MAX:
                raise wrong
            found[topic, int(queue_id)] = offset
    return found


def bounds(options: Mapping[str, str], structure: str, *, is_stream: bool) -> Bounds:
    """The bounds that the options set. The start of a stream is no bound: it is in its offsets.

    :raises ValueError: options are invalid, contradict each other, or do not fit the structure.
    """
    found = decode(options.get("where", "[]"))
    _subscribe(found, options)
    of_the_log = ("startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp")
    for name in of_the_log:
        if name in options and structure != "commitlog":
            raise ValueError(f"option {name} is one of the commitlog, not of structure {structure}")
    for kind in ("starting", "ending"):
        if {f"{kind}Offsets", f"{kind}Timestamp"} <= {n for n in of_the_log if n in options}:
            raise ValueError(f"give {kind}Offsets or {kind}Timestamp, not both")
    if is_stream:
        return found
    if "startingTimestamp" in options:
        found.at_least("store_timestamp", number(options, "startingTimestamp", 0))
    if "endingTimestamp" in options:
        found.at_most("store_timestamp", number(options, "endingTimestamp", 0) - 1)
    start, end = options.get("startingOffsets", "earliest"), options.get("endingOffsets", "latest")
    if start.lower() == "latest":
        raise ValueError("startingOffsets=latest is one of streams: a batch would have no row")
    if end.lower() == "earliest":
        raise ValueError("endingOffsets=earliest: a batch would have no row")
    if start.lower() != "earliest":
        found.start_queues(_of_a_batch(start, "startingOffsets", LATEST))
    if end.lower() != "latest":
        found.end_queues(_of_a_batch(end, "endingOffsets", EARLIEST))
    return found


@dataclass(frozen=True)
class Following:
    """How a stream reads: where it starts (``earliest``, ``latest``, queue offsets, or a store time
    in epoch milliseconds), the limits of a batch (0: none), and the bounds."""

    start: str | QueueOffsets | int = "earliest"
    max_bytes: int = 0
    max_offsets: int = 0
    bounds: Bounds = field(default_factory=Bounds)


def following(options: Mapping[str, str], structure: str) -> Following:
    """How a stream with these options reads. :raises ValueError: options are invalid, or contradict
    each other."""
    left_out = bounds(options, structure, is_stream=True)
    start: str | QueueOffsets | int = options.get("startingOffsets", "earliest")
    if "startingTimestamp" in options:
        start = number(options, "startingTimestamp", 0)
    elif isinstance(start, str) and start.lower() in ("earliest", "latest"):
        start = start.lower()
    elif isinstance(start, str):
        start = offsets(start, "startingOffsets")
    most = number(options, "maxOffsetsPerTrigger", 0)
    if most < 0:
        raise ValueError(f"option maxOffsetsPerTrigger is a number of messages, not {most}")
    return Following(start, size(options, "maxBytesPerTrigger", 0), most, left_out)


def _of_a_batch(text: str, name: str, not_here: int) -> QueueOffsets:
    """The queue offsets at one end of a batch. The special offset ``not_here`` is refused, because
    with it the batch would be empty."""
    given = offsets(text, name)
    if not_here in given.values():
        raise ValueError(f"{not_here} in {name}: a batch would have no row of that queue")
    return {queue: offset for queue, offset in given.items() if offset >= 0}


def _subscribe(found: Bounds, options: Mapping[str, str]) -> None:
    if "subscribe" in options and "subscribePattern" in options:
        raise ValueError("give subscribe or subscribePattern, not both")
    if "subscribe" in options:
        topics = {name.strip() for name in options["subscribe"].split(",")} - {""}
        if not topics:
            raise ValueError("option subscribe names no topic")
        found.only_these("topic", topics)
    if "subscribePattern" in options:
        try:
            found.topics_like = re.compile(options["subscribePattern"])
        except re.error as error:
            raise ValueError(f"option subscribePattern is no regular expression: {error}") from None
