"""A click group that loads a command's module when the command is asked for."""

from __future__ import annotations

import importlib
from typing import Any

import click

from rmqctl.cli.command import Group


class LazyGroup(Group):
    """Commands by name: ``{section: {name: module}}``; the module's ``command`` is the command.

    ``--help`` shows them by section, in the table's order.
    """

    def __init__(self, *args: Any, sections: dict[str, dict[str, str]], **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.sections = sections
        self._modules = {n: m for names in sections.values() for n, m in names.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._modules:
            return None
        loaded = importlib.import_module(self._modules[cmd_name]).command
        assert isinstance(loaded, click.Command)
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        margin = max(map(len, self._modules))
        for section, names in self.sections.items():
            rows = []
            for name in names:
                command = self.get_command(ctx, name)
                if command is not None and not command.hidden:
                    limit = formatter.width - 6 - margin
                    rows.append((name.ljust(margin), command.get_short_help_str(limit)))
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)
