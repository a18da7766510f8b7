"""``rmqctl lint``."""

from __future__ import annotations

from rmqctl.cli.command import command as make
from rmqctl.cli.options import common
from rmqctl.cli.settings import Settings


@make(
    "lint",
    examples=[
        "rmqctl lint --store DIR",
        "rmqctl lint --store DIR --broker-conf broker.conf --format ndjson",
        "rmqctl lint --store DIR -q && echo 'the files are in order'",
    ],
    exits={1: "errors or warnings were found"},
)
@common
def command(settings: Settings) -> int:
    """Check names, lengths and permissions of the files.

    Finds foreign, empty and missing files, lengths that contradict the configuration, wrong owners
    and permissions, low limits of open files and maps, a held lock, abort, and logs of DLedger. It
    reads no content, so it takes no longer on a big store; verify does. Prints rows of type
    finding, then a summary. Nothing is changed. Severity info is worth knowing and does not count
    for the exit status.
    """
    from rmqctl.cli.findings import FindingsReport, counted
    from rmqctl.operations.doctor.lint import Summary, lint

    summary = Summary()
    with (
        settings.writer("finding") as writer,
        FindingsReport(writer, is_table=settings.format == "table") as report,
    ):
        for found in lint(settings.root, settings.config, summary):
            report.add(found, settings)
        looked_at = counted(
            log_file=summary.log_files, queue=summary.queues, index_file=summary.index_files
        )
        # Whoever reads "agree" takes a damaged log for a sound one.
        report.finish(
            summary.row(), looked_at, sound="have names, lengths and rights as they should"
        )
    return int(not summary.is_clean)
