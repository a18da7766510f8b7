"""``rmqctl tiered ls|walk|query|verify``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from formats.constants import INT_MAX
from rmqctl.cli.command import command as make
from rmqctl.cli.options import (
    body_option,
    common,
    decompress_options,
    limit_option,
    queue_id_option,
    time_range,
    topic_option,
)
from rmqctl.cli.sections import group
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import Name, Whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.engine.tiered.store import TieredStore

F = TypeVar("F", bound="Callable[..., Any]")


def _files_option(function: F) -> F:
    return click.option(
        "--files",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="The broker's tieredStoreFilePath.  [default: as broker.conf says, or below --store]",
    )(function)


@group(
    "tiered",
    examples=[
        "rmqctl tiered ls --store DIR --broker-conf broker.conf",
        "rmqctl tiered verify --store DIR --files /mnt/tiered",
    ],
)
def command() -> None:
    """Messages that a broker of 5.x has uploaded to files."""


def _opened(settings: Settings, files: Path | None) -> TieredStore:
    from rmqctl.engine.tiered.store import TieredStore

    store = TieredStore(settings.root, settings.config, files)
    if store.problem is not None:
        settings.note(f"note: the metadata is not read, and the files tell: {store.problem}")
    return store


@make(
    "ls",
    examples=[
        "rmqctl tiered ls --store DIR --files /mnt/tiered",
        "rmqctl tiered ls --store DIR --broker-conf broker.conf --topic orders",
        "rmqctl tiered ls --store /mnt/tiered",
        "rmqctl tiered ls --format ndjson | jq 'select(.state == \"missing\")'",
    ],
    exits={1: "--topic or --queue-id was given and nothing matched, or a segment is not ok"},
)
@topic_option()
@queue_id_option()
@_files_option
@common
def ls(settings: Settings, topic: str | None, queue_id: int | None, files: Path | None) -> int:
    """List queues, segments and index files of tiered storage.

    Prints rows of type tiered_queue, tiered_segment, tiered_index_file, then a summary. It looks at
    names, sizes and times only; verify checks the content. --store may also be the directory of the
    uploaded files, if the broker's own is lost.
    """
    from rmqctl.operations.look.tiered import tiered_rows

    store = _opened(settings, files)
    with settings.writer("tiered_queue") as writer:
        summary = writer.rows(tiered_rows(store, topic, queue_id))
    if summary["directory"] is None:
        settings.note(
            "note: nothing says where the uploaded files are, so that all are missing: give the "
            "broker's tieredStoreFilePath with --files, or its broker.conf."
        )
    chosen = topic is not None or queue_id is not None
    return int(bool(summary["not_ok"]) or (chosen and not summary["queues"]))


@make(
    "walk",
    examples=[
        "rmqctl tiered walk --store DIR --files /mnt/tiered --topic orders --queue-id 0",
        "rmqctl tiered walk --files /mnt/tiered --since -2d --body-as utf8 --json",
        "rmqctl tiered walk --store /mnt/tiered --body-as base64 --format ndjson",
    ],
    exits={
        1: "damage was met, a body shown is not what was stored, or filters were given and nothing "
        "matched"
    },
)
@topic_option()
@queue_id_option()
@time_range
@limit_option
@click.option("--key", metavar="KEY", type=Name(), help="Only messages with this key or UNIQ_KEY.")
@decompress_options
@body_option
@_files_option
@common
def walk(
    settings: Settings,
    body: str,
    decompress_limit: int | None,
    files: Path | None,
    **selection: Any,
) -> int:
    """Walk over the uploaded messages, queue by queue.

    Prints rows of type message and damage, then a summary. physical_offset is a place in the
    queue's uploaded log, not in the broker's. Messages that a killed broker has uploaded twice come
    twice.
    """
    from rmqctl.operations.look.tiered import walk_tiered
    from rmqctl.operations.look.walk import Selection

    what, store = Selection(**selection), _opened(settings, files)
    with settings.writer("message", bulk=True) as writer:
        rows = walk_tiered(store, what, body, decompress_limit=decompress_limit)
        summary = writer.rows(rows)
    mismatches = settings.note_bodies(summary)
    nothing = what.filters and not summary["messages"]
    return int(summary["damages"] > 0 or mismatches or nothing)


@make(
    "query",
    examples=[
        "rmqctl tiered query --files /mnt/tiered --topic orders --key order-42",
    ],
    exits={1: "nothing matched, or a body shown is not what was stored"},
)
@topic_option(required=True)
@click.option(
    "--key", metavar="KEY", type=Name(), required=True, help="One of KEYS, or the UNIQ_KEY."
)
@click.option(
    "--limit",
    metavar="N",
    type=Whole(1, INT_MAX),
    default=64,
    show_default=True,
    help="The newest N.",
)
@time_range
@body_option
@decompress_options
@_files_option
@common
def query(
    settings: Settings,
    topic: str,
    key: str,
    body: str,
    decompress_limit: int | None,
    files: Path | None,
    **selection: Any,
) -> int:
    """Find uploaded messages by topic and key.

    Prints rows of type message, those of the newest index file first, then a summary. Each hit is
    compared with its record.
    """
    from rmqctl.operations.look.tiered import query_tiered
    from rmqctl.operations.look.walk import Selection

    what, store = Selection(**selection), _opened(settings, files)
    with settings.writer("message") as writer:
        rows = query_tiered(store, topic, key, what, body, decompress_limit=decompress_limit)
        summary = writer.rows(rows)
    if summary["unreadable"]:
        settings.note(
            f"note: {summary['unreadable']} files of the index cannot be read: messages may "
            "be missing here. `rmqctl tiered verify` says why; --key of `rmqctl tiered walk` finds "
            "those of a key without the index."
        )
    if summary["lost"]:
        settings.note(
            f"note: the records of {summary['lost']} messages that the index has are not there: "
            "they were deleted when their time was over, or `rmqctl tiered verify` says why."
        )
    return int(settings.note_bodies(summary) or not summary["messages"])


@make(
    "verify",
    examples=[
        "rmqctl tiered verify --store DIR --files /mnt/tiered",
        "rmqctl tiered verify --store DIR --broker-conf broker.conf --format ndjson",
    ],
    exits={1: "errors or warnings were found"},
)
@_files_option
@common
def verify(settings: Settings, files: Path | None) -> int:
    """Check what is uploaded, and name what is wrong.

    Segments are checked against the metadata, each unit against its record and the record's body,
    each item of the index against its record's keys. Prints rows of type finding, then a summary.
    Nothing is changed. Severity info does not count for the exit status.
    """
    from rmqctl.cli.findings import FindingsReport, counted
    from rmqctl.operations.verify import Finding
    from rmqctl.operations.verify.tiered import TieredSummary, verify_tiered

    store, summary = _opened(settings, files), TieredSummary()
    with (
        settings.writer("finding") as writer,
        FindingsReport(writer, is_table=settings.format == "table") as report,
    ):
        for found in verify_tiered(store):
            if isinstance(found, Finding):
                report.add(found, settings)
            else:
                summary = found
        looked_at = counted(
            message=summary.units, queue=summary.queues, index_file=summary.index_files
        )
        report.finish(summary.row(), looked_at)
    return int(not summary.is_clean)


for one in (ls, walk, query, verify):
    command.add_command(one)
command.sections = {"Inspect (never writes)": ["ls", "walk", "query", "verify"]}
