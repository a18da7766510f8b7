"""The pages for a place of the log: one message, and the log around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType

from rmqctl.cli.browse.model.log import Log
from rmqctl.cli.browse.model.message import HEX, VIEWS, Message
from rmqctl.cli.browse.screens.page import Page
from rmqctl.cli.browse.widgets.threads import in_background

if TYPE_CHECKING:
    from rmqctl.cli.browse.model.lines import Line, Place, Source
    from rmqctl.cli.browse.model.opened import Opened


class MessagePage(Page):
    """Shows the entry to which a line of a list leads. ``n`` and ``p`` go to the next and previous
    line of that list, and its cursor follows. The hex view also shows damage."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "view", "View"),
        Binding("1", "view('text')", "Text", show=False),
        Binding("2", "view('JSON')", "JSON", show=False),
        Binding("3,x", "view('hex')", "Bytes", key_display="x"),
        Binding("enter", "open_line", show=False),
        Binding("t", "time", show=False),
        Binding("v", "findings", show=False),
        Binding("n", "next(1)", "Next"),
        Binding("p,N", "next(-1)", "Prev", key_display="p"),
    ]

    def __init__(
        self,
        opened: Opened,
        origin: Source,
        number: int,
        place: Place,
        view: str | None = None,
    ) -> None:
        super().__init__(opened, "")
        self._origin = origin
        self._at = number
        self._place = place
        self._view = view
        self._width = 0

    def make_source(self) -> Message:
        place = self._place
        assert place.physical_offset is not None
        self.topic = place.topic
        queue = "" if place.topic is None else f"› {place.topic} › {place.queue_id} "
        at = "" if place.queue_offset is None else f"› {place.queue_offset} "
        self.crumbs = f"{queue}{at}› log {place.physical_offset}"
        self.show_title()
        self._width = self.size.width
        return Message(self.opened, place.physical_offset, self._view, self._width)

    def on_resize(self, event: events.Resize) -> None:
        if self._width and self._width != self.size.width:
            self.list_anew(0)

    def action_view(self, view: str = "") -> None:
        source = self.lines.source
        assert isinstance(source, Message)
        after = VIEWS[(VIEWS.index(source.view or HEX) + 1) % len(VIEWS)]
        self._view = view or after
        self.list_anew()

    def action_log(self) -> None:
        self.open_log(self._place.physical_offset)

    def action_next(self, by: int) -> None:
        in_background(self, "next", self._next, by)

    async def _next(self, by: int) -> None:
        number = self._at + by
        found = await self.work_out(
            lambda stop: self._origin.load(number, number + 1, stop).get(number)
        )
        if found is None:
            self.tell("there is no other" if by > 0 else "this is the first")
        elif found.place.physical_offset is None:
            self._at = number
            self.tell(f"passed over: {found.note or found.cells[0]}")
        else:
            self._at, self._place = number, found.place
            self.list_anew()

    def action_back(self) -> None:
        self.dismiss(self._at)


class LogPage(Page):
    """Shows the log around a place, or from a time on; without both, at its end."""

    def __init__(
        self, opened: Opened, physical_offset: int | None, *, time: int | None = None
    ) -> None:
        super().__init__(opened, "› log")
        self._wanted = physical_offset
        self._time = time

    def make_source(self) -> Log:
        return Log(self.opened, self._wanted, self._time)

    @property
    def _log(self) -> Log:
        source = self.lines.source
        assert isinstance(source, Log)
        return source

    def moved(self, number: int, line: Line | None) -> None:
        super().moved(number, line)
        # When the store is opened again, the log is shown from here.
        if line is not None and line.place.physical_offset is not None:
            self._wanted, self._time = line.place.physical_offset, None

    def list_anew(self, number: int | None = None) -> None:
        super().list_anew(0)

    def chosen(self, number: int, line: Line) -> None:
        if line.place.physical_offset is None:
            return
        # Damage has no topic, and is shown as bytes.
        view = HEX if line.place.topic is None else None
        page = MessagePage(self.opened, self._log, number, line.place, view)
        self.open(page, self.came_back)

    def open_log(self, physical_offset: int | None, *, time: int | None = None) -> None:
        self._wanted, self._time = physical_offset, time
        self.list_anew()
