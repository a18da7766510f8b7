"""The pages with topics, the queues of a topic, and the messages of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from rmqctl.cli.browse.model.messages import QueueMessages
from rmqctl.cli.browse.model.queues import Queues, Topics
from rmqctl.cli.browse.screens.asked import queue_offset_of, queue_offset_problem
from rmqctl.cli.browse.screens.page import Page
from rmqctl.cli.browse.screens.places import MessagePage
from rmqctl.cli.browse.widgets.threads import in_background

if TYPE_CHECKING:
    from rmqctl.cli.browse.model.lines import Line
    from rmqctl.cli.browse.model.opened import Opened


class TopicsPage(Page):
    """Shows all topics. ``/`` filters them by name."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "narrow", "Name", key_display="/"),
    ]

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened, "› topics")
        self._part = ""

    def make_source(self) -> Topics:
        source = Topics(self.opened)
        source.part = self._part
        return source

    @property
    def _topics(self) -> Topics:
        source = self.lines.source
        assert isinstance(source, Topics)
        return source

    def action_narrow(self) -> None:
        label = "Topics with this in their name (empty: all):"
        self.ask(label, self._narrow, text=self._part, typed=self._narrow)

    def _narrow(self, part: str) -> None:
        self._part = part
        self._topics.choose(part)
        self.lines.changed()

    def moved(self, number: int, line: Line | None) -> None:
        super().moved(number, line)
        if self._topics.problem and (line is None or not line.note):
            self.tell(self._topics.problem)

    def chosen(self, number: int, line: Line) -> None:
        if line.place.topic is not None:
            self.open(QueuesPage(self.opened, line.place.topic))


class QueuesPage(Page):
    """Shows the queues of a topic."""

    def __init__(self, opened: Opened, topic: str) -> None:
        super().__init__(opened, f"› {topic}")
        self.topic = topic
        self._topic_name = topic

    def make_source(self) -> Queues:
        return Queues(self.opened, self._topic_name)

    def chosen(self, number: int, line: Line) -> None:
        if line.place.queue_id is not None:
            self.open(MessagesPage(self.opened, self._topic_name, line.place.queue_id))


class MessagesPage(Page):
    """Shows the messages of a queue, from a queue offset on; without one, at its end."""

    def __init__(
        self, opened: Opened, topic: str, queue_id: int, queue_offset: int | None = None
    ) -> None:
        super().__init__(opened, f"› {topic} › {queue_id}", queue_offset)
        self.topic = topic
        self._place = topic, queue_id

    def make_source(self) -> QueueMessages:
        return QueueMessages(self.opened, *self._place)

    @property
    def _messages(self) -> QueueMessages:
        source = self.lines.source
        assert isinstance(source, QueueMessages)
        return source

    def chosen(self, number: int, line: Line) -> None:
        if line.place.physical_offset is not None:
            page = MessagePage(self.opened, self._messages, number, line.place)
            self.open(page, self.came_back)

    def go_to_time(self, time: int) -> None:
        in_background(self, "time", self._go_to_time, time)

    async def _go_to_time(self, time: int) -> None:
        found = await self.work_out(lambda stop: self._messages.at_time(time))
        if found is None:
            self.lines.action_last()
            self.tell("nothing was stored then or later: this is the last message")
        else:
            self.lines.go_to(found)

    def action_place(self) -> None:
        self.ask(
            "Queue offset:",
            lambda text: self.lines.go_to(queue_offset_of(text)),
            check=queue_offset_problem,
        )
