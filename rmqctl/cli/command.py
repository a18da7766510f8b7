"""Commands and groups of them, whose help has examples and exit codes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from rmqctl.cli.options import COMMON_OPTIONS
from rmqctl.cli.pasted import remember
from rmqctl.shell import shell_line

EXIT_CODES = {
    0: "done, nothing wrong found",
    1: "done: findings, or nothing matched",
    2: "usage",
    3: "no such store, or not a store",
    4: "the store is in use by a broker, or read-only",
    5: "cannot continue: damaged or unsupported data",
    6: "refused: needs consent (--yes)",
    70: "a bug in rmqctl",
    130: "interrupted",
}


#: Of commands that change a store.
WRITING_EXITS = {code: EXIT_CODES[code] for code in (4,)}


class Command(click.Command):
    """A command whose help has examples before the options and the exit status after them."""

    def __init__(
        self,
        *args: Any,
        examples: Sequence[str] = (),
        exits: dict[int, str] | None = None,
        **kw: Any,
    ) -> None:
        super().__init__(*args, **kw)
        self.examples = examples
        self.exits = exits or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True  # They are refused here, with what may have been meant.
        with _meaning_told(self, ctx):
            rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            raise click.UsageError(_too_much(self, rest), ctx)
        remember(ctx)
        return rest

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        write_examples(formatter, self.examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        codes = {code: EXIT_CODES[code] for code in (0, 2, 3, 5)} | self.exits
        with formatter.section("Exit status"):
            formatter.write_dl([(str(code), codes[code]) for code in sorted(codes)])


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    if examples:
        with formatter.section("Examples"):
            for line in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def command(
    name: str, *, examples: Sequence[str], exits: dict[int, str] | None = None, **kw: Any
) -> Callable[[Callable[..., Any]], Command]:
    """``@click.command`` with examples (command lines) and the exit codes beyond 0, 2, 3 and 5."""
    return click.command(name, cls=Command, examples=examples, exits=exits, **kw)


class Group(click.Group):
    """A group of commands whose help has examples. It takes the common options before the name of
    the command as well as after it."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _meaning_told(self, ctx):
            return super().parse_args(ctx, command_first(args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from rmqctl.cli.meant import meant_commands

            meant = meant_commands(args[0], self.list_commands(ctx))
            raise click.UsageError(f"{error.message}{_question(meant)}", error.ctx) from None

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        write_examples(formatter, self.examples)


@contextmanager
def _meaning_told(command: click.Command, ctx: click.Context) -> Iterator[None]:
    """Inside, the error about an unknown option names the options that may have been meant."""
    try:
        yield
    except click.NoSuchOption as error:
        from rmqctl.cli.meant import meant_options

        options = [one for one in command.get_params(ctx) if isinstance(one, click.Option)]
        known = [name for one in options for name in one.opts if name.startswith("--")]
        meant = meant_options(error.option_name, known)
        raise click.UsageError(f"{error.message}{_question(meant)}", error.ctx) from None


def _too_much(command: click.Command, rest: Sequence[str]) -> str:
    """What is said of arguments that a command does not take. A directory is mostly its store."""
    more = "s" if len(rest) > 1 else ""
    text = f"Got unexpected extra argument{more} ({' '.join(rest)})."
    takes_store = any("--store" in one.opts for one in command.params)
    is_store = takes_store and len(rest) == 1 and os.path.isdir(rest[0])
    return text + (_question([shell_line(["--store", rest[0]])]) if is_store else "")


def _question(names: Sequence[str]) -> str:
    return f" Did you mean {' or '.join(map(repr, names))}?" if names else ""


def command_first(args: list[str]) -> list[str]:
    """Moves common options behind the command: ``--store DIR queues …`` becomes ``queues --store
    DIR …``. Where no command follows, the common options are dropped."""
    at = 0
    while at < len(args) and args[at].partition("=")[0] in COMMON_OPTIONS:
        takes_value = COMMON_OPTIONS[args[at].partition("=")[0]]
        at += 2 if takes_value and "=" not in args[at] else 1
    rest = args[at:]
    if not rest or rest[0].startswith("-"):
        return rest
    return [rest[0], *args[:at], *rest[1:]]


def group(
    name: str, *, examples: Sequence[str], cls: type[Group] = Group
) -> Callable[[Callable[..., Any]], Group]:
    """``@click.group`` with examples."""
    return click.group(name, cls=cls, examples=examples)
