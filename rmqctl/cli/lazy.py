"""A click group that loads a command's module when the command is asked for."""

from __future__ import annotations

import importlib
from typing import Any

import click


class LazyGroup(click.Group):
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            close = get_close_matches(args[0], self._modules, 1)
            if not close or "Did you mean" in error.message:
                raise
            text = f"{error.message} Did you mean {close[0]!r}?"
            raise click.UsageError(text, error.ctx) from None

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
