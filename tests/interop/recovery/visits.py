"""Runs the engine on many stores at once: it opens each, writes to it, dumps and queries it, and
shuts it down."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from rmqctl.engine.record.message import MessageExtBrokerInner
from tests.interop.engine import Engine, Row, message_row

Rows = dict[str, list[Row]]
#: A message, or those of a batch.
Put = MessageExtBrokerInner | list[MessageExtBrokerInner]

#: Visits at a time; a start or a stop of the engine is mostly waiting.
THREADS = 12


@dataclass
class Visit:
    """What the engine is to do with the store ``root``: put ``messages``; with ``expires``, delete
    expired log files; and then dump the store, with the messages at the physical offsets ``look``,
    the hits of each (topic, key) in ``ask``, and one message at each (topic, queue id, queue
    offset) in ``pull``."""

    root: Path
    values: Row
    messages: Sequence[Put] = ()
    expires: bool = False
    look: Iterable[int] = ()
    ask: Iterable[tuple[str, str]] = ()
    pull: Iterable[tuple[str, int, int]] = ()


@dataclass
class Visited:
    """What the engine said. ``why`` is the reason when it did not start, and ``error`` when it
    started and did not come to a proper stop."""

    why: str = ""
    error: str = ""
    rows: Rows = field(default_factory=dict)

    @property
    def is_sound(self) -> bool:
        return not self.why and not self.error

    @cached_property
    def messages(self) -> dict[int, Row]:
        """The messages by physical offset: those of the log, as far as the engine can read it, and
        those of ``Visit.look``."""
        found = {row["physicalOffset"]: row for row in self.rows.get("message", [])}
        for row in self.rows.get("look", []):
            if row["message"] is not None:
                found.setdefault(row["offset"], row["message"])
        return found

    @cached_property
    def units(self) -> dict[tuple[str, int, int], tuple[int, int]]:
        """(topic, queue id, queue offset) → (physical offset, size) of each unit, but for units
        that were never written and pre-blank units."""
        return {
            (row["topic"], row["queueId"], row["queueOffset"]): (row["physicalOffset"], row["size"])
            for row in self.rows.get("unit", [])
            if 0 < row["size"] < PRE_BLANK_SIZE
        }

    @cached_property
    def hits(self) -> dict[tuple[str, str], set[int]]:
        """(topic, key) → physical offsets of the messages that a query for it gives."""
        return {
            (row["topic"], row["key"]): set(row["physicalOffsets"])
            for row in self.rows.get("query", [])
        }

    @cached_property
    def pulled(self) -> dict[tuple[str, int, int], Row]:
        """(topic, queue id, queue offset) → the answer to a pull of one message from there."""
        return {
            (row["asked"]["topic"], row["asked"]["queueId"], row["asked"]["offset"]): row["answer"]
            for row in self.rows.get("pull", [])
        }

    @property
    def log_range(self) -> LogRange:
        (row,) = self.rows["store"]
        return LogRange(row["minPhyOffset"], row["maxPhyOffset"])


PRE_BLANK_SIZE = 0x7FFFFFFF


class LogRange(NamedTuple):
    """First physical offset of a log, and the one after its last record."""

    start: int
    end: int


def visit(engine: Engine, visits: Sequence[Visit]) -> list[Visited]:
    """Does all visits. When one did not come to its end, the engine's process is ended afterwards,
    and the next call needs a new one."""
    requests = [_request(one) for one in visits]
    answers = engine.ask("visit", stores=requests, threads=THREADS)
    done = []
    for request, answer in zip(requests, answers, strict=True):
        rows = _rows(Path(request["to"]))
        done.append(Visited(answer.get("why", ""), answer.get("error", ""), rows))
    if any(one.error or "come to an end" in one.why for one in done):
        engine.kill()
    return done


def _request(one: Visit) -> Row:
    request: Row = {
        "root": str(one.root),
        "config": values_at(one.root, one.values),
        "to": f"{one.root}.dump.ndjson",
        "expires": one.expires,
        "look": sorted(one.look),
        "ask": sorted(one.ask),
        "pull": [
            {"topic": topic, "queueId": queue_id, "offset": offset, "maxMsgNums": 1, "type": None}
            for topic, queue_id, offset in sorted(one.pull)
        ],
    }
    if one.messages:
        path = Path(f"{one.root}.messages.ndjson")
        with path.open("w", encoding="utf-8") as lines:
            for put in one.messages:
                rows = [message_row(m) for m in (put if isinstance(put, list) else [put])]
                lines.write(json.dumps(rows) + "\n")
        request["messages"] = str(path)
    return request


def values_at(root: Path, values: Row) -> Row:
    """The settings for a store at ``root``, with this path in place of ``{root}``."""
    return {
        name: value.replace("{root}", str(root)) if isinstance(value, str) else value
        for name, value in values.items()
    }


def _rows(path: Path) -> Rows:
    rows: Rows = {}
    if path.exists():
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                row: Row = json.loads(line)
                rows.setdefault(row["kind"], []).append(row)
        path.unlink()
    return rows
