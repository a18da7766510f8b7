"""What the shell completes besides commands and options: names that the store has.

Each Tab is a process of its own, so only what is listed quickly is offered, and nothing is said: on
a store that is broken, or none, there are no completions. A completion becomes part of a command
line, so a name is offered only when a shell takes it as it stands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

from rmqctl.errors import RmqctlError

#: The variable by which the shell asks, as click names it.
VARIABLE = "_RMQCTL_COMPLETE"
#: Characters that no shell gives a meaning to inside of a word.
_PLAIN = re.compile(r"[\w%@.,:+-]+")
#: As ``du`` has them, whose module would take too long to load.
USAGE_FIELDS = ("topic", "queue", "tag", "producer-host", "day")


def topics(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Topics that have queues."""
    from rmqctl.operations.look import names

    return _offered(ctx, incomplete, names.topics)


def queue_ids(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Queues of the topic that is given."""
    from rmqctl.operations.look import names

    topic = ctx.params.get("topic")
    if not isinstance(topic, str):
        return []
    found = _offered(ctx, incomplete, lambda root: names.queue_ids(root, topic))
    return sorted(found, key=lambda item: int(item.value))


def groups(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Consumer groups that have offsets."""
    from rmqctl.operations.look import names

    return _offered(ctx, incomplete, names.groups)


def index_files(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Index files."""
    from rmqctl.operations.look import names

    return _offered(ctx, incomplete, names.index_files)


def usage_fields(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Fields of ``du --by``: a list with commas, each once."""
    before, comma, begun = incomplete.rpartition(",")
    left = [name for name in USAGE_FIELDS if name not in before.split(",")]
    return [CompletionItem(before + comma + name) for name in left if name.startswith(begun)]


def stores(incomplete: str) -> list[CompletionItem[str]]:
    """Stores by name: ``@prod-a``."""
    from rmqctl.cli.place import SIGN, named_stores

    try:
        names = [SIGN + name for name in named_stores()]
    except RmqctlError:
        return []  # The command itself says what is wrong with the file.
    return _items(names, incomplete)


def _offered(
    ctx: click.Context, incomplete: str, names: Callable[[Path], Iterable[str]]
) -> list[CompletionItem[str]]:
    """The names that the store of the command line has; none where anything is wrong with it."""
    from rmqctl.cli.place import places_of

    root = ctx.params.get("roots", ctx.params.get("root"))
    roots = root if isinstance(root, tuple) else () if root is None else (root,)
    try:
        with ctx.scope(cleanup=False):
            stores, _ = places_of(roots, ctx.params.get("broker_conf"))
        found = [name for store in stores if "://" not in store for name in names(Path(store))]
    except (OSError, ValueError, click.ClickException, RmqctlError):
        # Whoever presses Tab is not told of a store: the command says it.
        return []
    return _items(set(found), incomplete)


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem[str]]:
    fitting = [name for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name)]
    return [CompletionItem(name) for name in sorted(fitting)]


class _Bash(BashComplete):
    """bash ends a word at ``@``: ``--store @prod`` comes as ``@`` and ``prod``, though what is
    completed takes the place of both."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        joined: list[str] = []
        for word in [*args, incomplete]:
            if joined and joined[-1] == "@":
                joined[-1] += word
            else:
                joined.append("@" if word == "=@" else word)
        return joined[:-1], joined[-1]


def answer(cli: click.Command) -> None:
    """Answers the shell, and ends the process. An error would stand in the middle of what somebody
    types: it is none, unless RMQCTL_DEBUG is set."""
    add_completion_class(_Bash)
    try:
        cli.main(prog_name="rmqctl")
    except Exception:
        if os.environ.get("RMQCTL_DEBUG", "") not in ("", "0"):
            raise
        raise SystemExit(1) from None
