"""``rmqctl version``."""

from __future__ import annotations

import click

from rmqctl.cli.command import command as make


@make("version", examples=["rmqctl version", "rmqctl version -v"])
@click.option("-v", "--verbose", is_flag=True, help="Also show the engine.")
def command(verbose: bool) -> None:
    """Show the version, with -v also the engine."""
    from rmqctl.cli.main import print_version

    print_version(verbose=verbose)
