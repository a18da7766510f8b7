"""Commands in notes and errors, made to work as they are pasted: with the options that name the
store, where those stand on the command line. A store that the environment names needs none."""

from __future__ import annotations

import re
from contextvars import ContextVar

import click
from click.core import ParameterSource

from rmqctl.shell import shell_line

#: The options that name the store of the command that runs, and their values, as they were typed.
_TYPED: ContextVar[dict[str, str]] = ContextVar("typed")
_PLACES = ("--store", "--broker-conf", "--files")
_COMMAND = re.compile(r"`rmqctl ([a-z][^`]*)`")
#: Commands that texts name for what they take or have written, and not as the next step.
_NOT_NEXT = ("backup", "export", "import", "put")


def remember(context: click.Context) -> None:
    """Keeps how the store was named on a command line that has been parsed. Of several stores it
    keeps none."""
    typed: dict[str, str] = {}
    for one in context.command.params:
        name = one.name or ""
        is_typed = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_typed and one.opts[0] in _PLACES:
            value = context.params[name]
            values = value if isinstance(value, tuple) else (value,)
            typed |= {one.opts[0]: str(values[0])} if len(values) == 1 else {}
    _TYPED.set(typed)


def forget() -> None:
    """To be called before a command line is parsed."""
    _TYPED.set({})


def pasteable(text: str) -> str:
    """A text whose commands, between backticks, name the store as the running command does. A
    command that takes no --store, has one, or is not whole stays as it is."""
    typed = _TYPED.get({})
    return _COMMAND.sub(lambda match: f"`rmqctl {_completed(match[1], typed)}`", text)


def _completed(command: str, typed: dict[str, str]) -> str:
    words = command.split()
    given = {word.partition("=")[0] for word in words}
    takes_value = _options_of(words) if typed and words[0] not in _NOT_NEXT else {}
    if "--help" in given or "--store" in given or takes_value.get(words[-1]):
        return command
    missing = takes_value.keys() - given
    named = [word for pair in typed.items() if pair[0] in missing for word in pair]
    return f"{command} {shell_line(named)}" if named else command


def _options_of(words: list[str]) -> dict[str, bool]:
    """The options of the command that begins with these words, and whether each takes a value."""
    from rmqctl.cli.main import cli

    found: click.Command | None = cli
    context = click.Context(cli)
    for word in words:
        if not isinstance(found, click.Group):
            break
        found = found.get_command(context, word)
    options = [one for one in found.params if isinstance(one, click.Option)] if found else []
    return {name: not one.is_flag for one in options for name in one.opts}
