"""The page with the findings of a verification, and their places in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from rmqctl.cli.browse.model.findings import Findings
from rmqctl.cli.browse.screens.jobs import JobPage
from rmqctl.cli.text import visible

if TYPE_CHECKING:
    from rmqctl.cli.browse.model.lines import Line
    from rmqctl.cli.browse.model.opened import Opened


class FindingsPage(JobPage):
    """Shows one verification, which goes on while other pages are shown. ``r`` begins a new one."""

    DEFAULT_CSS = """
    FindingsPage > #map { height: 2; }
    FindingsPage > #detail { height: auto; max-height: 8; border-top: solid $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "look_again", "Verify again"),
        Binding("v", "nothing", show=False),
        Binding("f", "find", show=False),
        Binding("t", "time", show=False),
    ]
    work_name = "verify"

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened, "› findings of verify")
        self._key: tuple[str, int] | None = None
        self._count = -1
        self._again = False

    def extras(self) -> list[Widget]:
        return [Static(id="map", markup=False), Static(id="detail", markup=False)]

    def the_job(self) -> Findings:
        assert self.opened.findings is not None
        return self.opened.findings

    def make_source(self) -> Findings:
        if self.opened.findings is None or self._again:
            self._again = False
            self.opened.findings = Findings(self.opened)
            self.start(self.opened.findings)
        return self.opened.findings

    def action_look_again(self) -> None:
        self._again, self._key = True, None
        super().action_look_again()

    def action_nothing(self) -> None:
        """Does nothing: ``v`` leads to this page."""

    def came_back_to_another_store(self) -> None:
        """Keeps the findings, though the store was opened again meanwhile."""

    def look(self) -> None:
        job, lines = self.the_job(), self.lines
        if job.count() != self._count:
            self._count = job.count()
            lines.changed()
            if self._key is not None and lines.is_ready:
                lines.go_to(job.number_of(self._key))
        self.show_progress()
        self.note_state()

    def show_progress(self) -> None:
        job = self.the_job()
        self.show_state("   ".join(part for part in (job.verdict(), self.state_text()) if part))
        self._show_map()

    def _show_map(self) -> None:
        job = self.the_job()
        columns = max(self.size.width, 1)
        found = job.finding(self.lines.cursor)
        here = ""
        if found is not None and found.physical_offset is not None:
            here = " " * job.column_of(found.physical_offset, columns) + "▲"
        self.query_one("#map", Static).update(Text(f"{job.marks(columns)}\n{here}"))

    def moved(self, number: int, line: Line | None) -> None:
        super().moved(number, line)
        job = self.the_job()
        if line is not None:
            self._key = job.key_of(number)
        detail = Text()
        for name, text in job.detail(number):
            detail.append(f"{name}  ", "bold")
            detail.append(f"{visible(text)}\n")
        detail.rstrip()
        self.query_one("#detail", Static).update(detail)
        self.show_progress()

    def chosen(self, number: int, line: Line) -> None:
        from rmqctl.cli.browse.screens.lists import MessagesPage

        place = line.place
        if place.physical_offset is not None:
            self.open_log(place.physical_offset)
        elif place.topic is not None and place.queue_id is not None:
            where = place.topic, place.queue_id, place.queue_offset
            self.open(MessagesPage(self.opened, *where))
        else:
            self.tell("this finding has no place in the log")
