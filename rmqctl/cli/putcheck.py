"""``rmqctl put --dry-run``: what would be answered. Loaded for dry runs only."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.lines import LineSource
from rmqctl.cli.putstats import note_damages, status, timed
from rmqctl.errors import NotAStore, StoreNotFound
from rmqctl.operations.change.messagefields import checked_fields, message_from_fields
from rmqctl.operations.change.messagemaker import MessageMaker
from rmqctl.operations.change.put import DryPut
from rmqctl.operations.change.putbatches import check_batches
from rmqctl.operations.change.putstream import BulkPut, check_lines

if TYPE_CHECKING:
    from rmqctl.cli.settings import Settings
    from rmqctl.engine.messagestore import MessageStore


def open_to_check(settings: Settings, *, create: bool) -> MessageStore:
    """The store that a dry run compares messages with.

    :raises click.UsageError: --create would make it, and a dry run makes nothing.
    """
    try:
        return settings.open()
    except (StoreNotFound, NotAStore):
        root = settings.root
        if create and (not root.exists() or (root.is_dir() and not any(root.iterdir()))):
            raise click.UsageError(
                f"there is no store {root} yet, and --dry-run makes none: leave --dry-run out, or "
                "name a store that is there."
            ) from None
        raise


def check(
    settings: Settings,
    store: MessageStore,
    source: str | None,
    fields: dict[str, Any],
    makes: dict[str, Any],
    when: dict[str, int],
    batch: int | None,
) -> int:
    """Prints what a put would answer; the exit code.

    :param source: the file of the lines; None: the fields are those of one message.
    :param makes: how lines become messages, as arguments of :class:`MessageMaker`.
    :param when: as of :func:`~rmqctl.cli.putstats.timed`. :param batch: lines of a batch, at most.
    """
    with settings.writer("append_result", bulk=True) as writer:
        dry = DryPut(store, settings.planned_recovery(store, writer, strict=True))
        if source is None:
            message = message_from_fields(fields)
            row = dry.check(timed(store, message, when))
            writer.row(row)
            return status(settings, row)
        with LineSource(source) as lines:
            run = BulkPut(lines.name, is_dry=True)
            maker = MessageMaker(checked_fields(fields), **makes)
            checked = check_lines
            if batch is not None:
                checked = functools.partial(check_batches, size=batch)
            for row in checked(dry, lines, run, maker):
                writer.row(row)
    note_damages(settings, run)
    return status(settings, run.refused, run.line, is_dry=True)
