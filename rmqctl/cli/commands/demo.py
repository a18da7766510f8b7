"""``rmqctl demo``: the tool in one minute, on a store of its own."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.text import visible

_CONF = "--store store --broker-conf broker.conf"
_COPY = "--store copy --broker-conf broker.conf"


@make(
    "demo",
    examples=["rmqctl demo", "rmqctl demo --keep ./rmqctl-demo"],
    exits={1: "a step did not end as it should"},
)
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Work in this new directory and leave it, to try the commands again.",
)
def command(keep: Path | None) -> int:
    """Show all of it: put, query, damage, verify, rebuild.

    Makes a store in a temporary directory and prints every command line before it runs it.
    """
    if keep is not None:
        if keep.exists():
            raise click.UsageError(f"{keep} exists already: give a new directory.")
        keep.mkdir(parents=True)
        where = keep.resolve()
    else:
        where = Path(tempfile.mkdtemp(prefix="rmqctl-demo-"))
    before = Path.cwd()
    os.chdir(where)
    try:
        sound = _Demo().run()
    finally:
        os.chdir(before)
        if keep is None:
            shutil.rmtree(where)
    if keep is not None:
        click.echo(f"Everything is in {visible(str(where))}; the commands above run there.")
    return 0 if sound else 1


class _Demo:
    """The steps, in the current directory."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)
        self._sound = True

    def run(self) -> bool:
        from rmqctl.operations.change import demo

        count = demo.write_inputs(Path())
        self._say(f"messages.ndjson: {count} messages for three topics, one JSON object a line")
        self._rmqctl(f"put {_CONF} --create --quiet --from messages.ndjson")
        self._rmqctl(f"queues {_CONF}")
        self._say("What a consumer of one queue would get, and one message by its key")
        self._rmqctl(f"pull {_CONF} --topic orders --queue-id 0 --offset 100 --limit 3")
        self._rmqctl(f"index query {_CONF} --topic payments --key {demo.SAMPLE_KEY}")
        self._say("Everything against everything: log, queues, index, checkpoint")
        self._rmqctl(f"verify {_CONF}")
        place = demo.flip_one_bit(Path("store"))
        self._say(f"One bit flipped: {place}. verify finds it, and says what to do")
        self._rmqctl(f"verify {_CONF}", expected=1)
        self._say("Queues and index written anew from the log, on a copy")
        self._shell("cp -r store copy")
        shutil.copytree("store", "copy")
        self._rmqctl(f"rebuild all {_COPY} --in-place --yes")
        self._rmqctl(f"verify {_COPY}")
        return self._sound

    def _say(self, text: str) -> None:
        self._console.print(f"\n[bold cyan]# {text}[/]", soft_wrap=True)

    def _shell(self, line: str) -> None:
        self._console.print(f"[bold green]$[/] [bold]{line}[/]", soft_wrap=True)

    def _rmqctl(self, line: str, expected: int = 0) -> None:
        """Prints a command line and runs it, in this process."""
        from rmqctl.cli.main import run

        self._shell(f"rmqctl {line}")
        sys.stdout.flush()
        code = run(["--no-pager", *line.split()])
        if code != expected:
            self._sound = False
            self._console.print(f"[bold red]exit status {code}, not {expected}[/]")
        elif code:
            self._console.print(f"[dim](exit status {code})[/]")
