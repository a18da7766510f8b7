"""The page with the results of a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from rmqctl.cli.browse.model.job import DONE
from rmqctl.cli.browse.model.messages import Found
from rmqctl.cli.browse.screens.jobs import JobPage
from rmqctl.cli.browse.screens.places import MessagePage

if TYPE_CHECKING:
    from rmqctl.cli.browse.model.lines import Line
    from rmqctl.cli.browse.model.opened import Opened

_NOT_SEARCHED = {
    "log": "properties and bodies (s reads the log)",
    "no-index": "keys: the store has no index files",
    "topics-without-queues": "topics without queues: config/topics.json is broken",
    "before-index": "keys of messages before the first index file",
    "irregular-index-files": "index files of a wrong length",
    "damaged-parts": "damaged parts of the log",
    "compressed-bodies": "compressed bodies that cannot be decompressed",
    "uploaded-files": "uploaded messages that are no longer in the log (rmqctl tiered query)",
    "other-topics": "other topics (f on the first page)",
    "beyond-limit": "what comes after these",
}


class FoundPage(JobPage):
    """Shows messages found by a key or an id. ``s`` searches the whole log for the text."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "scan", "Scan the log"),
        Binding("t", "time", show=False),
        Binding("l", "log", show=False),
        Binding("v", "findings", show=False),
    ]
    work_name = "find"

    def __init__(
        self, opened: Opened, text: str, topic: str | None, *, scans: bool = False
    ) -> None:
        where = "" if topic is None else f" in {topic}"
        super().__init__(opened, f"› {text!r}{where}")
        self.topic = topic
        self._text = text
        self._scans = False
        self._job: Found | None = None
        self._has_told = False

    def the_job(self) -> Found:
        assert self._job is not None
        return self._job

    def make_source(self) -> Found:
        self._has_told = False
        self._job = Found(self.opened, self._text, self.topic, scans=self._scans)
        self.start(self._job)
        return self._job

    def action_scan(self) -> None:
        self._scans = True
        self.list_anew()

    def show_progress(self) -> None:
        job = self.the_job()
        count = job.count()
        self.show_state(f"{count:,} found   {self.state_text()}")
        if job.state == DONE and not self._has_told:
            self._has_told = True
            left_out = ", ".join(_NOT_SEARCHED.get(name, name) for name in job.not_searched)
            self.tell(f"not looked at: {left_out}" if left_out else "everything was looked at")

    def moved(self, number: int, line: Line | None) -> None:
        super().moved(number, line)
        self.show_progress()

    def chosen(self, number: int, line: Line) -> None:
        page = MessagePage(self.opened, self.the_job(), number, line.place)
        self.open(page, self.came_back)

    def action_back(self) -> None:
        self.action_stop()
        super().action_back()
