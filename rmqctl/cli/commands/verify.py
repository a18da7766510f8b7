"""``rmqctl verify``."""

from __future__ import annotations

from rmqctl.cli.options import Settings, common
from rmqctl.cli.options import command as make


@make(
    "verify",
    examples=[
        "rmqctl verify --store DIR",
        "rmqctl verify --store DIR --broker-conf broker.conf --format ndjson",
        "rmqctl verify --store DIR -q && echo sound",
    ],
    exits={1: "errors or warnings were found"},
)
@common
def command(settings: Settings) -> int:
    """Check a whole store, and name what is wrong.

    Log, queues, index, checkpoint and directories are checked against each other. Prints rows of
    type finding, then a summary. Damage never ends the check, and nothing is changed; it works
    beside a running broker. Severity info is worth knowing and does not count for the exit status.
    """
    from rmqctl.operations.verify import Finding, verify

    advice: dict[str, str] = {}
    clean = True
    with (
        settings.writer("finding") as writer,
        settings.progress("verify", _log_bytes(settings), writer) as advance,
    ):
        for found in verify(settings.root, settings.config, advance):
            if isinstance(found, Finding):
                writer.row({"type": "finding", **found._asdict()})
                advice.setdefault(found.code, found.advice)
            else:
                clean = found.is_clean
                writer.summary(**found.row())
        for code, text in advice.items():
            writer.remark(f"{code}: {text}")
    return int(not clean)


def _log_bytes(settings: Settings) -> int:
    """What the bar counts to."""
    from rmqctl.engine import paths
    from rmqctl.engine.commitlog import CommitLog
    from rmqctl.engine.filesizes import commit_log_file_size

    paths.check_store(settings.root)
    size = commit_log_file_size(settings.root, settings.config)
    log = CommitLog(settings.root / paths.COMMIT_LOG, size)
    return log.files.end_offset - log.min_offset
