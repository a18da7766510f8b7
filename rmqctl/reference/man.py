"""Manual pages of all commands, from what ``--help`` says: ``python -m rmqctl.reference.man DIR``.

A page a command (``rmqctl-walk-commitlog.1``), and ``rmqctl.1`` with what they share. They are made
when the package is built, and installed into ``share/man/man1``. Needs click, and nothing else that
rmqctl depends on.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from rmqctl import __version__
from rmqctl.cli.command import EXIT_CODES
from rmqctl.cli.main import cli

NAME = "rmqctl"
ENVIRONMENT = {
    "RMQCTL_STORE": "The store, where --store does not name it; also @NAME.",
    "RMQCTL_BROKER_CONF": "The broker.conf, where neither --broker-conf nor a store's name does.",
    "RMQCTL_PAGER, PAGER": "The pager of a terminal; less where neither is set. cat is none.",
    "RMQCTL_KERNEL": "pure or compiled: refuses the other engine of scans.",
    "RMQCTL_DEBUG": "Shows the traceback of what ends in an error, if not 0.",
    "NO_COLOR": "No colours, if not empty.",
    "COLUMNS": "The width of the terminal, if not what it says itself.",
    "XDG_CONFIG_HOME": "Where rmqctl/config.toml is looked for, in place of ~/.config.",
}
FILES = {
    "~/.config/rmqctl/config.toml": "Stores by name: tables such as [stores.prod-a] with store and "
    "broker_conf.",
}
#: Characters that roff takes for others, or for its own.
_ROFF = str.maketrans(
    {"\\": "\\e", "-": "\\-", "~": "\\(ti", "^": "\\(ha", "'": "\\(aq", "`": "\\(ga", '"': "\\(dq"}
)


def pages() -> dict[str, str]:
    """The text of every page by the name of its file."""
    context = click.Context(cli, info_name=NAME, **cli.context_settings)
    return {
        "-".join(path) + ".1": _page(path, ctx)
        for path, ctx in _commands((NAME,), context)
        if not ctx.command.hidden
    }


def _commands(
    path: tuple[str, ...], ctx: click.Context
) -> Iterator[tuple[tuple[str, ...], click.Context]]:
    """A command and all below it, each with its path and context."""
    yield path, ctx
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            command = ctx.command.get_command(ctx, name)
            assert command is not None
            below = click.Context(command, parent=ctx, info_name=name)
            yield from _commands((*path, name), below)


def _page(path: tuple[str, ...], ctx: click.Context) -> str:
    command = ctx.command
    name, paragraphs = "-".join(path), re.split(r"\n\s*\n", _plain(command.help or ""))
    usage = " ".join(command.collect_usage_pieces(ctx))
    lines = [
        f'.TH "{_escaped(name.upper())}" "1" "" "{NAME} {__version__}" "{NAME}"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(paragraphs[0].rstrip('.'))}",
        ".SH SYNOPSIS",
        f"\\fB{_escaped(' '.join(path))}\\fR {_escaped(usage)}",
    ]
    told = [*paragraphs[1:], *([command.epilog] if command.epilog else [])]
    if told:
        lines.append(".SH DESCRIPTION")
        for paragraph in told:
            lines += [".PP", _text(paragraph)]
    if isinstance(command, click.Group):
        lines += [".SH COMMANDS", *_by_section(command, ctx)]
    records = [one.get_help_record(ctx) for one in command.get_params(ctx)]
    lines += [".SH OPTIONS", *_list(record for record in records if record)]
    examples = getattr(command, "examples", ())
    if examples:
        lines += [".SH EXAMPLES", ".EX", *map(_text, examples), ".EE"]
    lines += [".SH EXIT STATUS", *_list(_exits(command))]
    if len(path) == 1:
        lines += [".SH ENVIRONMENT", *_list(ENVIRONMENT.items())]
        lines += [".SH FILES", *_list(FILES.items())]
    lines += [".SH SEE ALSO", *_see_also(path, ctx)]
    return "\n".join(lines) + "\n"


def _exits(command: click.Command) -> list[tuple[str, str]]:
    """Of the program and a group all codes, of a command its own."""
    codes = dict(EXIT_CODES)
    if not isinstance(command, click.Group):
        codes = {code: EXIT_CODES[code] for code in (0, 2, 3, 5)} | getattr(command, "exits", {})
    return [(str(code), codes[code]) for code in sorted(codes)]


def _by_section(group: click.Group, ctx: click.Context) -> Iterator[str]:
    """The commands of a group as its help has them: by what they may do, where it says so."""
    below = dict(_below(group, ctx))
    sections = getattr(group, "sections", None) or {"": below}
    for heading, names in sections.items():
        if heading:
            yield f".SS {_escaped(heading)}"
        yield from _list((name, below[name]) for name in names if name in below)


def _below(group: click.Group, ctx: click.Context) -> Iterator[tuple[str, str]]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if command is not None and not command.hidden:
            yield name, _plain(command.help or "").partition("\n")[0]


def _see_also(path: tuple[str, ...], ctx: click.Context) -> list[str]:
    others = ["-".join(path[:length]) for length in range(1, len(path))]
    if isinstance(ctx.command, click.Group):
        others += ["-".join((*path, name)) for name, _ in _below(ctx.command, ctx)]
    ends = [","] * (len(others) - 1) + [""]
    return [f".BR {_escaped(one)} (1){end}" for one, end in zip(others, ends, strict=True)]


def _list(entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Terms, each with its text below."""
    for term, text in entries:
        yield from (".TP", f"\\fB{_escaped(term)}\\fR", _text(text))


def _plain(text: str) -> str:
    """A help text without the marks that are for click."""
    import inspect

    return inspect.cleandoc(text).replace("\b\n", "").partition("\f")[0].strip()


def _text(text: str) -> str:
    """Text that no line of is a request to roff."""
    lines = _escaped(" ".join(text.split()) if "\n" in text else text).split("\n")
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in lines)


def _escaped(text: str) -> str:
    """Characters as they are: a hyphen stays one that is found and copied, and all is ASCII."""
    plain = text.translate(_ROFF)
    return "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in plain)


def main(arguments: list[str] | None = None) -> int:
    """Writes all pages into a directory; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m rmqctl.reference.man", description="Write the manual pages."
    )
    parser.add_argument("directory", type=Path, help="made if it is not there")
    directory: Path = parser.parse_args(arguments).directory
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (directory / name).write_text(text, "ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
