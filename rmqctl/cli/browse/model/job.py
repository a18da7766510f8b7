"""Work that takes as long as it takes: it tells how far it is, and can be stopped."""

from __future__ import annotations

from collections.abc import Callable

from rmqctl.cli.browse.model.lines import Cancelled, Stop, go_on
from rmqctl.errors import RmqctlError

WAITING, RUNNING, DONE, STOPPED, FAILED = "waiting", "running", "done", "stopped", "failed"


class Job:
    """One run of :meth:`work`, in a thread; whoever shows it looks at it from time to time.

    ``done`` counts to ``total``, both in bytes of log; ``total`` is 0 where there is nothing to
    count. ``error`` is what ended it.
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
        """Works to the end; what cannot be read is noted, and ends it before."""
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
        """The ``progress`` of an operation, which ends it when it is no longer wanted."""

        def progress(done: int) -> None:
            go_on(stop)
            self.done = done

        return progress

    def progress_text(self) -> str:
        """``34 %``, or nothing."""
        if not self.total or self.is_over:
            return ""
        return f"{min(self.done * 100 // self.total, 100)} %"
