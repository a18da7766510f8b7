"""A group whose help shows its commands by risk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from rmqctl.cli.command import Group
from rmqctl.cli.command import group as make


class SectionedGroup(Group):
    """``sections``: headings, each with names of commands; in ``--help`` in that order."""

    def __init__(self, *args: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.sections: dict[str, list[str]] = {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        margin = max(map(len, self.commands))
        for heading, names in self.sections.items():
            limit = formatter.width - 6 - margin
            rows = [
                (name.ljust(margin), self.commands[name].get_short_help_str(limit))
                for name in names
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)


def group(name: str, *, examples: Sequence[str]) -> Callable[[Callable[..., Any]], SectionedGroup]:
    """``@group(…)`` of :mod:`rmqctl.cli.options`, for a :class:`SectionedGroup`."""

    def decorate(function: Callable[..., Any]) -> SectionedGroup:
        made = make(name, examples=examples, cls=SectionedGroup)(function)
        assert isinstance(made, SectionedGroup)
        return made

    return decorate
