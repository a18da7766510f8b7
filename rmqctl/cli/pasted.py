"""Commands in notes and errors, made to work as they are pasted: with the options that name the
store, where those stand on the command line. A store that the environment names needs none."""

from __future__ import annotations

import re
from contextvars import ContextVar

import click
from click.core import ParameterSource

from rmqctl.cli.text import shell_line

#: The words that name the store of the command that runs; none where they were not typed.
_TYPED: ContextVar[tuple[str, ...]] = ContextVar("typed", default=())
_COMMAND = re.compile(r"`rmqctl ([a-z][^`]*)`")
#: Commands that texts name for what they take or have written, and not as the next step.
_NOT_NEXT = ("backup", "export", "import", "put")
_PLACES = ("--store", "--broker-conf")


def remember(context: click.Context) -> None:
    """Keeps how the store was named on a command line that has been parsed. Of several stores it
    keeps none."""
    typed: list[str] = []
    for one in context.command.params:
        is_typed = context.get_parameter_source(one.name or "") is ParameterSource.COMMANDLINE
        if is_typed and one.opts[0] in _PLACES:
            value = context.params[one.name or ""]
            values = value if isinstance(value, tuple) else (value,)
            typed += [one.opts[0], str(values[0])] if len(values) == 1 else []
    _TYPED.set(tuple(typed))


def forget() -> None:
    """To be called before a command line is parsed."""
    _TYPED.set(())


def pasteable(text: str) -> str:
    """A text whose commands, between backticks, name the store as the running command does. A
    command that takes no --store, or has one, stays as it is."""
    typed = _TYPED.get()
    return _COMMAND.sub(lambda match: _completed(match[1], typed), text) if typed else text


def _completed(command: str, typed: tuple[str, ...]) -> str:
    words = command.split()
    if words[0] in _NOT_NEXT or "--store" in words or not _takes_store(words):
        return f"`rmqctl {command}`"
    return f"`rmqctl {command} {shell_line(typed)}`"


def _takes_store(words: list[str]) -> bool:
    from rmqctl.cli.main import cli

    found: click.Command | None = cli
    context = click.Context(cli)
    for word in words:
        if not isinstance(found, click.Group):
            break
        found = found.get_command(context, word)
    return found is not None and "--help" not in words and "--store" in _options(found)


def _options(command: click.Command) -> list[str]:
    return [name for one in command.params for name in one.opts]
