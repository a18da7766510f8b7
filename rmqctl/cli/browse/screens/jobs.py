"""``JobPage``: shows the lines of a job while it is running."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from rmqctl.cli.browse.model.job import DONE, FAILED, RUNNING, STOPPED, WAITING, Job
from rmqctl.cli.browse.model.lines import error_text
from rmqctl.cli.browse.screens.page import Page
from rmqctl.cli.browse.widgets.threads import in_background, in_thread

#: Seconds between two polls of a job.
INTERVAL = 0.2


class JobPage(Page):
    """A page whose source is a job. ``x`` stops the job."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("x", "stop", "Stop")]
    #: The name of its worker in the app.
    work_name = "job"
    _job_state = WAITING
    _is_stopping = False

    def the_job(self) -> Job:
        """The job to show."""
        raise NotImplementedError

    def on_mount(self) -> None:
        self.set_interval(INTERVAL, self.look)

    def start(self, job: Job) -> None:
        """Starts a job in place of the one before. It goes on when the page is left."""
        in_background(self.app, self.work_name, self._run, job)
        self._is_stopping = False

    async def _run(self, job: Job) -> None:
        await in_thread(job.run)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disables stopping once the job is over."""
        return action != "stop" or self._job_state not in (DONE, STOPPED, FAILED)

    def action_stop(self) -> None:
        if not self.the_job().is_over:
            self.app.workers.cancel_group(self.app, self.work_name)
            self._is_stopping = True

    def look(self) -> None:
        """Shows what is new since the last poll."""
        self.lines.grown()
        self.show_progress()
        self.note_state()

    def note_state(self) -> None:
        """Updates the shown keys to the state of the job."""
        if self._job_state != self.the_job().state:
            self._job_state = self.the_job().state
            self.refresh_bindings()

    def show_progress(self) -> None:
        """Shows how far the job is."""

    def state_text(self) -> str:
        """The state of the job in a few words."""
        job = self.the_job()
        if job.state in (WAITING, RUNNING) and self._is_stopping:
            return "stopping…"
        if job.state in (WAITING, RUNNING):
            return f"looking… {job.progress_text()} (x stops)".replace("  ", " ")
        if job.state == FAILED:
            assert job.error is not None
            return f"ended: {error_text(job.error)}"
        return "stopped" if job.state == STOPPED else ""
