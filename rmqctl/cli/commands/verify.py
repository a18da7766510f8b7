"""``rmqctl verify``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.options import Settings, common
from rmqctl.cli.options import command as make
from rmqctl.cli.spark_options import spark_options

if TYPE_CHECKING:
    from rmqctl.operations.verify import Finding, Summary


@make(
    "verify",
    examples=[
        "rmqctl verify --store DIR",
        "rmqctl verify --store DIR --broker-conf broker.conf --format ndjson",
        "rmqctl verify --store DIR -q && echo sound",
        "rmqctl verify --store DIR --master 'local[*]' --output /tmp/findings",
    ],
    exits={1: "errors or warnings were found"},
)
@click.option("--output", metavar="DIR", help="With --master: findings as Parquet as well.")
@spark_options()
@common
def command(settings: Settings, output: str | None, **options: Any) -> int:
    """Check a whole store, and name what is wrong.

    Log, queues, index, checkpoint and directories are checked against each other. Prints rows of
    type finding, then a summary. Damage never ends the check, and nothing is changed; it works
    beside a running broker. Severity info is worth knowing and does not count for the exit status.
    With --master the same findings are sorted by place.
    """
    from rmqctl.operations.verify import Finding, verify

    if output is not None and options["master"] is None:
        raise click.UsageError("--output needs --master.")
    advice: dict[str, str] = {}
    clean = True
    with (
        settings.writer("finding") as writer,
        settings.progress("verify", _log_bytes(settings), writer) as advance,
    ):
        if options["master"] is None:
            everything = verify(settings.root, settings.config, advance)
        else:
            everything = _on_spark(settings, output, options, advance)
        for found in everything:
            if isinstance(found, Finding):
                writer.row({"type": "finding", **found._asdict()})
                advice.setdefault(found.code, found.advice)
            else:
                clean = found.is_clean
                writer.summary(**found.row())
        for code, text in advice.items():
            writer.remark(f"{code}: {text}")
    return int(not clean)


def _on_spark(
    settings: Settings,
    output: str | None,
    options: dict[str, Any],
    advance: Callable[[int], None],
) -> Iterator[Finding | Summary]:
    from rmqctl.cli.spark_options import spark_session
    from rmqctl.operations.verify import parts
    from rmqctl.spark import verify

    with spark_session(options, advance, _log_bytes(settings)) as spark:
        findings, summary = verify.verify(spark, settings.root, settings.config, parts)
        if output is not None:
            verify.write_findings(spark, str(settings.root), findings, output)
    yield from findings
    yield summary


def _log_bytes(settings: Settings) -> int:
    """What the bar counts to."""
    from rmqctl.engine import paths
    from rmqctl.engine.commitlog import CommitLog
    from rmqctl.engine.filesizes import commit_log_file_size

    paths.check_store(settings.root)
    size = commit_log_file_size(settings.root, settings.config)
    log = CommitLog(settings.root / paths.COMMIT_LOG, size)
    return log.files.end_offset - log.min_offset
