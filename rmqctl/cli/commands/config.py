"""``rmqctl config check`` and ``rmqctl config stores``."""

from __future__ import annotations

from rmqctl.cli.command import command as make
from rmqctl.cli.command import group
from rmqctl.cli.options import common, without_store
from rmqctl.cli.settings import Settings


@group("config", examples=["rmqctl config check --store DIR", "rmqctl config stores"])
def command() -> None:
    """Look at config/ of a store, and list stores by name."""


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
        settings.note_config(store)
        settings.note_queues(store)
        for found in check(store, summary):
            report.add(found, settings)
        looked_at = counted(
            file=summary.files, topic=summary.topics, group=summary.groups, offset=summary.offsets
        )
        report.finish(summary.row(), looked_at, sound="in order")
    return int(not summary.is_clean)


@make(
    "stores",
    examples=["rmqctl config stores", "rmqctl config stores --format ndjson"],
    exits={1: "a store has a problem"},
)
@without_store
def stores(settings: Settings) -> int:
    """List the stores that have names: --store @NAME.

    The names are in rmqctl/config.toml below XDG_CONFIG_HOME, or ~/.config: a table for each, such
    as [stores.prod-a], with the paths `store`, `broker_conf` or both. Prints rows of type
    named_store, then a summary. Nothing of a store is read.
    """
    from rmqctl.cli.place import named_stores, problem_of, root_or_none, user_config

    path, problems = user_config(), 0
    found = named_stores()
    with settings.writer("named_store") as writer:
        for name in sorted(found):
            row = {
                "type": "named_store",
                "name": name,
                "store": root_or_none(found[name]),
                "broker_conf": found[name].broker_conf,
                "problem": problem_of(found[name]),
            }
            problems += row["problem"] is not None
            writer.row(row)
        writer.summary(path=str(path), stores=len(found), problems=problems)
    if not found:
        settings.note(
            f"note: {path} names no store. Two lines name one: [stores.prod-a] and "
            'store = "/data/rocketmq/store"; a third its broker_conf.'
        )
    return int(problems > 0)


command.add_command(check)
command.add_command(stores)
