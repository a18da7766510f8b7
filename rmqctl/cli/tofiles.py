"""``rmqctl rebuild queues --to-file-queues``: file queues of a store that has them in RocksDB."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from formats.constants import INT_MAX, LONG_MAX

if TYPE_CHECKING:
    from rmqctl.cli.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

#: Options that a conversion does not take: it is of the whole store, and in its place.
_OTHERS = ("topic", "queue_id", "output", "missing", "purge", "master")


class _MinOffset(click.ParamType[tuple[str, int, int]]):
    """``TOPIC:QUEUE=N``: a topic has no colon."""

    name = "offset"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int, int]:
        queue, _, offset = str(value).rpartition("=")
        topic, _, queue_id = queue.rpartition(":")
        try:
            return _checked(topic, queue_id, offset)
        except ValueError:
            self.fail(f"{value!r} is not TOPIC:QUEUE=N, such as orders:0=1042", param, ctx)


def _checked(topic: str, queue_id: str, offset: str) -> tuple[str, int, int]:
    """:raises ValueError: these are no topic, queue number and queue offset."""
    if not (topic and _is_digits(queue_id) and _is_digits(offset)):
        raise ValueError
    if int(queue_id) > INT_MAX or int(offset) > LONG_MAX:
        raise ValueError
    return topic, int(queue_id), int(offset)


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def conversion_options(function: F) -> F:
    """``--to-file-queues`` and what goes with it."""
    for option in reversed(
        (
            click.option(
                "--to-file-queues",
                is_flag=True,
                help="Turn a store with queues in RocksDB (5.x) into one with files; needs --yes.",
            ),
            click.option(
                "--from-log-alone",
                is_flag=True,
                help="With --to-file-queues: do not read the databases.",
            ),
            click.option(
                "--min-offset",
                "min_offset",
                metavar="TOPIC:QUEUE=N",
                type=_MinOffset(),
                multiple=True,
                help="With --from-log-alone: where a queue without messages in the log continues; "
                "repeatable.",
            ),
            click.option(
                "--min-offsets",
                "min_offsets",
                metavar="FILE",
                type=click.Path(path_type=Path),
                help='The same of many queues, JSON: {"TOPIC": {"QUEUE": N}}; - is stdin.',
            ),
        )
    ):
        function = option(function)
    return function


def check_options(what: str, options: dict[str, Any], stores: int) -> None:
    """:raises click.UsageError: options that do not go together."""
    if not options["to_file_queues"]:
        if options["from_log_alone"]:
            raise click.UsageError("--from-log-alone goes with --to-file-queues.")
        _check_no_min_offsets(options)
        return
    if not options["from_log_alone"]:
        _check_no_min_offsets(options)
    if what != "queues" or not options["in_place"]:
        raise click.UsageError("--to-file-queues goes with `rebuild queues --in-place`.")
    for name in _OTHERS:
        if options[name] not in (None, False):
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"leave {option} out: --to-file-queues is of the whole store.")
    if stores > 1:
        raise click.UsageError("--to-file-queues takes one store at a time.")


def _check_no_min_offsets(options: dict[str, Any]) -> None:
    for name in ("min_offset", "min_offsets"):
        if options[name]:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(
                f"{option} goes with `--to-file-queues --from-log-alone`: else the databases say "
                "where each queue goes on."
            )


def _min_offsets(options: dict[str, Any]) -> dict[tuple[str, int], int]:
    """Topic and queue → the offset at which the queue goes on, from the file and the options; an
    option outranks the file.

    :raises click.UsageError: the file has something else. :raises CannotRead: it cannot be read.
    """
    found = _of_file(options["min_offsets"]) if options["min_offsets"] is not None else {}
    return found | {(topic, queue_id): n for topic, queue_id, n in options["min_offset"]}


def _of_file(path: Path) -> dict[tuple[str, int], int]:
    import json

    from rmqctl.errors import CannotRead

    if str(path) == "-" and sys.stdin is None:
        raise click.UsageError("--min-offsets -: standard input is closed.")
    try:
        with click.open_file(str(path), encoding="utf-8") as file:
            value = json.load(file)
    except OSError as error:
        raise CannotRead(path=str(path), reason=str(error.strerror)) from error
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--min-offsets {path} is no JSON.") from error
    found = {}
    try:
        for topic, queues in value.items():
            for queue_id, offset in queues.items():
                if not isinstance(offset, int) or isinstance(offset, bool):
                    raise ValueError
                name, number, begin = _checked(topic, queue_id, str(offset))
                found[name, number] = begin
    except (AttributeError, ValueError) as error:
        raise click.UsageError(
            f'--min-offsets {path} is not {{"TOPIC": {{"QUEUE": N}}}}, such as '
            '{"orders": {"0": 1042}}.'
        ) from error
    return found


def convert_to_files(settings: Settings, options: dict[str, Any], jobs: int) -> int:
    """Converts the store, or prints the plan; the exit code is 1 where parts of the log were left
    out."""
    from rmqctl.operations.mend import tofiles
    from rmqctl.operations.mend.rebuild import damage_rows

    conversion = tofiles.plan_conversion(
        settings.root,
        settings.config,
        from_log_alone=options["from_log_alone"],
        min_offsets=_min_offsets(options),
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
    settings.note_completion(settings.root, done)
    if options["from_log_alone"]:
        settings.note(
            "note: topics, groups and offsets are those of the JSON files in config/, as they are; "
            "queues of which the log has nothing left begin at 0, but for those of --min-offset."
        )
    for topic, queue_id in conversion.not_ended:
        settings.note(
            f"note: the log has messages of {topic}:{queue_id}, which say where it begins: its "
            "--min-offset does not count."
        )
    if not dry_run:
        settings.note(
            "note: give the broker storeType=default now: with defaultRocksDB it would begin with "
            "empty queues."
        )
    return int(bool(done.damage or done.refused_topics))
