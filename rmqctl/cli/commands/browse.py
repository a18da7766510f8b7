"""``rmqctl browse``."""

from __future__ import annotations

import re
import sys

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.options import store_options
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import OFFSET, QUEUE_ID, Name
from rmqctl.errors import UsageError

#: What the extra ``tui`` asks for.
_LEAST_MAJOR = 8


class BrowserMissing(UsageError):
    """``browse`` without its library."""

    template = (
        "browse needs the package textual, {least} or later; found: {found}. Install it: "
        "`{install}`."
    )


@make(
    "browse",
    examples=[
        "rmqctl browse --store DIR",
        "rmqctl browse --topic orders --queue-id 3",
        "rmqctl browse --start 4096",
    ],
    exits={130: "ended with Ctrl-C"},
)
@click.option("--topic", metavar="TOPIC", type=Name(), help="Begin with the queues of this topic.")
@click.option(
    "--queue-id", metavar="N", type=QUEUE_ID, help="Begin with the messages of this queue."
)
@click.option(
    "--start", metavar="OFFSET", type=OFFSET, help="Begin with the log around this offset."
)
@store_options
def command(settings: Settings, topic: str | None, queue_id: int | None, start: int | None) -> int:
    """Look around in a store on a terminal.

    Topics, queues, messages with their bodies as text, JSON or bytes by field, the log, search by
    key and time, and the findings of verify. Keys are at the bottom, ? shows all. Reads only what
    is on the screen, on a store of any size, beside a running broker, and never writes. Needs the
    package textual (extra tui).
    """
    if queue_id is not None and topic is None:
        raise UsageError(reason="--queue-id needs --topic.")
    _require_textual()
    if not all(one is not None and one.isatty() for one in (sys.stdin, sys.stdout)):
        raise UsageError(
            reason="browse needs a terminal: `rmqctl topics`, `walk` and `find` print rows."
        )
    from rmqctl.cli.browse.app import Browser
    from rmqctl.cli.browse.model.opened import Opened

    opened = Opened(settings.root, settings.config)
    browser = Browser(opened, topic=topic, queue_id=queue_id, start=start)
    code = browser.run()
    if browser.failure is not None:
        raise browser.failure
    return code or 0


def _require_textual() -> None:
    """:raises BrowserMissing: it is not there, or too old."""
    from importlib import metadata

    try:
        found = metadata.version("textual")
    except metadata.PackageNotFoundError:
        found = "none"
    major = re.match(r"[0-9]+", found)
    if major is None or int(major[0]) < _LEAST_MAJOR:
        from rmqctl.installed import install_command

        install = install_command("tui")
        raise BrowserMissing(least=f"{_LEAST_MAJOR}.0", found=found, install=install)
