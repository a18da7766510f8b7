"""Lists of the topics of a store, and of the queues of a topic. Names are read at once, other
values when they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.cli.browse.model.lines import DIM, WARNING, Column, Counted, Line, Place, Stop, go_on
from rmqctl.cli.browse.model.shown import to_the_second
from rmqctl.engine.services.anyqueue import opened_queue, queue_directories
from rmqctl.operations.look.topics import TopicList, list_topics, look_at_topic

if TYPE_CHECKING:
    from rmqctl.cli.browse.model.opened import Opened


class Topics(Counted):
    """The topics, or those with ``part`` in their name. Preparing it only lists directories, and
    opens no queue."""

    columns: tuple[Column, ...] = (
        Column("topic", 16, grows=1),
        Column("kind", 11, rank=2),
        Column("queues", 6, right=True, rank=1),
        Column("messages", 14, right=True),
        Column("last message", 19, rank=1),
    )
    noun = "topics"
    #: A topic may have thousands of queues, which are all opened for its line.
    at_once = 1

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._listed = TopicList({}, None, {})
        self._all: list[str] = []
        self.names: list[str] = []
        self.part = ""
        self.problem = ""

    def prepare(self, stop: Stop) -> None:
        configs, self.problem = self._opened.configs()
        self._listed = list_topics(self._opened.store, configs)
        self._all = self._listed.names
        self.choose(self.part)

    def choose(self, part: str) -> None:
        """Shows only topics with ``part`` in their name, in any case; empty: all topics."""
        self.part = part
        low = part.lower()
        self.names = [name for name in self._all if low in name.lower()]

    def count(self) -> int:
        return len(self.names)

    def where(self, number: int) -> str:
        return super().where(number) + (f" with {self.part!r}" if self.part else "")

    def line(self, number: int, stop: Stop) -> Line:
        name = self.names[number]
        row = look_at_topic(
            self._opened.store,
            self._listed,
            name,
            sums_bytes=False,
            progress=lambda queues: go_on(stop),
        )
        cells = (
            name,
            row["kind"],
            f"{row['queues']:,}",
            f"{row['messages']:,}",
            to_the_second(row["newest_store_timestamp"]),
        )
        is_odd = row["without_queues"] or row["without_config"]
        note = (
            "in config/topics.json, and has no queues"
            if row["without_queues"]
            else "has queues, and is not in config/topics.json: no consumer finds it"
            if row["without_config"]
            else ""
        )
        tone = WARNING if is_odd else "" if row["queues"] else DIM
        return Line(cells, tone, Place(topic=name), note)


class Queues(Counted):
    """The queues of one topic, by queue id."""

    columns: tuple[Column, ...] = (
        Column("queue", 10, right=True),
        Column("messages", 14, right=True),
        Column("first", 14, right=True, rank=1),
        Column("next", 14, right=True),
        Column("last message", 19, rank=2),
    )
    noun = "queues"

    def __init__(self, opened: Opened, topic: str) -> None:
        self._store = opened.store
        self.topic = topic
        self.queue_ids: list[int] = []

    def prepare(self, stop: Stop) -> None:
        found = queue_directories(self._store, self.topic)
        self.queue_ids = sorted({where.queue_id for where in found})

    def count(self) -> int:
        return len(self.queue_ids)

    def line(self, number: int, stop: Stop) -> Line:
        queue_id = self.queue_ids[number]
        place = Place(topic=self.topic, queue_id=queue_id)
        with opened_queue(self._store, self.topic, queue_id) as queue:
            if queue is None:
                gone = (str(queue_id), "gone")
                return Line(gone, WARNING, place, "its directory is gone: press r")
            cells = (
                str(queue_id),
                f"{queue.messages:,}",
                f"{queue.min_offset:,}",
                f"{queue.max_offset:,}",
                to_the_second(queue.stored_at(queue.max_offset - 1)),
            )
            wrong = len(queue.irregular)
        note = f"{wrong} files of a wrong length: v verifies" if wrong else ""
        return Line(cells, WARNING if wrong else "", place, note)
