"""``rmqctl put``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from formats.constants import INT_MAX
from rmqctl.cli.command import WRITING_EXITS
from rmqctl.cli.command import command as make
from rmqctl.cli.options import Option, common, completed, dry_run_option
from rmqctl.cli.putstats import (
    closed_at_the_end,
    note_damages,
    print_stats,
    stats_option,
    status,
    timed,
)
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import OFFSET, QUEUE_ID, InputFile, Length, Name, Text, Time, Whole

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import WritableStore
    from rmqctl.operations.change.messagemaker import MessageMaker
    from rmqctl.rows import Row


@make(
    "put",
    examples=[
        "rmqctl put --store DIR --create --topic orders --key order-42 --body hello",
        "rmqctl put --topic orders --tag paid --property region=eu --body-file a.bin",
        "rmqctl put --topic orders --delay-level 3 --body 'in ten seconds'",
        "rmqctl put --topic orders --deliver-at 2024-05-01T12:00 --body 'at noon'",
        "rmqctl put --from messages.ndjson --format ndjson > appended.ndjson",
        "rmqctl put --from messages.ndjson --dry-run --quiet",
        "rmqctl put --from messages.ndjson --flush async --batch 32 --stats",
        "jq -c … | rmqctl put --from -",
        "rmqctl walk commitlog --body-as base64 --format ndjson > rows.ndjson",
        "rmqctl put --store NEW --create --from rows.ndjson",
    ],
    exits=WRITING_EXITS
    | {0: "PUT_OK", 5: "a message was refused (its row has the status), or the store is damaged"},
)
@click.option(
    "--topic",
    metavar="TOPIC",
    type=Name(is_stored=True),
    shell_complete=completed("topics"),
    help="Topic; with --from: that of lines without one.",
)
@click.option(
    "--queue-id",
    metavar="N",
    type=QUEUE_ID,
    shell_complete=completed("queue_ids"),
    help="Queue of the topic.  [default: 0]",
)
@click.option(
    "--tag",
    "tags",
    cls=Option,
    formerly=("--tags",),
    metavar="TAG",
    type=Text(),
    help="Tag (property TAGS).",
)
@click.option(
    "--key",
    "keys",
    cls=Option,
    formerly=("--keys",),
    metavar="KEY",
    type=Name(is_stored=True),
    multiple=True,
    help="Key to find it by; repeatable (property KEYS: all, with blanks between).",
)
@click.option(
    "--property", metavar="NAME=VALUE", type=Text(), multiple=True, help="Property; repeatable."
)
@click.option("--body", metavar="TEXT", type=Text(), help="Body, stored as UTF-8.")
@click.option(
    "--body-file",
    metavar="FILE",
    type=InputFile(),
    help="File with the body; - is stdin, also the default without --body if stdin is no terminal.",
)
@click.option(
    "--flag", metavar="N", type=Whole(-INT_MAX - 1, INT_MAX), help="The producer's own flag."
)
@click.option(
    "--born-host", metavar="ADDR:PORT", help="The producer's address.  [default: 127.0.0.1:0]"
)
@click.option(
    "--store-host", metavar="ADDR:PORT", help="The broker's address.  [default: 127.0.0.1:10911]"
)
@click.option(
    "--born-timestamp", metavar="TIME", type=Time(), help="When it was made.  [default: now]"
)
@click.option(
    "--delay-level",
    metavar="N",
    type=Whole(0, INT_MAX),
    help="Deliver after the delay of this level, as of messageDelayLevel (1: 1s, 2: 5s).",
)
@click.option(
    "--deliver-at", metavar="TIME", type=Time(), help="On a store of 5.x: deliver at this time."
)
@click.option(
    "--delay",
    metavar="DURATION",
    type=Length(),
    help="On a store of 5.x: deliver after this time (90s, 1h30m).",
)
@click.option(
    "--transaction",
    metavar="KIND",
    type=click.Choice(("prepared", "commit", "rollback")),
    help="Of a transaction: prepared (a half message), commit or rollback.",
)
@click.option(
    "--prepared-offset",
    metavar="N",
    type=OFFSET,
    help="Physical offset of the half message that a commit or rollback ends.",
)
@click.option("--from", "source", metavar="FILE|-", help="NDJSON, one message a line; - is stdin.")
@click.option(
    "--ignore-body-crc",
    is_flag=True,
    help="With --from: also store bodies that do not match body_crc and body_length.",
)
@click.option(
    "--ignore-unknown", is_flag=True, help="With --from: ignore fields that no message has."
)
@click.option(
    "--batch",
    metavar="N",
    type=Whole(1, INT_MAX),
    help="With --from: up to N lines of one queue as a batch.",
)
@click.option(
    "--flush",
    metavar="HOW",
    type=click.Choice(("sync", "async", "none")),
    default="sync",
    show_default=True,
    help="sync: on disk before the row is printed. async: flushed now and then. All: on disk when "
    "the command ends.",
)
@click.option(
    "--sync-flush-timeout",
    metavar="MS",
    type=Whole(1, INT_MAX),
    help="With sync: FLUSH_DISK_TIMEOUT when the disk takes longer.  [default: 5000]",
)
@click.option(
    "--transient-store-pool",
    is_flag=True,
    help="With async or none: buffers off the page cache, committed to the files now and then.",
)
@stats_option
@click.option("--create", is_flag=True, help="Make the store if there is none.")
@dry_run_option
@common
def command(
    settings: Settings,
    source: str | None,
    flush: str,
    batch: int | None,
    sync_flush_timeout: int | None,
    transient_store_pool: bool,
    stats: bool,
    create: bool,
    dry_run: bool,
    ignore_body_crc: bool,
    ignore_unknown: bool,
    **given: Any,
) -> int:
    """Append a message, or a stream of them, as a broker does.

    Prints a row of type append_result for each, with its status, message id and offsets. Without
    --body, --body-file and --from the body is standard input, when that is no terminal.

    With --from each line is a JSON object: topic, queue_id, tags, keys, properties, body with
    body_encoding (utf8, base64 or hex), flag, sys_flag, delay_level, transaction, born_timestamp,
    born_host, store_host, reconsume_times, prepared_transaction_offset. Options give what a line
    leaves out. Rows of export, and of walk, pull, find, index query and message with --body-as, can
    be given as they are, and their messages stay what they were. A line that is no message, or
    whose body does not match its body_crc, ends the run; all lines before it are stored. With
    --batch a row stands for a batch: lines that follow each other with the same topic and queue, as
    many as a record may be long. With --dry-run the rows have the answers that the puts would get,
    without offsets. A row of type recovery comes first if the store needs one.
    """
    fields = _fields(given)
    times = ("deliver_at", "delay")
    when: dict[str, int] = {name: fields.pop(name) for name in times if name in fields}
    if transient_store_pool and flush == "sync":
        raise click.UsageError("--transient-store-pool goes with --flush async or none.")
    changes: dict[str, Any] = {"flush_disk_type": f"{'' if flush == 'sync' else 'A'}SYNC_FLUSH"}
    if sync_flush_timeout is not None and flush != "sync":
        raise click.UsageError("--sync-flush-timeout goes with --flush sync.")
    if sync_flush_timeout is not None:
        changes["sync_flush_timeout"] = sync_flush_timeout
    if transient_store_pool:
        changes["transient_store_pool_enable"] = True
    makes: dict[str, Any] = {"ignore_body_crc": ignore_body_crc, "ignore_unknown": ignore_unknown}
    if source is None:
        _check_single(fields, {"--batch": batch} | {_option(name): makes[name] for name in makes})
    else:
        _check_stream(fields, when)
    if dry_run:
        from rmqctl.cli.putcheck import check, open_to_check

        with open_to_check(settings, create=create) as store:
            return check(settings, store, source, fields, makes, when, batch)
    opened = functools.partial(settings.open, writable=True, create=create, puts=True, **changes)
    way = _Way(opened, flush, stats)
    if source is not None:
        from rmqctl.operations.change.messagefields import checked_fields
        from rmqctl.operations.change.messagemaker import MessageMaker

        maker = MessageMaker(checked_fields(fields), **makes)
        return _put_stream(settings, way, source, maker, batch)
    return _put_single(settings, way, fields, when)


class _Way(NamedTuple):
    """How messages are put: what opens the store, the ``--flush``, and whether to print counts."""

    opened: Callable[[], WritableStore]
    flush: str
    stats: bool


def _put_single(settings: Settings, way: _Way, fields: dict[str, Any], when: dict[str, int]) -> int:
    from rmqctl.operations.change.messagefields import message_from_fields
    from rmqctl.operations.change.put import put_one

    message = message_from_fields(fields)
    with (
        closed_at_the_end(way.opened, lambda: _is_logged(row)) as store,
        settings.writer(vertical=True) as writer,
    ):
        row = put_one(store, timed(store, message, when), flush=way.flush == "sync")
        writer.row(row)
        # Before the store is closed, which a full disk may refuse, too.
        code = status(settings, row)
    if way.stats:
        print_stats(store)
    return code


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check_single(fields: dict[str, Any], of_streams: dict[str, Any]) -> None:
    """Checks the options of one message, and takes its body from standard input when none is
    given."""
    for name, value in of_streams.items():
        if value:
            raise click.UsageError(f"{name} goes with --from.")
    if "topic" not in fields:
        raise click.UsageError("Give --topic TOPIC, or messages with --from FILE.")
    if "body" not in fields and "body_base64" not in fields:
        from base64 import b64encode

        from rmqctl.cli.lines import standard_input

        body = standard_input()
        if body is None:
            raise click.UsageError(
                "Give --body TEXT, --body-file FILE, or the body on standard input; --body '' is "
                "an empty one."
            )
        fields["body_base64"] = b64encode(body).decode("ascii")


def _check_stream(fields: dict[str, Any], when: dict[str, int]) -> None:
    """:raises click.UsageError: an option is of one message, and not of a stream."""
    if when:
        raise click.UsageError(
            "--deliver-at and --delay are for one message: none goes with --from."
        )
    if "body" in fields or "body_base64" in fields:
        raise click.UsageError("With --from the bodies stand in the lines.")


def _fields(given: dict[str, Any]) -> dict[str, Any]:
    """The options as the fields of an input line."""
    fields = {name: value for name, value in given.items() if value is not None}
    properties = {}
    for text in fields.pop("property"):
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise click.UsageError(f"--property {text!r} is not NAME=VALUE.")
        properties[name] = value
    if properties:
        fields["properties"] = properties
    keys = fields.pop("keys")
    if keys:
        fields["keys"] = " ".join(keys)
    if "prepared_offset" in fields:
        fields["prepared_transaction_offset"] = fields.pop("prepared_offset")
    if "body_file" in fields:
        if "body" in fields:
            raise click.UsageError("--body and --body-file exclude each other.")
        from base64 import b64encode

        from rmqctl.cli.lines import bounded

        file = fields.pop("body_file")
        fields["body_base64"] = b64encode(bounded(file, file.name)).decode("ascii")
    return fields


def _put_stream(
    settings: Settings, way: _Way, source: str, maker: MessageMaker, batch: int | None
) -> int:
    from rmqctl.cli.lines import LineSource
    from rmqctl.operations.change.putbatches import put_batches
    from rmqctl.operations.change.putstream import BulkPut, put_lines

    with (
        LineSource(source) as lines,
        closed_at_the_end(way.opened, lambda: run.stored > 0 or _is_logged(run.refused)) as store,
        settings.writer("append_result", bulk=True) as writer,
    ):
        run = BulkPut(lines.name)
        if way.flush == "async":
            store.start(dispatch=False)
        put = put_lines if batch is None else functools.partial(put_batches, size=batch)
        try:
            for rows in put(store, lines, run, maker=maker, flush=way.flush == "sync"):
                writer.many(rows)
                writer.flush()
        except BrokenPipeError:
            # Nobody takes the answers: what is stored stays, what was not read is not.
            from rmqctl.cli.sink import silence_stdout
            from rmqctl.rows.words import some_are

            silence_stdout()
            settings.note(
                f"stopped after line {run.line}: nobody reads the rows; "
                f"{some_are(run.stored, 'message')} stored"
            )
            return 130
        if lines.interrupted:
            from rmqctl.rows.words import some_are

            stored = some_are(run.stored, "message")
            settings.note(f"interrupted after line {run.line}: {stored} stored")
            return 130
        if run.refused is None:
            writer.summary(messages=run.stored)
        note_damages(settings, run)
        # Before the store is closed, which a full disk may refuse, too.
        code = status(settings, run.refused, run.line)
    if way.stats:
        print_stats(store)
    return code


def _is_logged(row: Row | None) -> bool:
    """Whether the log has the message of an answer."""
    from rmqctl.engine.record.status import NOT_AGAIN

    if row is None:
        return False
    return row["status"] == "PUT_OK" or str(row.get("reason", "")).endswith(NOT_AGAIN)
