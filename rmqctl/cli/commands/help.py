"""``rmqctl help``."""

from __future__ import annotations

import click

from rmqctl.cli.command import command as make


@make("help", examples=["rmqctl help verify", "rmqctl help walk queue"])
@click.argument("names", metavar="[COMMAND…]", nargs=-1)
@click.pass_context
def command(context: click.Context, names: tuple[str, ...]) -> None:
    """Show the help of a command, such as `help walk queue`."""
    shown = context.find_root()
    for name in names:
        group = shown.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"`{shown.command_path}` has no commands of its own.", shown)
        _, found, _ = group.resolve_command(shown, [name])
        assert found is not None
        shown = click.Context(found, info_name=name, parent=shown)
    click.echo(shown.get_help())
