"""``rmqctl replicate``."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.addresses import Address, AddressType
from rmqctl.cli.command import command as make
from rmqctl.cli.options import without_store
from rmqctl.cli.output import RowWriter
from rmqctl.cli.settings import Settings
from rmqctl.cli.text import human_size
from rmqctl.cli.types import StorePath
from rmqctl.shell import shell_line

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.operations.verify import Summary
    from rmqctl.replicate.copy import Copy
    from rmqctl.replicate.events import Event
    from rmqctl.replicate.keeping import Keep
    from rmqctl.replicate.sockets import Replication

#: Mismatches, and findings of --verify, that are named.
_MOST_NAMED = 20


class KeepType(click.ParamType["Keep"]):
    """A length of time, a size, or ``master``."""

    name = "what"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Keep:
        from rmqctl.replicate.keeping import Keep

        text = str(value).strip().lower()
        found = re.fullmatch(r"([1-9][0-9]{0,9})(?:([hdw])|([kmgt])(?:i?b)?)", text)
        if text == "master":
            return Keep(as_master=True)
        if found is None:
            self.fail(f"{value!r} is none of 72h, 30d, 500g and master", param, ctx)
        number, time, size = found.groups()
        if time:
            return Keep(millis=int(number) * {"h": 1, "d": 24, "w": 168}[time] * 3_600_000)
        return Keep(size=int(number) << {"k": 10, "m": 20, "g": 30, "t": 40}[size])


@make(
    "replicate",
    examples=[
        "rmqctl replicate 10.1.2.3:10912 --to /backup/broker-a",
        "rmqctl replicate 10.1.2.3:10912 --to /backup/a --until-caught-up --verify",
        "rmqctl replicate 10.1.2.3:10912 --to DIR --acl-file tools.yml --format ndjson",
    ],
    exits={
        0: "stopped by SIGTERM, or caught up",
        1: "done: findings of --verify, or records whose body is not what was stored",
        4: "the copy is in use, or read-only",
        5: "the master is not there, or refuses, or the copy is not the beginning of its log; the "
        "disk is full or fails",
        6: "the master is a SYNC_MASTER: say --yes",
        130: "stopped with Ctrl-C",
    },
)
@click.argument("master", metavar="HOST:PORT", type=AddressType())
@click.option(
    "--to",
    metavar="DIR",
    required=True,
    type=StorePath(file_okay=False),
    help="The copy: made if there is none, otherwise continued.",
)
@click.option(
    "--broker",
    metavar="HOST:PORT",
    type=AddressType(),
    help="Where the master answers requests; default: the port before its HA port.",
)
@click.option(
    "--acl-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Sign requests, for a broker with ACL: mqadmin's tools.yml, or a plain_acl.yml.",
)
@click.option(
    "--access-key",
    metavar="KEY",
    help="The account of --acl-file; default: its first administrator.",
)
@click.option(
    "--keep",
    metavar="WHAT",
    type=KeepType(),
    help="Delete the copy's oldest files: older than 72h or 30d; beyond 500g; or, with master, "
    "those that the master has deleted. Default: nothing.",
)
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="End when the copy has all that the master has now; for cron.",
)
@click.option("--verify", "verifies", is_flag=True, help="Check the whole copy at the end.")
@click.option("--yes", is_flag=True, help="Join a SYNC_MASTER, whose puts may wait for the copy.")
@without_store
def command(
    settings: Settings,
    master: Address,
    to: Path,
    broker: Address | None,
    acl_file: Path | None,
    access_key: str | None,
    keep: Keep | None,
    until_caught_up: bool,
    verifies: bool,
    yes: bool,
) -> int:
    """Copy a live broker's store, and keep the copy up to date.

    It joins a master of 4.9.3, or 5.x without a controller, as a slave does, at its HA port, and
    changes nothing there. The log is copied byte for byte; the copy makes its own queues and index.
    Topics, groups and offsets follow every ten seconds, and are never ahead of the log. Everything
    is checked as it arrives, and the copy acknowledges to the master only what is on disk. An
    earlier copy is continued, also after a kill; a copy that is not the beginning of the master's
    log is refused. SIGTERM and Ctrl-C stop it, and leave a cleanly closed store. A lost connection
    is opened again; with --until-caught-up only for five minutes in which nothing comes.
    """
    from rmqctl.replicate.asker import Target
    from rmqctl.replicate.credentials import load_credentials
    from rmqctl.replicate.sockets import Replication

    if broker is None and master.port < 2:
        raise click.UsageError(f"{master.port} is no HA port, which is a broker's own port + 1.")
    if access_key is not None and acl_file is None:
        raise click.UsageError("--access-key names an account of --acl-file: give both.")
    credentials = None if acl_file is None else load_credentials(acl_file, access_key)
    settings = replace(settings, root=Path(to), broker_conf=None)
    with settings.writer("replicated", live=True) as writer:
        told = _Told(settings, writer)
        with settings.quiet_progress("recovery") as progress:
            replication = Replication(
                settings.root,
                Target(*master),
                Target(*(broker or Address(master.host, master.port - 1))),
                None,
                told,
                credentials=credentials,
                keep=keep,
                joins_sync=yes,
                progress=progress,
            )
        with _stopped_by_signals(replication) as signals:
            is_done = replication.run(until_caught_up=until_caught_up)
        copy = replication.copy
        assert copy is not None
        summary = _verified(settings, copy.config) if verifies and not signals else None
        _sum_up(writer, replication, copy, summary, is_done=is_done)
        if signals[:1] == [signal.SIGINT]:
            return 130
        return int(bool(copy.mismatches) or (summary is not None and not summary.is_clean))


def _sum_up(
    writer: RowWriter,
    replication: Replication,
    copy: Copy,
    summary: Summary | None,
    *,
    is_done: bool,
) -> None:
    """:param summary: what --verify found."""
    end = copy.stored
    writer.summary(
        max_offset=end,
        master_max_offset=replication.master_end,
        behind_bytes=max(replication.master_end - end, 0),
        records=copy.records,
        bytes=copy.bytes,
        connections=replication.connections,
        caught_up=is_done,
        body_crc_mismatches=len(copy.mismatches),
        errors=None if summary is None else summary.severities["error"],
        warnings=None if summary is None else summary.severities["warning"],
    )


@contextmanager
def _stopped_by_signals(replication: Replication) -> Iterator[list[int]]:
    """SIGTERM and Ctrl-C end the copy cleanly in here; those that came."""
    came: list[int] = []

    def stop(number: int, frame: object) -> None:
        came.append(number)
        replication.stop()

    before = {one: signal.signal(one, stop) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _verified(settings: Settings, config: MessageStoreConfig) -> Summary:
    """Checks the copy by the master's sizes and delay levels, which it was made by, and prints the
    first things that are wrong as notes; the summary."""
    from rmqctl.operations.verify import INFO, Finding, verify

    found, named = None, 0
    for found in verify(settings.root, config):
        if isinstance(found, Finding) and found.severity != INFO:
            named += 1
            if named <= _MOST_NAMED:
                where = found.path or found.structure
                settings.note(f"note: {found.severity}: {found.code}: {where}")
    assert found is not None and not isinstance(found, Finding)
    if not found.is_clean:
        line = shell_line(["rmqctl", "verify", "--store", str(settings.root)])
        settings.note(f"note: `{line}` says more.")
    return found


class _Told:
    """Prints what happens."""

    def __init__(self, settings: Settings, writer: RowWriter) -> None:
        self._settings = settings
        self._writer = writer
        self._mismatches = 0

    def __call__(self, event: Event) -> None:
        from rmqctl.replicate import events

        settings, writer = self._settings, self._writer
        if isinstance(event, events.Joined):
            writer.row(
                {
                    "type": "joined",
                    "master": event.address,
                    "broker_name": event.broker_name,
                    "broker_role": event.role,
                    "store": str(settings.root),
                    "from_offset": event.from_offset,
                    "master_min_offset": event.master_start,
                    "master_max_offset": event.master_end,
                    "commit_log_file_size": event.file_size,
                }
            )
        elif isinstance(event, events.Progressed):
            writer.row(
                {
                    "type": "replicated",
                    "max_offset": event.end,
                    "master_max_offset": event.master_end,
                    "behind_bytes": max(event.master_end - event.end, 0),
                    "records": event.records,
                    "bytes": event.bytes,
                }
            )
        elif isinstance(event, events.Wrote):
            writer.row({"type": "config_written", "name": event.name, "size": event.size})
        elif isinstance(event, events.Shortened):
            settings.note(
                f"note: {event.files} files ({human_size(event.bytes)}) are not kept any more; the "
                f"log begins at {event.min_offset}."
            )
        elif isinstance(event, events.Lost):
            reason = event.reason.removesuffix(".")
            settings.note(f"note: {reason}. It is tried again each 5 seconds.")
        elif isinstance(event, events.Unanswered):
            settings.note(f"note: the files of config/ have not come: {event.reason}")
        else:
            self._note_mismatch(event.physical_offset)
        writer.flush()

    def _note_mismatch(self, physical_offset: int) -> None:
        self._mismatches += 1
        if self._mismatches <= _MOST_NAMED:
            self._settings.note(
                f"note: the body of the record at {physical_offset} is not what was stored, on "
                "the master either: `rmqctl message` shows it. It is copied as it is."
            )
