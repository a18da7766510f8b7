"""``rmqctl config check``."""

from __future__ import annotations

from rmqctl.cli.command import command as make
from rmqctl.cli.command import group
from rmqctl.cli.options import common
from rmqctl.cli.settings import Settings


@group("config", examples=["rmqctl config check --store DIR"])
def command() -> None:
    """Look at the files of config/: topics, groups, offsets."""


@make(
    "check",
    examples=[
        "rmqctl config check --store DIR",
        "rmqctl config check --store DIR --format ndjson",
    ],
    exits={1: "errors or warnings were found"},
)
@common
def check(settings: Settings) -> int:
    """Check the files of config/, also against the queues.

    Each file is parsed strictly, compared with its .bak copy, and its offsets with those of the
    queues. Prints rows of type finding, then a summary. Nothing is changed. Severity info is worth
    knowing and does not count for the exit status.
    """
    from rmqctl.cli.findings import FindingsReport, counted
    from rmqctl.operations.verify.configcheck import Summary, check

    summary = Summary()
    with (
        settings.open() as store,
        settings.writer("finding") as writer,
        FindingsReport(writer, is_table=settings.format == "table") as report,
    ):
        for found in check(store, summary):
            report.add(found, settings)
        looked_at = counted(
            file=summary.files, topic=summary.topics, group=summary.groups, offset=summary.offsets
        )
        report.finish(summary.row(), looked_at)
    return int(not summary.is_clean)


command.add_command(check)
