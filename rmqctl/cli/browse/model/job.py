"""Long work in a thread, with progress, which can be stopped."""

from __future__ import annotations

from collections.abc import Callable

from rmqctl.cli.browse.model.lines import Cancelled, Stop, go_on
from rmqctl.errors import RmqctlError

WAITING, RUNNING, DONE, STOPPED, FAILED = "waiting", "running", "done", "stopped", "failed"


class Job:
    """One run of :meth:`work` in a thread. The page that shows it polls its state.

    ``done`` goes up to ``total``, both in bytes of log. ``total`` is 0 if there is nothing to
    count. ``error`` is the error that has ended it.
    """

    def __init__(self) -> None:
        self.state = WAITING
        self.done = 0
        self.total = 0
        self.error: Exception | None = None

    @property
    def is_over(self) -> bool:
        return self.state in (DONE, STOPPED, FAILED)

    def work(self, stop: Stop) -> None:
        raise NotImplementedError

    def run(self, stop: Stop) -> None:
        """Runs the work to its end. An error of reading ends it, and is kept in ``error``."""
        self.state = RUNNING
        try:
            self.work(stop)
            self.state = DONE
        except Cancelled:
            self.state = STOPPED
        except (RmqctlError, OSError, MemoryError) as error:
            self.error = error
            self.state = FAILED

    def advance(self, stop: Stop) -> Callable[[int], None]:
        """A ``progress`` callback for an operation. It ends the operation once ``stop`` is set."""

        def progress(done: int) -> None:
            go_on(stop)
            self.done = done

        return progress

    def progress_text(self) -> str:
        """For example ``34 %``; empty if there is nothing to count."""
        if not self.total or self.is_over:
            return ""
        return f"{min(self.done * 100 // self.total, 100)} %"
