"""``Browser``: the application: the first screen, the keys of all screens, and its end."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.worker import WorkerFailed

from rmqctl.cli.browse.screens.help import HelpScreen
from rmqctl.cli.browse.screens.lists import MessagesPage, QueuesPage, TopicsPage
from rmqctl.cli.browse.screens.places import LogPage

if TYPE_CHECKING:
    from rmqctl.cli.browse.model.opened import Opened
    from rmqctl.cli.browse.screens.page import Page

INTERRUPTED = 130


class Browser(App[int]):
    """Ends with an exit code. ``failure`` is the bug that ended it, if one did.

    :param topic: begin with its queues; with ``queue_id`` with the messages of one.
    :param start: begin with the log around this physical offset.
    """

    TITLE = "rmqctl browse"
    # It writes screenshots into files.
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "keys", "Keys", key_display="?"),
        Binding("q", "leave", "Quit"),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]

    def __init__(
        self,
        opened: Opened,
        *,
        topic: str | None = None,
        queue_id: int | None = None,
        start: int | None = None,
    ) -> None:
        super().__init__()
        self.opened = opened
        self.failure: Exception | None = None
        self._pages: list[Page] = [TopicsPage(opened)]
        if topic is not None:
            self._pages.append(QueuesPage(opened, topic))
            if queue_id is not None:
                self._pages.append(MessagesPage(opened, topic, queue_id))
        if start is not None:
            self._pages.append(LogPage(opened, start))

    def on_mount(self) -> None:
        for page in self._pages:
            self.push_screen(page)
        self._loop_signals()

    def _loop_signals(self) -> None:
        """A terminal is left as it was, whoever ends the process. One that has gone (SIGHUP) is
        not waited for: the signal ends the process, which writes nothing anywhere."""
        import asyncio

        try:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, self.action_interrupt)
        except (RuntimeError, ValueError):
            return  # Not the main thread: signals are not ours.

    def action_keys(self) -> None:
        self.push_screen(HelpScreen())

    def action_leave(self) -> None:
        self.exit(0)

    def action_interrupt(self) -> None:
        self.exit(INTERRUPTED)

    def _handle_exception(self, error: Exception) -> None:
        """A bug ends the application; the command tells of it as of any other, in one line."""
        if isinstance(error, WorkerFailed) and isinstance(error.error, Exception):
            error = error.error
        self.failure = self.failure or error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """Textual prints values of all variables with a traceback, and a store's are hostile."""
        self._close_messages_no_wait()
