"""``Browser``: the application, with its first screen, the keys of all screens, and how it ends."""

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
    """The application. Its result is an exit code. ``failure`` is the exception of a bug that has
    ended it, if one has.

    :param topic: begin with the queues of this topic, or with the messages of ``queue_id``.
    :param start: begin with the log around this physical offset.
    """

    TITLE = "rmqctl browse"
    # Textual's palette is off, because it can write screenshots into files.
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
        """Handles signals, so that the terminal is restored whenever a signal ends the process. If
        the terminal is gone (SIGHUP), the process ends at once, and writes nothing."""
        import asyncio

        try:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, self.action_interrupt)
        except (RuntimeError, ValueError):
            return  # Only the main thread can handle signals.

    def action_keys(self) -> None:
        self.push_screen(HelpScreen())

    def action_leave(self) -> None:
        self.exit(0)

    def action_interrupt(self) -> None:
        self.exit(INTERRUPTED)

    def _handle_exception(self, error: Exception) -> None:
        """Ends the application after a bug. The command reports it in one line, like any other."""
        if isinstance(error, WorkerFailed) and isinstance(error.error, Exception):
            error = error.error
        self.failure = self.failure or error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """Prints no traceback: that of Textual has the values of all variables, and data of a store
        is hostile."""
        self._close_messages_no_wait()
