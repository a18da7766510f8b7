"""Shell completions beside commands and options: names of topics, groups and others in the store.

Each Tab starts a process, so only names are offered that can be listed quickly. No error is
printed: a store that is broken, or none, gives no completions. A completion becomes part of a
command line, so a name is offered only when no shell changes its meaning.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
)

from rmqctl.errors import RmqctlError

#: The variable by which the shell asks, as click names it.
VARIABLE = "_RMQCTL_COMPLETE"
#: Words of characters to which no shell gives a meaning.
_PLAIN = re.compile(r"[\w%@.,:+-]+")
#: The fields of ``du --by``. The module that has them would take too long to load.
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
    """The names that the store of the command line has; none where something is wrong with it."""
    from rmqctl.cli.place import places_of

    root = ctx.params.get("roots", ctx.params.get("root"))
    roots = root if isinstance(root, tuple) else () if root is None else (root,)
    try:
        with ctx.scope(cleanup=False):
            stores, _ = places_of(roots, ctx.params.get("broker_conf"))
        found = [name for store in stores if "://" not in store for name in names(Path(store))]
    except (OSError, ValueError, click.ClickException, RmqctlError):
        # A Tab prints no error: the command itself will.
        return []
    return _items(set(found), incomplete)


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem[str]]:
    fitting = [name for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name)]
    return [CompletionItem(name) for name in sorted(fitting)]


class _Bash(BashComplete):
    """bash ends a word at ``@`` and at ``=``. ``--store @prod`` comes as ``@`` and ``prod``, though
    the completion replaces both; ``--topic=or`` comes as three words."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        joined: list[str] = []
        for number, word in enumerate([*args, incomplete]):
            if joined and joined[-1] == "@":
                joined[-1] += word
            elif joined and joined[-1].startswith("--") and word.startswith("="):
                if word != "=" or number == len(args):
                    joined.append(word[1:])
            else:
                joined.append(word)
        return joined[:-1], joined[-1]


class _Zsh(ZshComplete):
    """Where option and value are one word (``--topic=or``), click's script replaces both with the
    value. Here ``compset`` sets the option apart first, and ``compadd`` without ``-U`` heeds it."""

    source_template = ZshComplete.source_template.replace(
        "    local -a response\n",
        "    local -a response\n    [[ ${words[CURRENT]} == --*=* ]] && compset -P 1 '*='\n",
    ).replace("compadd -U -V", "compadd -V")


class _Fish(FishComplete):
    """fish offers only completions that begin with the typed word: where option and value are one
    word, each completion begins with the option. Values may have commas, at which click's own
    script would end them."""

    source_template = """\
function %(complete_func)s
    set -l response (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp) \
COMP_CWORD=(commandline -t) %(prog_name)s)
    set -l before (string match -r -- '^--[^=]+=' (commandline -t)); or set before ''
    for completion in $response
        set -l found (string split -m 1 ',' -- $completion)
        switch $found[1]
            case dir
                set found (__fish_complete_directories $found[2])
            case file
                set found (__fish_complete_path $found[2])
            case '*'
                set -e found[1]
        end
        for name in $found
            echo $before$name
        end
    end
end

complete --no-files --command %(prog_name)s --arguments '(%(complete_func)s)'
"""


def answer(cli: click.Command) -> None:
    """Answers the shell, and ends the process. It prints no error, unless RMQCTL_DEBUG is set: that
    would stand in the middle of a command line."""
    for shell in (_Bash, _Zsh, _Fish):
        add_completion_class(shell)
    try:
        cli.main(prog_name="rmqctl")
    except Exception:
        if os.environ.get("RMQCTL_DEBUG", "") not in ("", "0"):
            raise
        raise SystemExit(1) from None
