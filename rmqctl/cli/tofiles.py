"""``rmqctl rebuild queues --to-file-queues``: file queues of a store that has them in RocksDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rmqctl.cli.settings import Settings

#: What says nothing of a conversion, which is of the whole store and in its place.
_OTHERS = ("topic", "queue_id", "output", "missing", "purge", "master")


def check_options(what: str, options: dict[str, Any], stores: int) -> None:
    """:raises click.UsageError: options that do not go together."""
    if not options["to_file_queues"]:
        if options["from_log_alone"]:
            raise click.UsageError("--from-log-alone goes with --to-file-queues.")
        return
    if what != "queues" or not options["in_place"]:
        raise click.UsageError("--to-file-queues goes with `rebuild queues --in-place`.")
    for name in _OTHERS:
        if options[name] not in (None, False):
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"leave {option} out: --to-file-queues is of the whole store.")
    if stores > 1:
        raise click.UsageError("--to-file-queues takes one store at a time.")


def convert_to_files(settings: Settings, options: dict[str, Any], jobs: int) -> int:
    """The conversion, or its plan; exit code 1 where parts of the log were left out."""
    from rmqctl.operations.mend import tofiles
    from rmqctl.operations.mend.rebuild import damage_rows

    conversion = tofiles.plan_conversion(
        settings.root, settings.config, from_log_alone=options["from_log_alone"]
    )
    dry_run = options["dry_run"]
    with settings.writer("damage") as writer:
        if not dry_run:
            total = conversion.plan.log_bytes
            with settings.progress("rebuild queues", total, writer) as advance:
                summary = tofiles.convert(conversion, advance, jobs=jobs, consent=options["yes"])
            for row in damage_rows(summary):
                writer.row(row)
        writer.summary(**conversion.row(dry_run=dry_run))
    done = conversion.summary
    if done.not_in_order:
        settings.note(f"note: {settings.root} was not closed cleanly: {done.not_in_order}")
    if options["from_log_alone"]:
        settings.note(
            "note: topics, groups and offsets are those of the JSON files in config/, as they are; "
            "queues of which the log has nothing left begin at 0."
        )
    if not dry_run:
        settings.note(
            "note: give the broker storeType=default now: with defaultRocksDB it would begin with "
            "empty queues."
        )
    return int(bool(done.damage or done.refused_topics))
